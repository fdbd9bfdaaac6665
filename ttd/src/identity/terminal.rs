//! Whether a message comes from a person at a terminal, from what the kernel shows of the sender's processes.

use super::harness;
use crate::liveness::{MAX_ANCESTORS, Process, Processes};

/// Whether a process has a controlling terminal and no harness among itself and the processes above it. No variable counts.
/// It is evidence, not proof: an agent can open a terminal of its own, below no harness. May block, because it reads the
/// arguments of processes.
pub fn is_at_terminal(pid: u32, processes: &dyn Processes) -> bool {
    let lineage: Vec<Process> = processes.lineage(pid).collect();
    let has_terminal = lineage.first().is_some_and(|caller| caller.has_terminal);
    // A lineage that breaks off hides what is above. macOS shows nothing of `login`, which is root's.
    let is_whole = lineage.len() < MAX_ANCESTORS
        && (cfg!(target_os = "macos") || lineage.last().is_some_and(|topmost| topmost.parent == 0));
    has_terminal && is_whole && !lineage.iter().any(|process| harness::identify(process, processes).is_some())
}

#[cfg(test)]
mod tests {
    use super::super::tests::chain;
    use super::*;

    fn at_terminal(names: &[&str], terminal: bool) -> bool {
        let (mut table, pid) = chain(names);
        if let Some((process, _)) = table.0.get_mut(&pid) {
            process.has_terminal = terminal;
        }
        is_at_terminal(pid, &table)
    }

    #[test]
    fn a_person_has_a_terminal_and_no_harness_above() {
        assert!(at_terminal(&["systemd", "tmux", "bash", "tt"], true));
        assert!(!at_terminal(&["systemd", "bash", "tt"], false), "a job of cron");
        for harness in ["claude", "codex", "node /usr/bin/gemini", "/x/.opencode"] {
            assert!(!at_terminal(&["systemd", "bash", harness, "bash", "script", "bash", "tt"], true), "{harness}");
        }
        assert!(!at_terminal(&["claude"], true), "the harness itself");
    }

    #[test]
    fn a_lineage_that_breaks_off_shows_nothing() {
        let (mut table, pid) = chain(&["claude", "su", "bash", "tt"]);
        table.0.remove(&100);
        assert_eq!(is_at_terminal(pid, &table), cfg!(target_os = "macos"));
        let (table, _) = chain(&["bash"]);
        assert!(!is_at_terminal(4711, &table), "no such process");
    }
}
