//! The harnesses we know, and how each shows itself: variables, MCP client name, process name.
//!
//! Every fact here may go stale with a harness's next release. A stale fact costs a nicer name, never a call.

use tt_proto::hello::Signals;

use crate::liveness::{Process, Processes};

/// A program that runs an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harness {
    Claude,
    Codex,
    Gemini,
    OpenCode,
}

/// Runs scripts, so that the script's name counts and not its own.
pub(super) const INTERPRETERS: &[&str] =
    &["node", "nodejs", "bun", "deno", "python", "python3", "sh", "bash", "dash", "zsh"];

impl Harness {
    /// Claude comes last: it exports its variables to everything below it, another harness included.
    pub const ALL: [Harness; 4] = [Harness::Codex, Harness::Gemini, Harness::OpenCode, Harness::Claude];

    /// The word before the colon of an agent id, and the default display name.
    pub fn name(self) -> &'static str {
        match self {
            Harness::Claude => "claude",
            Harness::Codex => "codex",
            Harness::Gemini => "gemini",
            Harness::OpenCode => "opencode",
        }
    }

    /// The variables of which any one says that this harness is above us.
    fn variables(self) -> &'static [&'static str] {
        match self {
            Harness::Claude => &["CLAUDECODE"],
            Harness::Codex => &["CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_CI"],
            Harness::Gemini => &["GEMINI_CLI", "GEMINI_SESSION_ID"],
            Harness::OpenCode => &["OPENCODE"],
        }
    }

    /// The first variable of this harness that is set.
    pub fn signal(self, signals: &Signals) -> Option<&'static str> {
        self.variables().iter().copied().find(|v| signals.var(v).is_some())
    }

    /// The harness's session, where every surface of that harness can see it. Gemini CLI shows its own to hooks only,
    /// so that keying on it would make one session two members: there the process decides.
    pub fn session_id(self, signals: &Signals) -> Option<&str> {
        let variables: &[&str] = match self {
            Harness::Claude => &["CLAUDE_CODE_SESSION_ID"],
            Harness::Codex => &["CODEX_THREAD_ID", "CODEX_SESSION_ID"],
            Harness::Gemini | Harness::OpenCode => return None,
        };
        signals.session_id.as_deref().or_else(|| variables.iter().find_map(|v| signals.var(v)))
    }

    /// The harness's own word on its pid.
    pub(super) fn pid(self, signals: &Signals) -> Option<u32> {
        let variable = match self {
            Harness::Claude => "CLAUDE_PID",
            Harness::OpenCode => "OPENCODE_PID",
            Harness::Codex | Harness::Gemini => return None,
        };
        signals.var(variable)?.parse().ok()
    }

    /// The harness behind an MCP `clientInfo.name`.
    pub fn of_client(client_info: &str) -> Option<Self> {
        let name = client_info.to_ascii_lowercase();
        Self::ALL.into_iter().find(|h| name.starts_with(h.name()))
    }

    /// The one of these harnesses that a process is: because the harness said so, by its name, or by the script it runs.
    pub fn among(
        harnesses: &[Harness],
        process: &Process,
        signals: &Signals,
        processes: &dyn Processes,
    ) -> Option<Harness> {
        let named = harnesses.iter().find(|harness| harness.pid(signals) == Some(process.pid)).copied();
        named.or_else(|| Self::of_process(process, processes).filter(|harness| harnesses.contains(harness)))
    }

    /// The harness a process is, by what the kernel shows of it. Its arguments are read only where its name does not tell.
    pub fn of_process(process: &Process, processes: &dyn Processes) -> Option<Self> {
        if let Some(harness) = Self::of_program(&process.name) {
            return Some(harness);
        }
        let arguments = processes.arguments(process);
        let program = arguments.first().map_or("", |a| file_name(a));
        if let Some(harness) = Self::of_program(program) {
            return Some(harness);
        }
        if !INTERPRETERS.contains(&program) && !INTERPRETERS.contains(&process.name.as_str()) {
            return None;
        }
        let script = arguments.iter().skip(1).find(|a| !a.starts_with('-'))?;
        // `sh -c text`, `bash -lc text` and `node -e text` run no file; what looks like one is a command line.
        let runs_text = |flag: &String| !flag.starts_with("--") && flag.contains(['c', 'e']);
        if arguments.iter().skip(1).take_while(|a| *a != script).any(runs_text) {
            return None;
        }
        Self::of_program(file_name(script)).or_else(|| Self::of_package(script))
    }

    fn of_program(file: &str) -> Option<Self> {
        let stem =
            file.trim_start_matches('.').trim_end_matches(".js").trim_end_matches(".mjs").trim_end_matches(".exe");
        Self::ALL.into_iter().find(|h| h.name() == stem)
    }

    /// `…/node_modules/@google/gemini-cli/dist/index.js` and its like.
    fn of_package(script: &str) -> Option<Self> {
        let packages = [
            ("@anthropic-ai/claude-code", Harness::Claude),
            ("@openai/codex", Harness::Codex),
            ("@google/gemini-cli", Harness::Gemini),
            ("opencode-ai", Harness::OpenCode),
        ];
        packages.into_iter().find(|(package, _)| script.contains(&format!("/{package}/"))).map(|(_, h)| h)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every process was started with these.
    struct StartedWith<'a>(&'a [&'a str]);

    impl Processes for StartedWith<'_> {
        fn get(&self, _pid: u32) -> Option<Process> {
            None
        }

        fn arguments(&self, _process: &Process) -> Vec<String> {
            self.0.iter().map(|a| (*a).to_owned()).collect()
        }

        fn host_id(&self) -> String {
            String::new()
        }

        fn open(&self, _pid: u32) -> std::io::Result<crate::liveness::Exit> {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }

    #[test]
    fn processes_are_recognised_by_name_script_or_package() {
        let cases: &[(&str, &[&str], Option<Harness>)] = &[
            ("claude", &["claude", "-p", "hello"], Some(Harness::Claude)),
            ("codex", &["/opt/x/codex"], Some(Harness::Codex)),
            ("node", &["node", "/usr/lib/node_modules/@openai/codex/bin/codex.js"], Some(Harness::Codex)),
            ("node", &["node", "--no-warnings", "/x/@google/gemini-cli/dist/index.js"], Some(Harness::Gemini)),
            ("node", &["/usr/bin/node", "/usr/bin/gemini"], Some(Harness::Gemini)),
            ("MainThread", &["node", "/usr/bin/gemini"], Some(Harness::Gemini)),
            (".opencode", &["/x/.opencode"], Some(Harness::OpenCode)),
            ("sh", &["/bin/sh", "/home/u/bin/claude"], Some(Harness::Claude)),
            ("bash", &["bash", "-c", "claude -p x"], None),
            ("bash", &["bash", "-lc", "codex"], None),
            ("node", &["node", "-e", "codex"], None),
            ("vim", &["vim", "claude"], None),
            ("claude-log", &["claude-log"], None),
            ("node", &["node", "server.js"], None),
            ("node", &["node"], None),
        ];
        for (name, arguments, expected) in cases {
            let process = Process {
                pid: 10,
                parent: 1,
                session: 1,
                started_at: "1".into(),
                name: (*name).into(),
                arguments_at: None,
            };
            let found = Harness::of_process(&process, &StartedWith(arguments));
            assert_eq!(found, *expected, "{name} {arguments:?}");
        }
    }

    #[test]
    fn mcp_clients_are_recognised() {
        for (client, expected) in [
            ("claude-code", Some(Harness::Claude)),
            ("codex-mcp-client", Some(Harness::Codex)),
            ("gemini-cli-mcp-client", Some(Harness::Gemini)),
            ("opencode", Some(Harness::OpenCode)),
            ("mcp-inspector", None),
        ] {
            assert_eq!(Harness::of_client(client), expected);
        }
    }
}
