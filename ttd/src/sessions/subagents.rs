//! What subagents do at this moment, so that no message is handed to them. Pure.
//!
//! A subagent is part of its session and has the same environment. The hook before a tool names the subagent; an MCP call
//! names the tool use. A shell names neither, so a call from a shell is taken for a subagent's while one runs `tt`. That may
//! keep a message from the conversation for a while, and never gives it to the wrong one.

use std::collections::VecDeque;
use std::time::Duration;

use tt_proto::session::SessionEvent;
use tt_rules::LeaseTime;

use super::registry::Report;
use super::session::SessionKey;

/// How many tool uses are remembered.
const MAX_TOOLS: usize = 1024;

/// How many commands are remembered.
const MAX_COMMANDS: usize = 256;

/// A command whose end nobody reported counts as ended after this time. A harness ends its own commands sooner.
const LONGEST_COMMAND: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Default)]
pub(super) struct Subagents {
    /// Tool uses, oldest first. A call may come after the end of its tool was reported.
    tools: VecDeque<String>,
    /// Commands that run `tt`, oldest first.
    commands: VecDeque<Command>,
}

#[derive(Debug)]
struct Command {
    session: SessionKey,
    subagent_id: String,
    tool_use_id: String,
    at: LeaseTime,
}

impl Subagents {
    /// Notes what a hook reported.
    pub(super) fn note(&mut self, session: &SessionKey, report: &Report, at: LeaseTime) {
        match (report.event, &report.subagent_id, &report.tool_use_id) {
            (SessionEvent::ToolStarted, Some(subagent_id), Some(tool_use_id)) => {
                remember(&mut self.tools, tool_use_id.clone(), MAX_TOOLS);
                if report.runs_tt {
                    let (session, subagent_id, tool_use_id) =
                        (session.clone(), subagent_id.clone(), tool_use_id.clone());
                    remember(&mut self.commands, Command { session, subagent_id, tool_use_id, at }, MAX_COMMANDS);
                }
            }
            (SessionEvent::ToolEnded, _, Some(tool_use_id)) => {
                self.commands.retain(|command| command.tool_use_id != *tool_use_id);
            }
            (SessionEvent::SubagentEnded, Some(subagent_id), _) => {
                self.commands.retain(|command| command.subagent_id != *subagent_id || command.session != *session);
            }
            (SessionEvent::SessionEnded, _, _) => self.commands.retain(|command| command.session != *session),
            _ => {}
        }
    }

    /// Whether a tool use is known to be a subagent's.
    pub(super) fn has_tool(&self, tool_use_id: &str) -> bool {
        self.tools.iter().any(|known| known == tool_use_id)
    }

    /// Whether a subagent of this session runs `tt`.
    pub(super) fn run_tt(&self, session: &SessionKey, now: LeaseTime) -> bool {
        self.commands.iter().any(|command| command.session == *session && now.since(command.at) < LONGEST_COMMAND)
    }
}

fn remember<T>(list: &mut VecDeque<T>, item: T, max: usize) {
    if list.len() >= max {
        list.pop_front();
    }
    list.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(event: SessionEvent, subagent: Option<&str>, tool: Option<&str>) -> Report {
        Report {
            subagent_id: subagent.map(str::to_owned),
            tool_use_id: tool.map(str::to_owned),
            runs_tt: true,
            ..Report::of(event, LeaseTime::from_millis(0))
        }
    }

    #[test]
    fn a_tool_use_is_remembered_for_a_while() {
        let (mut subagents, session) = (Subagents::default(), SessionKey::new("claude", "s"));
        let mut note = |event, subagent, tool: &str| {
            subagents.note(&session, &report(event, subagent, Some(tool)), LeaseTime::from_millis(0));
        };
        note(SessionEvent::ToolStarted, Some("a"), "t1");
        note(SessionEvent::ToolStarted, None, "t2");
        note(SessionEvent::ToolEnded, Some("a"), "t1");
        for n in 1..MAX_TOOLS {
            note(SessionEvent::ToolStarted, Some("a"), &format!("x{n}"));
        }
        assert!(subagents.has_tool("t1") && !subagents.has_tool("t2"));
        subagents.note(
            &session,
            &report(SessionEvent::ToolStarted, Some("a"), Some("last")),
            LeaseTime::from_millis(0),
        );
        assert!(!subagents.has_tool("t1") && subagents.has_tool("last"), "the oldest is forgotten");
        assert_eq!(subagents.commands.len(), MAX_COMMANDS);
    }

    #[test]
    fn a_shell_is_a_subagents_while_one_of_its_session_runs_tt_there() {
        use SessionEvent::{SessionEnded, SubagentEnded, ToolEnded, ToolStarted};
        let (session, other) = (SessionKey::new("claude", "s"), SessionKey::new("claude", "x"));
        let at = |seconds: i64| LeaseTime::from_millis(seconds * 1000);
        type Told<'a> = (SessionEvent, Option<&'a str>, Option<&'a str>);
        let table: &[(&str, &[Told<'_>], i64, bool)] = &[
            ("nothing runs", &[], 1, false),
            ("it runs", &[(ToolStarted, Some("a"), Some("t"))], 1, true),
            ("the conversation runs it", &[(ToolStarted, None, Some("t"))], 1, false),
            ("it ended", &[(ToolStarted, Some("a"), Some("t")), (ToolEnded, Some("a"), Some("t"))], 1, false),
            ("another one ended", &[(ToolStarted, Some("a"), Some("t")), (ToolEnded, None, Some("u"))], 1, true),
            ("its subagent ended", &[(ToolStarted, Some("a"), Some("t")), (SubagentEnded, Some("a"), None)], 1, false),
            ("another one did", &[(ToolStarted, Some("a"), Some("t")), (SubagentEnded, Some("b"), None)], 1, true),
            ("its session ended", &[(ToolStarted, Some("a"), Some("t")), (SessionEnded, None, None)], 1, false),
            ("nobody told its end", &[(ToolStarted, Some("a"), Some("t"))], 600, false),
        ];
        for (case, reports, now, expected) in table {
            let mut subagents = Subagents::default();
            for (event, subagent, tool) in *reports {
                subagents.note(&session, &report(*event, *subagent, *tool), at(0));
            }
            assert_eq!(subagents.run_tt(&session, at(*now)), *expected, "{case}");
            assert!(!subagents.run_tt(&other, at(*now)), "{case}");
        }
        let mut subagents = Subagents::default();
        let quiet = Report { runs_tt: false, ..report(ToolStarted, Some("a"), Some("t")) };
        subagents.note(&session, &quiet, at(0));
        assert!(!subagents.run_tt(&session, at(1)) && subagents.has_tool("t"), "another command");
    }
}
