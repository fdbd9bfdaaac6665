//! Decides who is calling, from the process that the kernel names and the variables that the client reports.
//!
//! Pure: `(caller, processes) -> identity`, with every step recorded for `tt whoami --explain`.

mod harness;
mod memory;
mod terminal;
mod user;

use std::cell::OnceCell;

pub use harness::identify as harness_of;
use harness::{find_marker, session_id};
pub use memory::{Memory, derive_and_remember, explain_and_remember};
pub use terminal::is_at_terminal;
use tt_harness::{AGENT_ID_VARIABLE, EXPORT_VARIABLE, Harness, TERMINAL_VARIABLES};
use tt_proto::hello::{Anchor, FoundBy, Identity, Signals, Step};
use tt_proto::paths::short_hash;
use tt_proto::{AgentId, Error, ErrorCode};
pub use user::user_name;

use crate::liveness::{LookTimeout, Process, Processes};

/// What the daemon knows about a caller before it derives an identity.
#[derive(Debug, Clone)]
pub struct Caller<'a> {
    /// The peer's pid as the kernel reports it; none if the caller is in another pid namespace.
    pub pid: Option<u32>,
    pub user: &'a str,
    pub signals: &'a Signals,
}

/// Derives the identity of a caller.
pub fn derive(caller: &Caller<'_>, processes: &dyn Processes) -> Result<Identity, Error> {
    Derivation::new(caller, processes).run()
}

/// Finds the process that runs the caller's session and others. May block.
pub fn find_server(caller: &Caller<'_>, harness: &str, processes: &dyn Processes) -> Option<Anchor> {
    let harness = tt_harness::by_name(harness)?;
    let server = Derivation::new(caller, processes).server(harness)?;
    Some(processes.anchor(&server))
}

/// Returns every step of the derivation.
fn explain(caller: &Caller<'_>, processes: &dyn Processes) -> Result<Vec<Step>, Error> {
    let mut derivation = Derivation::new(caller, processes);
    derivation.explain_lineage();
    derivation.run()?;
    Ok(derivation.steps)
}

/// The refusal of a caller whose processes cannot be looked at: it might be taken for somebody else.
pub fn unidentified(timeout: LookTimeout) -> Error {
    let hangs = |pid: u32| format!("process {pid} hangs and cannot be read, so it is not known who is calling");
    let many = || "too many processes hang and cannot be read, so it is not known who is calling".to_owned();
    let error = Error::new(ErrorCode::AgentIdRequired, timeout.pid.map_or_else(many, hangs));
    match timeout.pid {
        Some(pid) => error.hint(format!("end or mend process {pid}")).detail("pid", pid),
        None => error.hint("find the processes that hang, and end or mend them"),
    }
}

struct Derivation<'a> {
    caller: &'a Caller<'a>,
    processes: &'a dyn Processes,
    /// Whether the caller and this process mean the same by a pid.
    same_pids: OnceCell<bool>,
    steps: Vec<Step>,
}

impl<'a> Derivation<'a> {
    fn new(caller: &'a Caller<'a>, processes: &'a dyn Processes) -> Self {
        Self { caller, processes, same_pids: OnceCell::new(), steps: Vec::new() }
    }
    fn step(&mut self, rule: &str, finding: impl Into<String>) {
        self.steps.push(Step { rule: rule.to_owned(), finding: finding.into() });
    }

    /// The caller, which is `tt`, and its ancestors, nearest first. Lazy, because each lookup costs a read.
    fn lineage(&self) -> impl Iterator<Item = Process> {
        self.caller.pid.into_iter().flat_map(|pid| self.processes.lineage(pid))
    }

    fn ancestors(&self) -> impl Iterator<Item = Process> {
        self.lineage().skip(1)
    }

    fn run(&mut self) -> Result<Identity, Error> {
        if let Some(text) = self.caller.signals.var(AGENT_ID_VARIABLE) {
            let agent_id = AgentId::parse(text)?;
            self.step(AGENT_ID_VARIABLE, format!("set: the id is exactly {agent_id}"));
            return Ok(self.overridden(agent_id));
        }
        self.step(AGENT_ID_VARIABLE, "not set");
        if let Some((harness, found_by)) = self.harness_from_signals() {
            return Ok(self.agent(harness, found_by));
        }
        if self.caller.signals.var(EXPORT_VARIABLE).is_some_and(|v| v != "0") {
            let known = |process: Process| harness::identify(&process, self.processes);
            let harness = self.ancestors().find_map(known);
            if let Some(harness) = harness {
                self.step(EXPORT_VARIABLE, format!("set, and {} is among the ancestors", harness.name));
                return Ok(self.agent(harness, FoundBy::Ancestry));
            }
            self.step(EXPORT_VARIABLE, "set, but no harness is among the ancestors");
        } else {
            self.step(EXPORT_VARIABLE, "not set: a harness among the ancestors does not count by itself");
        }
        Ok(self.person())
    }

    fn explain_lineage(&mut self) {
        let chain: Vec<String> = self.lineage().map(|p| format!("{} ({})", p.name, p.pid)).collect();
        match self.caller.pid {
            None => self.step("process", "the kernel shows no pid: the caller is in another pid namespace"),
            Some(pid) if chain.is_empty() => self.step("process", format!("pid {pid} cannot be looked up")),
            Some(_) => self.step("process", chain.join(" < ")),
        }
    }

    /// The harness that the signals name. The name of the MCP client decides first. Where variables of several harnesses
    /// are set, one harness was started inside another, and the caller's is the nearest ancestor.
    fn harness_from_signals(&mut self) -> Option<(&'static Harness, FoundBy)> {
        let signals = self.caller.signals;
        let client = signals.client_info.as_deref();
        if let Some(harness) = client.and_then(tt_harness::by_mcp_client) {
            self.step("client_info", format!("{:?} is {}", client.unwrap_or_default(), harness.name));
            let found_by = if find_marker(harness, signals).is_some() { FoundBy::Env } else { FoundBy::ClientInfo };
            return Some((harness, found_by));
        }
        // A session id without the name of an MCP client comes from a hook. A hook inherits the environment of its harness,
        // which may have been started from the shell of another harness, so the nearest ancestor decides.
        let all: Vec<&Harness> = tt_harness::in_detection_order().collect();
        let known = |process: Process| self.identify_among(&all, &process);
        let hook = signals.session_id.as_ref().and_then(|_| self.ancestors().find_map(known));
        if let Some(harness) = hook {
            self.step("hook", format!("a session came with the call, and {} is the nearest above", harness.name));
            return Some((harness, FoundBy::Ancestry));
        }
        let named: Vec<&Harness> = all.iter().copied().filter(|h| self.shown_by(h).is_some()).collect();
        let is_named = |process: Process| self.identify_among(&named, &process);
        let nearest = if named.len() > 1 { self.ancestors().find_map(is_named) } else { None };
        match nearest.or(named.first().copied()) {
            Some(harness) => {
                let variable = self.shown_by(harness).unwrap_or_default();
                let others = if named.len() > 1 { "; others are set too, but it is the nearest" } else { "" };
                self.step("environment", format!("{variable} says {}{others}", harness.name));
                Some((harness, FoundBy::Env))
            }
            None => {
                self.step("environment", "no variable of a harness is set");
                None
            }
        }
    }

    /// The variable that shows a harness: one of its markers, or one that everything below it inherits if the harness is
    /// above the caller.
    fn shown_by(&self, harness: &'static Harness) -> Option<&'static str> {
        let signals = self.caller.signals;
        let inherited = || harness.variables.inherited.iter().copied().find(|name| signals.var(name).is_some());
        let is_above = || self.ancestors().any(|process| self.is(harness, &process));
        find_marker(harness, signals).or_else(|| inherited().filter(|_| is_above()))
    }

    fn agent(&mut self, harness: &'static Harness, found_by: FoundBy) -> Identity {
        let session_id = session_id(harness, self.caller.signals).map(str::to_owned);
        let (key, anchor) = match &session_id {
            Some(session) => {
                self.step("session", format!("session id {session}"));
                (session.clone(), self.session_anchor(harness))
            }
            None => self.key_without_session(harness),
        };
        // A process is one in its pid namespace only; a session is the same in all namespaces of the machine.
        let host = if session_id.is_some() { self.processes.machine_id() } else { self.processes.host_id() };
        let anchor = match self.server(harness) {
            Some(server) => {
                self.step(
                    "server",
                    format!("process {} runs several sessions: it speaks for none of them", server.pid),
                );
                None
            }
            None => anchor,
        };
        self.explain_anchor(anchor.as_ref());
        Identity {
            agent_id: agent_id(harness.name, &host, &key, self.caller.user),
            display_name: harness.name.to_owned(),
            harness: Some(harness.name.to_owned()),
            session_id,
            found_by,
            anchor,
            user: self.caller.user.to_owned(),
        }
    }

    /// The process of the harness nearest above the caller, if it runs several sessions.
    fn server(&self, harness: &'static Harness) -> Option<Process> {
        let server = harness.server.as_ref()?;
        let nearest = self.ancestors().find(|process| self.is(harness, process))?;
        // A launcher may come first in the list, as an interpreter and its script do.
        let is_server = self.processes.arguments(&nearest).iter().skip(1).take(2).any(|word| word == server.argument);
        is_server.then_some(nearest)
    }

    /// The key and anchor of a caller without a session id: the outermost process of the harness, so that a call through
    /// three shells gets the same id as a direct one; else the terminal; else the parent process.
    fn key_without_session(&mut self, harness: &'static Harness) -> (String, Option<Anchor>) {
        let signals = self.caller.signals;
        let outermost = self.ancestors().filter(|p| self.is(harness, p)).last();
        if let Some(process) = &outermost {
            self.step("session", format!("no session id; the outermost {} is pid {}", harness.name, process.pid));
            return (process_key(process), Some(self.processes.anchor(process)));
        }
        if let Some((name, value)) = TERMINAL_VARIABLES.iter().find_map(|v| Some((v, signals.var(v)?))) {
            self.step("session", format!("no session id and no {} above; terminal {name}={value}", harness.name));
            return (format!("{name}={value}"), None);
        }
        let parent = self.ancestors().next();
        if let Some(parent) = &parent {
            self.step("session", format!("no session id, process or terminal; the parent is pid {}", parent.pid));
            return (process_key(parent), Some(self.processes.anchor(parent)));
        }
        self.step("session", "no session id, process or terminal: one id for this harness and user");
        (String::new(), None)
    }

    /// The outermost of the nearest consecutive ancestors that are this harness. A launcher and the process it starts are
    /// one session; a session started from the shell of another session is separate.
    fn session_anchor(&self, harness: &'static Harness) -> Option<Anchor> {
        let is = |p: &Process| self.is(harness, p);
        // If the harness names its process, the shells below it need not be identified.
        let mut above = self.ancestors();
        let named = above.find(|p| self.is_named(harness, p));
        let process = match named {
            Some(named) => above.take_while(is).last().unwrap_or(named),
            None => self.ancestors().skip_while(|p| !is(p)).take_while(is).last()?,
        };
        Some(self.processes.anchor(&process))
    }

    /// Which of these harnesses an ancestor is: the one that names its pid, else the one that its name or script shows.
    fn identify_among(&self, harnesses: &[&'static Harness], process: &Process) -> Option<&'static Harness> {
        let named = harnesses.iter().copied().find(|harness| self.is_named(harness, process));
        let identify = || harness::identify(process, self.processes).filter(|harness| harnesses.contains(harness));
        named.or_else(identify)
    }

    /// Whether an ancestor is the process that a harness names as its own (`CLAUDE_PID`). A variable is no proof: it is
    /// believed about ancestors only, and only from a caller whose pids mean what ours do. In a sandbox the harness may be
    /// pid 2, and our pid 2 somebody else.
    fn is_named(&self, harness: &Harness, ancestor: &Process) -> bool {
        let same_pids = || self.caller.pid.is_some_and(|pid| self.processes.shares_namespace(pid));
        harness::named_pid(harness, self.caller.signals) == Some(ancestor.pid) && *self.same_pids.get_or_init(same_pids)
    }

    fn is(&self, harness: &'static Harness, process: &Process) -> bool {
        self.identify_among(&[harness], process).is_some()
    }

    /// The identity of a caller whose agent id is set by [`AGENT_ID_VARIABLE`].
    fn overridden(&mut self, agent_id: AgentId) -> Identity {
        let harness = self.harness_from_signals().map(|(harness, _)| harness);
        let anchor = match harness {
            Some(harness) if self.server(harness).is_some() => None,
            Some(harness) => self.session_anchor(harness),
            None => self.session_leader(),
        };
        self.explain_anchor(anchor.as_ref());
        let name = agent_id.as_str().split(':').next().unwrap_or_default();
        Identity {
            display_name: name.to_owned(),
            agent_id,
            harness: harness.map(|h| h.name.to_owned()),
            session_id: harness.and_then(|h| session_id(h, self.caller.signals)).map(str::to_owned),
            found_by: FoundBy::Override,
            anchor,
            user: self.caller.user.to_owned(),
        }
    }

    fn person(&mut self) -> Identity {
        self.step("person", format!("no harness: the user {}", self.caller.user));
        let anchor = self.session_leader();
        self.explain_anchor(anchor.as_ref());
        Identity {
            agent_id: AgentId::trusted(format!("human:{}", self.caller.user)),
            display_name: self.caller.user.to_owned(),
            harness: None,
            session_id: None,
            found_by: FoundBy::User,
            anchor,
            user: self.caller.user.to_owned(),
        }
    }

    /// The shell that leads the caller's process session; none if the caller leads it itself.
    fn session_leader(&self) -> Option<Anchor> {
        let caller = self.lineage().next()?;
        if caller.session == caller.pid {
            return None;
        }
        self.processes.get(caller.session).ok().map(|leader| self.processes.anchor(&leader))
    }

    fn explain_anchor(&mut self, anchor: Option<&Anchor>) {
        match anchor {
            Some(anchor) => self.step("anchor", format!("lives as long as process {}", anchor.pid)),
            None => self.step("anchor", "no process to watch: only time-outs tell when this member is gone"),
        }
    }
}

/// The id of the member that a session is, or a process where no session is known.
pub fn agent_id(harness: &str, host_id: &str, key: &str, user: &str) -> AgentId {
    let hash = short_hash([harness, host_id, key, user].map(str::as_bytes));
    AgentId::trusted(format!("{harness}:{hash}"))
}

fn process_key(process: &Process) -> String {
    format!("{}@{}", process.pid, process.started_at)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A process table held in memory, and whether the callers are in another pid namespace.
    #[derive(Default, Clone)]
    pub(super) struct Table(pub(super) BTreeMap<u32, (Process, Vec<String>)>, pub(super) bool);

    impl Processes for Table {
        fn get(&self, pid: u32) -> std::io::Result<Process> {
            let found = self.0.get(&pid).map(|(process, _)| process.clone());
            found.ok_or_else(|| std::io::ErrorKind::NotFound.into())
        }

        fn shares_namespace(&self, _pid: u32) -> bool {
            !self.1
        }

        fn arguments(&self, process: &Process) -> Vec<String> {
            self.0.get(&process.pid).map(|(_, arguments)| arguments.clone()).unwrap_or_default()
        }

        fn host_id(&self) -> String {
            "host".into()
        }

        fn open(&self, _pid: u32) -> std::io::Result<crate::liveness::Exit> {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }

    /// A chain of processes, outermost first, with pids 100, 101, …; the last is the caller.
    pub(super) fn chain(names: &[&str]) -> (Table, u32) {
        let mut table = Table::default();
        for (i, name) in names.iter().enumerate() {
            let pid = 100 + i as u32;
            let arguments: Vec<String> = name.split(' ').map(str::to_owned).collect();
            let parent = if i == 0 { 0 } else { pid - 1 };
            let short = arguments[0].rsplit('/').next().unwrap_or_default().to_owned();
            let process = Process {
                pid,
                parent,
                session: 100,
                has_terminal: false,
                started_at: format!("t{pid}"),
                name: short,
                arguments_at: Some((0, u64::from(pid))),
            };
            table.0.insert(pid, (process, arguments));
        }
        (table, 99 + names.len() as u32)
    }

    pub(super) fn signals(pairs: &[(&str, &str)]) -> Signals {
        let env = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Signals { env, ..Signals::default() }
    }

    fn who(names: &[&str], signals: &Signals) -> Identity {
        let (table, pid) = chain(names);
        let caller = Caller { pid: Some(pid), user: "alice", signals };
        let identity = derive(&caller, &table).unwrap();
        // What is remembered changes nothing.
        let memory = Memory::default();
        for _ in 0..2 {
            assert_eq!(derive_and_remember(&caller, &table, &memory).unwrap(), identity);
        }
        identity
    }

    #[test]
    fn the_override_is_taken_to_the_letter_or_refused() {
        let identity =
            who(&["bash", "tt"], &signals(&[("TT_HARNESS_AGENT_ID", "codex:Review-1"), ("CLAUDECODE", "1")]));
        assert_eq!((identity.agent_id.as_str(), identity.found_by), ("codex:Review-1", FoundBy::Override));
        let (table, pid) = chain(&["bash", "tt"]);
        let bad = signals(&[("TT_HARNESS_AGENT_ID", "two words")]);
        assert!(derive(&Caller { pid: Some(pid), user: "alice", signals: &bad }, &table).is_err());
    }

    #[test]
    fn one_session_is_one_member_however_deep_the_call() {
        let env = signals(&[("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1")]);
        let near = who(&["bash", "claude", "tt"], &env);
        let far = who(&["bash", "claude", "zsh", "bash", "sh", "tt"], &env);
        assert_eq!(near, far);
        assert_eq!(near.anchor.unwrap().pid, 101);
        let other = who(&["bash", "claude", "tt"], &signals(&[("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s2")]));
        assert_ne!(other.agent_id, far.agent_id);
    }

    #[test]
    fn without_a_session_the_outermost_process_of_the_harness_counts() {
        let env = signals(&[("GEMINI_CLI", "1")]);
        let straight = who(&["bash", "node /usr/bin/gemini", "node /usr/bin/gemini", "tt"], &env);
        let deep = who(&["bash", "node /usr/bin/gemini", "node /usr/bin/gemini", "bash", "sh", "tt"], &env);
        assert_eq!(straight, deep);
        assert_eq!(deep.anchor.unwrap().pid, 101);
    }

    #[test]
    fn a_gemini_hook_that_sees_the_session_is_the_member_its_shell_tool_is() {
        let shell = who(&["bash", "node /usr/bin/gemini", "bash", "tt"], &signals(&[("GEMINI_CLI", "1")]));
        let hook = who(
            &["bash", "node /usr/bin/gemini", "sh", "tt"],
            &signals(&[("GEMINI_SESSION_ID", "g1"), ("CLAUDE_PROJECT_DIR", "/x")]),
        );
        assert_eq!(shell.agent_id, hook.agent_id);
    }

    #[test]
    fn of_two_nested_harnesses_the_nearer_one_calls() {
        let env = signals(&[("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1"), ("CODEX_THREAD_ID", "t1")]);
        assert_eq!(who(&["bash", "claude", "bash", "codex", "tt"], &env).harness.as_deref(), Some("codex"));
        assert_eq!(who(&["bash", "codex", "bash", "claude", "tt"], &env).harness.as_deref(), Some("claude"));
    }

    #[test]
    fn without_process_evidence_the_variables_that_reach_other_harnesses_count_least() {
        for (env, expected) in [
            (&[("CLAUDECODE", "1"), ("CODEX_THREAD_ID", "t1")], "codex"),
            (&[("CLAUDECODE", "1"), ("OPENCODE", "1")], "opencode"),
            (&[("GEMINI_CLI", "1"), ("CODEX_THREAD_ID", "t1")], "codex"),
        ] {
            assert_eq!(who(&["bash", "tt"], &signals(env)).harness.as_deref(), Some(expected), "{env:?}");
        }
    }

    #[test]
    fn a_session_inside_another_of_the_same_harness_has_its_own_anchor() {
        let env = signals(&[("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "inner")]);
        assert_eq!(who(&["claude", "bash", "claude", "bash", "tt"], &env).anchor.unwrap().pid, 102);
        let env = signals(&[("CODEX_THREAD_ID", "t1")]);
        let npm = who(&["bash", "node /x/@openai/codex/bin/codex.js", "codex", "bash", "tt"], &env);
        assert_eq!(npm.anchor.unwrap().pid, 101, "the launcher outlives what it started");
    }

    #[test]
    fn the_terminal_and_then_the_parent_stand_in_for_a_session() {
        let pane = |pane: &str| who(&["bash", "tt"], &signals(&[("OPENCODE", "1"), ("TMUX_PANE", pane)]));
        assert_eq!(pane("%1").agent_id, pane("%1").agent_id);
        assert_ne!(pane("%1").agent_id, pane("%2").agent_id);
        assert_eq!(pane("%1").anchor, None);
        let parent = who(&["bash", "tt"], &signals(&[("OPENCODE", "1")]));
        assert_eq!(parent.anchor.unwrap().pid, 100);
    }

    #[test]
    fn what_npm_leaves_in_the_environment_of_codex_counts_only_below_a_codex() {
        let npm = [("CODEX_MANAGED_BY_NPM", "1")];
        let shell = who(&["bash", "node /x/@openai/codex/bin/codex.js", "codex", "bash", "tt"], &signals(&npm));
        assert_eq!((shell.harness.as_deref(), shell.found_by), (Some("codex"), FoundBy::Env));
        assert_eq!(shell.anchor.unwrap().pid, 101, "the process that is above it");
        assert_eq!(who(&["bash", "tt"], &signals(&npm)).agent_id.as_str(), "human:alice", "Codex has ended");
        let nested = signals(&[npm[0], ("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1")]);
        assert_eq!(who(&["codex", "bash", "claude", "bash", "tt"], &nested).harness.as_deref(), Some("claude"));
    }

    #[test]
    fn a_tab_of_cmux_names_its_terminal() {
        let tab = |tab: &str| who(&["bash", "tt"], &signals(&[("OPENCODE", "1"), ("CMUX_TAB_ID", tab)]));
        assert_eq!(tab("1").agent_id, tab("1").agent_id);
        assert_ne!(tab("1").agent_id, tab("2").agent_id);
    }

    #[test]
    fn the_harness_may_name_its_own_process() {
        let env = signals(&[("OPENCODE", "1"), ("OPENCODE_PID", "101")]);
        assert_eq!(who(&["bash", "renamed", "bash", "tt"], &env).anchor.unwrap().pid, 101);
    }

    #[test]
    fn a_pid_in_a_variable_is_believed_only_of_an_ancestor_and_in_the_same_namespace() {
        let (mut table, pid) = chain(&["init", "bash", "renamed", "bash", "tt"]);
        let stranger = Process { pid: 7, parent: 100, ..table.0[&101].0.clone() };
        table.0.insert(7, (stranger, vec!["bash".into()]));
        let anchor = |table: &Table, named: &str| {
            let env = signals(&[("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1"), ("CLAUDE_PID", named)]);
            derive(&Caller { pid: Some(pid), user: "alice", signals: &env }, table).unwrap().anchor
        };
        assert_eq!(anchor(&table, "102").unwrap().pid, 102);
        assert_eq!(anchor(&table, "7"), None, "it lives, but it is above nobody here");
        assert_eq!(anchor(&table, &pid.to_string()), None, "the caller itself");
        table.1 = true;
        assert_eq!(anchor(&table, "102"), None, "the caller's 102 is another process");
        assert_eq!(anchor(&table, "100"), None);
    }

    #[test]
    fn ancestry_alone_counts_only_when_exported() {
        assert_eq!(who(&["bash", "codex", "tt"], &signals(&[])).agent_id.as_str(), "human:alice");
        let exported = who(&["bash", "codex", "tt"], &signals(&[("TT_HARNESS_EXPORT", "1")]));
        assert_eq!((exported.harness.as_deref(), exported.found_by), (Some("codex"), FoundBy::Ancestry));
        let nobody = who(&["bash", "tt"], &signals(&[("TT_HARNESS_EXPORT", "1")]));
        assert_eq!(nobody.agent_id.as_str(), "human:alice");
    }

    #[test]
    fn an_mcp_client_is_known_by_its_name_and_its_session_by_the_call() {
        let mut signals = signals(&[]);
        signals.client_info = Some("codex-mcp-client".into());
        signals.session_id = Some("t1".into());
        let mcp = who(&["bash", "codex", "tt"], &signals);
        assert_eq!(mcp.found_by, FoundBy::ClientInfo);
        let shell = who(&["bash", "codex", "bash", "tt"], &self::signals(&[("CODEX_THREAD_ID", "t1")]));
        assert_eq!(mcp.agent_id, shell.agent_id);
    }

    #[test]
    fn a_hook_is_told_its_session_and_is_the_same_member() {
        let hook = |names: &[&str], env: &[(&str, &str)], session: &str| {
            who(names, &Signals { session_id: Some(session.into()), ..signals(env) })
        };
        let shell = who(&["bash", "codex", "bash", "tt"], &signals(&[("CODEX_THREAD_ID", "t1")]));
        assert_eq!(hook(&["bash", "codex", "sh", "tt"], &[], "t1").agent_id, shell.agent_id);
        let inside = [("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1")];
        assert_eq!(hook(&["claude", "bash", "codex", "sh", "tt"], &inside, "t1").agent_id, shell.agent_id);
        let claude = who(&["claude", "bash", "tt"], &signals(&inside));
        assert_eq!(hook(&["claude", "sh", "tt"], &inside, "s1").agent_id, claude.agent_id);
        let gemini = who(&["node /usr/bin/gemini", "bash", "tt"], &signals(&[("GEMINI_CLI", "1")]));
        assert_eq!(
            hook(&["node /usr/bin/gemini", "sh", "tt"], &[("GEMINI_SESSION_ID", "g")], "g").agent_id,
            gemini.agent_id
        );
        assert_eq!(hook(&["bash", "tt"], &[], "x").agent_id.as_str(), "human:alice", "no harness, no agent");
    }

    #[test]
    fn a_person_is_anchored_to_the_shell_that_leads_the_session() {
        let person = who(&["bash", "make", "tt"], &signals(&[]));
        assert_eq!((person.agent_id.as_str(), person.found_by), ("human:alice", FoundBy::User));
        assert_eq!(person.anchor.unwrap().pid, 100);
        assert_eq!(who(&["tt"], &signals(&[])).anchor, None, "a caller that leads its own session");
    }

    #[test]
    fn without_process_evidence_the_session_still_names_the_member() {
        let env = signals(&[("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1")]);
        let table = Table::default();
        for pid in [None, Some(4711)] {
            let identity = derive(&Caller { pid, user: "alice", signals: &env }, &table).unwrap();
            assert_eq!(identity.anchor, None);
            assert_eq!(identity.agent_id, who(&["claude", "tt"], &env).agent_id);
        }
    }
}
