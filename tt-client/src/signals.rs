//! What a client reports to the daemon about the environment it runs in.

use tt_harness::AGENT_ID_VARIABLE;
use tt_proto::hello::Signals;
use tt_proto::page::MAX_TEXT_BYTES;
use tt_proto::paths::Environment;

/// Collects the variables that identify a harness, a session or a terminal. No other variable leaves the process.
pub(crate) fn from_environment(env: &Environment) -> Signals {
    // What is too long for the daemon identifies nothing.
    let value = |name: &'static str| env.get_str(name).filter(|value| value.len() <= MAX_TEXT_BYTES);
    let set = |name: &'static str| value(name).map(|value| (name.to_owned(), value.to_owned()));
    Signals { env: tt_harness::signal_variables().filter_map(set).collect(), ..Signals::default() }
}

/// Whether the signals suggest that an agent is calling. The daemon decides; this chooses the format of a response that
/// has to be given without it.
pub(crate) fn suggest_agent(signals: &Signals) -> bool {
    let mut markers = tt_harness::ALL.iter().flat_map(|harness| harness.variables.markers);
    signals.session_id.is_some()
        || signals.var(AGENT_ID_VARIABLE).is_some()
        || markers.any(|marker| signals.var(marker).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_variables_leave_the_process() {
        let env = Environment::of([
            ("HOME", "/home/u"),
            ("API_TOKEN", "secret"),
            ("CLAUDE_CONFIG_DIR", "/x"),
            ("CLAUDE_PID", "7"),
            ("CODEX_SESSION_ID", "t-1"),
            ("GEMINI_SESSION_ID", ""),
            ("OPENCODE_PID", "8"),
            ("TMUX_PANE", "%1"),
            ("TT_HARNESS_EXPORT", "1"),
        ]);
        let sent: Vec<String> = from_environment(&env).env.into_keys().collect();
        assert_eq!(sent, ["CLAUDE_PID", "CODEX_SESSION_ID", "OPENCODE_PID", "TMUX_PANE", "TT_HARNESS_EXPORT"]);
    }

    #[test]
    fn a_marker_a_session_or_a_given_id_suggests_an_agent() {
        let suggests = |name: &str| suggest_agent(&from_environment(&Environment::of([(name, "1")])));
        for harness in tt_harness::ALL {
            for marker in harness.variables.markers {
                assert!(suggests(marker), "{marker}");
            }
        }
        assert!(suggests(AGENT_ID_VARIABLE));
        for other in ["CLAUDE_PID", "CLAUDE_CODE_SESSION_ID", "OPENCODE_PID", "TMUX_PANE", "TT_HARNESS_EXPORT"] {
            assert!(!suggests(other), "{other}");
        }
        assert!(suggest_agent(&Signals { session_id: Some("s-1".into()), ..Signals::default() }));
    }
}
