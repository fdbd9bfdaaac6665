//! Processes that play a harness: a program of the right name, real shells below it, `tt` at the bottom.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::Home;
use crate::run::{Finished, Running};

/// Waits for the word to go, runs what it is told, and reports its own pid and how that ended.
const PLAYER: &str = "#!/bin/sh\nread -r go\n\"$@\"\necho \"played $$ $?\"\n";

/// One more shell between the harness and `tt`. The second command keeps it from giving its place to the first.
const SHELLS: [(&str, &str); 3] = [
    ("first", "#!/bin/sh\n\"$@\"\nexit $?\n"),
    ("second", "#!/bin/bash\n\"$@\"\nexit $?\n"),
    ("third", "#!/bin/sh\nsh -c '\"$@\"; exit $?' sh \"$@\"\nexit $?\n"),
];

/// A harness of a given name in a given home.
#[derive(Debug)]
pub struct Harness<'a> {
    home: &'a Home,
    name: String,
    env: Vec<(String, String)>,
}

/// What came of a call made from a harness.
#[derive(Debug)]
pub struct Played {
    /// The pid the harness had.
    pub pid: u32,
    /// What `tt` wrote, and its exit code.
    pub tt: Finished,
}

impl<'a> Harness<'a> {
    pub fn new(home: &'a Home, name: &str) -> Self {
        Self { home, name: name.to_owned(), env: Vec::new() }
    }

    /// A variable the harness gives its children.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs `tt` as a child of the harness.
    #[track_caller]
    pub fn straight(&self, args: &[&str]) -> Played {
        self.play(&[], args)
    }

    /// Runs `tt` below three nested shells.
    #[track_caller]
    pub fn through_shells(&self, args: &[&str]) -> Played {
        let shells: Vec<String> = SHELLS
            .iter()
            .map(|(name, text)| self.home.script(&format!("shells/{name}"), text).display().to_string())
            .collect();
        self.play(&shells, args)
    }

    /// Runs a script as a child of the harness, with the path of `tt` as its argument.
    #[track_caller]
    pub fn script(&self, script: &Path) -> Played {
        self.play(&[script.display().to_string()], &[])
    }

    /// Runs `tt` below the shells. The harness is an orphan before it starts anything, so that nothing above the test
    /// (a real harness that runs it, say) is among its ancestors.
    #[track_caller]
    fn play(&self, shells: &[String], args: &[&str]) -> Played {
        let player = self.home.script(&format!("harness/{}", self.name), PLAYER);
        let mut command = self.home.command("/bin/sh");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.arg("-c").arg("exec 3<&0; \"$@\" <&3 3<&- & exec 3<&-").arg("sh").arg(player);
        command.args(shells).arg(self.home.tt_path()).args(args);
        let mut running = Running::spawn(command.stdin(Stdio::piped()));
        let mut go = running.stdin();
        assert!(running.ended_within(crate::LIMIT), "the shell that starts the harness did not end");
        let told = go.as_mut().map(|pipe| pipe.write_all(b"go\n"));
        assert!(matches!(told, Some(Ok(()))), "the harness did not start: {told:?}");
        let finished = running.finish();
        let Some((stdout, report)) = finished.stdout.trim_end().rsplit_once("played ") else {
            panic!("the harness did not report: {finished:?}");
        };
        let numbers: Vec<u32> = report.split(' ').filter_map(|number| number.parse().ok()).collect();
        let [pid, code] = numbers[..] else { panic!("the harness reported {report:?}") };
        let code = i32::try_from(code).ok();
        Played { pid, tt: Finished { code, stdout: stdout.to_owned(), stderr: finished.stderr } }
    }
}
