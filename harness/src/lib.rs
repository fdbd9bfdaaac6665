//! Facts about harnesses, the programs that run coding agents, as data: one file for each harness.
//!
//! The daemon reads these tables to find out which harness and which session is calling; the client reads them to know
//! which variables to report and where each harness keeps its configuration. Nothing here reads a file, a process or
//! the environment.
//!
//! To add a harness, write its file, list it in [`ALL`] and mention it in the documentation. No other code changes.
//! Every fact may be outdated by a harness's next release. An outdated fact costs a precise name, never a call.

mod claude;
mod codex;
mod config;
mod edits;
mod gemini;
mod hooks;
mod opencode;
mod pasted;
mod screen;

pub use config::{Directory, EntryValue, Format, McpConfig};
pub use edits::{EditTool, EditedPaths, GuardedTools};
pub use hooks::{Hold, HookEvent, HookFile, HookTrust, Hooks, PROGRAM_PLACEHOLDER, PluginFile, Refuse, Speaks, Speech};

pub use pasted::{PastedPart, lines_of_paste, padded_for_paste};
pub use screen::{Composer, Draft, Frame, Hint, Keys, Screen, ScreenFacts, TokenFrom, composer};

/// Every known harness, in the order in which people see them listed.
pub const ALL: &[&Harness] = &[&claude::HARNESS, &codex::HARNESS, &gemini::HARNESS, &opencode::HARNESS];

/// The variable by which a user sets the agent id of a caller.
pub const AGENT_ID_VARIABLE: &str = "TT_HARNESS_AGENT_ID";

/// The variable by which a user lets a harness among the caller's ancestors decide the identity.
pub const EXPORT_VARIABLE: &str = "TT_HARNESS_EXPORT";

/// Variables that identify a terminal or one of its panes, most reliable first.
pub const TERMINAL_VARIABLES: &[&str] =
    &["TMUX_PANE", "STY", "CMUX_TAB_ID", "ITERM_SESSION_ID", "KITTY_WINDOW_ID", "WEZTERM_PANE", "TERMINATOR_UUID"];

/// A program that runs coding agents.
#[derive(Debug, PartialEq, Eq)]
pub struct Harness {
    /// The word before the colon of an agent id, the default display name, and the argument of `tt install`.
    pub name: &'static str,
    /// The name of the product, for people.
    pub title: &'static str,
    /// The file name of its executable, which is also the name of its process.
    pub program: &'static str,
    /// Its npm package, for installations that run as a script of an interpreter.
    pub package: &'static str,
    /// The version that our tests with the real program run.
    pub tested_version: &'static str,
    /// How the `clientInfo.name` of its MCP client begins, in lower case.
    pub mcp_client_prefix: &'static str,
    pub variables: Variables,
    pub session: Session,
    /// The keys in the `_meta` of an MCP call under which the harness names the session that makes the call, the preferred
    /// one first.
    pub mcp_session_keys: &'static [&'static str],
    /// The key in the `_meta` of an MCP call that names its tool use as the harness's hooks do.
    pub mcp_tool_use_key: Option<&'static str>,
    pub session_files: Option<SessionFiles>,
    pub server: Option<SessionServer>,
    /// The directory of its configuration. Where it exists, the harness is taken to be installed.
    pub config_dir: Directory,
    /// The directory from which it loads skills, one subdirectory for each.
    pub skill_dir: Directory,
    pub mcp: McpConfig,
    pub hooks: Hooks,
    pub speech: Speech,
    pub tools: GuardedTools,
    /// None where nothing is ever typed into it.
    pub screen: Option<ScreenFacts>,
}

/// The environment variables that a harness sets for the programs it starts.
#[derive(Debug, PartialEq, Eq)]
pub struct Variables {
    /// Any of these, if set, shows that the harness runs above the caller.
    pub markers: &'static [&'static str],
    /// Any of these, if set, shows it only if a process of the harness is above the caller too: everything that is started
    /// below the harness inherits them, also what outlives it.
    pub inherited: &'static [&'static str],
    /// Holds the pid of the harness.
    pub pid: Option<&'static str>,
    /// Whether they usually reach other harnesses started below this one too. If so, they count only where no other
    /// harness is found.
    pub reach_other_harnesses: bool,
}

/// What distinguishes two sessions of a harness.
#[derive(Debug, PartialEq, Eq)]
pub enum Session {
    /// A session id: one that came with the call, else the value of the first of these variables that is set.
    Id { variables: &'static [&'static str] },
    /// The process of the harness. A session id is ignored, because not every tool and hook of the harness sees it:
    /// with it, one session would become two members.
    Process,
}

/// Files named `<pid>.json` in which a harness records the session that each of its processes is in.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionFiles {
    /// Their directory, relative to [`Harness::config_dir`].
    pub dir: &'static str,
    /// The JSON key of the session id.
    pub session_id_key: &'static str,
    /// The JSON key of the start time of the process in clock ticks since boot, as a number or a string.
    pub process_start_key: &'static str,
    /// The JSON key of the socket on which the process takes messages for its session. A process without one takes none.
    pub inbox_key: &'static str,
    /// The directory of transcripts, relative to [`Harness::config_dir`]: `<directory of a project>/<session id>.jsonl`.
    pub transcripts: &'static str,
}

/// A process of a harness that runs several sessions at once. Its end and its ancestors say nothing of any one of them; it
/// can be asked.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionServer {
    /// The first argument of such a process.
    pub argument: &'static str,
    /// Its socket, relative to [`Harness::config_dir`].
    pub socket: &'static str,
    /// The commands of the harness that open a session of this process in a terminal, besides no command at all.
    pub terminal_commands: &'static [&'static str],
    /// Arguments of programs that have nothing to do with this process, wherever they stand.
    pub other_arguments: &'static [&'static str],
}

impl Harness {
    /// Every environment variable that says something about a session of this harness, each once.
    pub fn signal_variables(&self) -> impl Iterator<Item = &'static str> {
        let markers = self.variables.markers;
        let session = self.session.variables().iter().filter(|name| !markers.contains(name));
        markers.iter().chain(self.variables.inherited).chain(session).copied().chain(self.variables.pid)
    }
}

impl Session {
    /// The variables that may hold the session id, the preferred one first.
    pub fn variables(&self) -> &'static [&'static str] {
        match self {
            Self::Id { variables } => variables,
            Self::Process => &[],
        }
    }
}

/// The variables a client reports to the daemon. Nothing else of its environment leaves the process.
pub fn signal_variables() -> impl Iterator<Item = &'static str> {
    let own = [AGENT_ID_VARIABLE, EXPORT_VARIABLE].into_iter();
    let harnesses = ALL.iter().flat_map(|harness| harness.signal_variables());
    own.chain(harnesses).chain(TERMINAL_VARIABLES.iter().copied())
}

/// Every harness, in the order in which their variables count where several are set: those whose variables reach other
/// harnesses come last.
pub fn in_detection_order() -> impl Iterator<Item = &'static Harness> {
    let (specific, inherited) = (reaching_others(false), reaching_others(true));
    specific.chain(inherited)
}

fn reaching_others(reach: bool) -> impl Iterator<Item = &'static Harness> {
    ALL.iter().copied().filter(move |harness| harness.variables.reach_other_harnesses == reach)
}

/// Finds a harness by [`Harness::name`].
pub fn by_name(name: &str) -> Option<&'static Harness> {
    find(|harness| harness.name == name)
}

/// Finds a harness by the name of its executable or process.
pub fn by_program(program: &str) -> Option<&'static Harness> {
    find(|harness| harness.program == program)
}

/// Finds a harness by the path of a script inside its npm package: `/usr/lib/node_modules/@openai/codex/bin/codex.js`.
pub fn by_script(path: &str) -> Option<&'static Harness> {
    find(|harness| path.contains(&format!("/{}/", harness.package)))
}

/// Finds a harness by the `clientInfo.name` of an MCP client.
pub fn by_mcp_client(client_name: &str) -> Option<&'static Harness> {
    let client_name = client_name.to_ascii_lowercase();
    find(|harness| client_name.starts_with(harness.mcp_client_prefix))
}

fn find(matches: impl Fn(&Harness) -> bool) -> Option<&'static Harness> {
    ALL.iter().copied().find(|harness| matches(harness))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[track_caller]
    fn assert_unique(what: &str, items: impl IntoIterator<Item = &'static str>) {
        let mut seen = BTreeSet::new();
        for item in items {
            assert!(!item.is_empty(), "an empty {what}");
            assert!(seen.insert(item), "two harnesses claim the {what} {item}");
        }
    }

    #[test]
    fn no_two_harnesses_claim_the_same_thing() {
        assert_unique("name", ALL.iter().map(|harness| harness.name));
        assert_unique("title", ALL.iter().map(|harness| harness.title));
        assert_unique("program", ALL.iter().map(|harness| harness.program));
        assert_unique("package", ALL.iter().map(|harness| harness.package));
        assert_unique("variable", signal_variables());
        for harness in ALL {
            let found = by_mcp_client(harness.mcp_client_prefix);
            assert_eq!(found, Some(*harness), "the prefix of another harness matches {}", harness.mcp_client_prefix);
        }
    }

    #[test]
    fn names_can_be_typed_and_stand_in_an_agent_id() {
        for harness in ALL {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(harness.name.chars().all(plain), "{}", harness.name);
            let lower = harness.mcp_client_prefix.to_ascii_lowercase();
            assert_eq!(harness.mcp_client_prefix, lower, "client names are compared in lower case");
        }
    }

    #[test]
    fn every_harness_can_be_detected_and_configured() {
        for harness in ALL {
            assert!(!harness.variables.markers.is_empty(), "{} shows itself by no variable", harness.name);
            assert!(harness.session != Session::Id { variables: &[] }, "{} names no session", harness.name);
            assert!(!harness.mcp.files.is_empty(), "{} has no configuration file", harness.name);
            let starts_program =
                |(_, value): &&(_, EntryValue)| matches!(value, EntryValue::Program | EntryValue::CommandLine);
            assert_eq!(harness.mcp.entry.iter().filter(starts_program).count(), 1, "{}", harness.name);
            assert_unique("key of the MCP entry", harness.mcp.entry.iter().map(|(key, _)| *key));
        }
    }

    #[test]
    fn every_hook_file_tells_the_beginning_and_the_end_of_a_turn_and_of_a_session() {
        for harness in ALL {
            let Hooks::File(file) = &harness.hooks else { continue };
            assert_unique("hook event", file.events.iter().map(|event| event.name));
            for meaning in ["session_started", "prompt", "tool_started", "tool_ended", "turn_ended", "session_ended"] {
                assert!(file.events.iter().any(|event| event.meaning == meaning), "{} {meaning}", harness.name);
            }
        }
    }

    #[test]
    fn no_tool_is_named_twice() {
        for harness in ALL {
            let tools = harness.tools.edits.iter().map(|edit| edit.name).chain([harness.tools.shell.0]);
            assert_unique("tool", tools);
        }
    }

    #[test]
    fn variables_that_reach_other_harnesses_count_last() {
        let order: Vec<&Harness> = in_detection_order().collect();
        assert_eq!(order.len(), ALL.len());
        assert!(order.is_sorted_by_key(|harness| harness.variables.reach_other_harnesses));
        assert!(claude::HARNESS.variables.reach_other_harnesses, "Claude Code exports its variables to every child");
    }

    #[test]
    fn mcp_clients_are_recognised_by_how_their_name_begins() {
        assert_eq!(by_mcp_client("Codex-mcp-client"), Some(&codex::HARNESS));
        assert_eq!(by_mcp_client("claude-code"), Some(&claude::HARNESS));
        assert_eq!(by_mcp_client("gemini-cli-mcp-client"), Some(&gemini::HARNESS));
        assert_eq!(by_mcp_client("opencode"), Some(&opencode::HARNESS));
        assert_eq!(by_mcp_client("mcp-inspector"), None);
    }
}
