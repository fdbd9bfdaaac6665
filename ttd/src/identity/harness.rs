//! Recognises a harness by the variables it sets, by the pid it names and by its processes.

use tt_harness::{Harness, Session};
use tt_proto::hello::Signals;

use crate::liveness::{Process, Processes};

/// Programs that run scripts: the script says what the process is, not the program.
pub(super) const INTERPRETERS: &[&str] =
    &["node", "nodejs", "bun", "deno", "python", "python3", "sh", "bash", "dash", "zsh"];

/// The first variable that is set of those that show this harness.
pub(super) fn find_marker(harness: &Harness, signals: &Signals) -> Option<&'static str> {
    harness.variables.markers.iter().copied().find(|name| signals.var(name).is_some())
}

/// The id of the caller's session, if the harness distinguishes its sessions by their ids.
pub(super) fn session_id<'a>(harness: &Harness, signals: &'a Signals) -> Option<&'a str> {
    match harness.session {
        Session::Id { variables } => {
            signals.session_id.as_deref().or_else(|| variables.iter().find_map(|name| signals.var(name)))
        }
        Session::Process => None,
    }
}

/// The pid that the harness names as its own, in the caller's pid namespace.
pub(super) fn named_pid(harness: &Harness, signals: &Signals) -> Option<u32> {
    signals.var(harness.variables.pid?)?.parse().ok()
}

/// Which harness a process is, by what the kernel shows of it. Reads its arguments only if its name does not tell.
pub fn identify(process: &Process, processes: &dyn Processes) -> Option<&'static Harness> {
    if let Some(harness) = by_file_name(&process.name) {
        return Some(harness);
    }
    let arguments = processes.arguments(process);
    let program = arguments.first().map_or("", |argument| file_name(argument));
    if let Some(harness) = by_file_name(program) {
        return Some(harness);
    }
    if !INTERPRETERS.contains(&program) && !INTERPRETERS.contains(&process.name.as_str()) {
        return None;
    }
    let script = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'))?;
    // `sh -c text`, `bash -lc text` and `node -e text` run no file: what follows is source text.
    let runs_text = |flag: &String| !flag.starts_with("--") && flag.contains(['c', 'e']);
    if arguments.iter().skip(1).take_while(|argument| *argument != script).any(runs_text) {
        return None;
    }
    by_file_name(file_name(script)).or_else(|| tt_harness::by_script(script))
}

/// The harness whose executable or start script has this file name.
fn by_file_name(file: &str) -> Option<&'static Harness> {
    let stem = file.trim_start_matches('.').trim_end_matches(".js").trim_end_matches(".mjs").trim_end_matches(".exe");
    tt_harness::by_program(stem)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process table in which every process has these arguments.
    struct WithArguments<'a>(&'a [&'a str]);

    impl Processes for WithArguments<'_> {
        fn get(&self, _pid: u32) -> std::io::Result<Process> {
            Err(std::io::ErrorKind::NotFound.into())
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
        let cases: &[(&str, &[&str], Option<&str>)] = &[
            ("claude", &["claude", "-p", "hello"], Some("claude")),
            ("codex", &["/opt/x/codex"], Some("codex")),
            ("node", &["node", "/usr/lib/node_modules/@openai/codex/bin/codex.js"], Some("codex")),
            ("node", &["node", "--no-warnings", "/x/@google/gemini-cli/dist/index.js"], Some("gemini")),
            ("node", &["/usr/bin/node", "/usr/bin/gemini"], Some("gemini")),
            ("MainThread", &["node", "/usr/bin/gemini"], Some("gemini")),
            (".opencode", &["/x/.opencode"], Some("opencode")),
            ("sh", &["/bin/sh", "/home/u/bin/claude"], Some("claude")),
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
                has_terminal: false,
                started_at: "1".into(),
                name: (*name).into(),
                arguments_at: None,
            };
            let found = identify(&process, &WithArguments(arguments));
            assert_eq!(found.map(|harness| harness.name), *expected, "{name} {arguments:?}");
        }
    }
}
