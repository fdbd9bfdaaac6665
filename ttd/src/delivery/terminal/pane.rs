//! The pane of tmux in which a process sits: found anew each time, by the terminal that the kernel names and the process that the
//! pane was started with. What the environment of a process says only leads to the server to ask.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tt_proto::hello::Anchor;

use super::tmux::{Pane, Tmux, TmuxError};
use crate::liveness::{ControllingTerminal, LookTimeout, Looks, Processes};

/// The variable in which tmux tells programs its socket: `<socket>,<pid>,<session>`.
pub const SERVER_VARIABLE: &str = "TMUX";

/// Why a process sits in no pane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPane {
    #[error("its process ended")]
    Ended,
    #[error("its process was not started in tmux")]
    NotInTmux,
    #[error("something else reads from its terminal")]
    InBackground,
    #[error("no pane has its terminal")]
    Elsewhere,
    #[error("{0}")]
    Tmux(#[from] TmuxError),
    #[error("{0}")]
    Look(#[from] LookTimeout),
}

/// A process in a pane.
#[derive(Debug, Clone)]
pub struct Seat {
    pub tmux: Tmux,
    pub pane: String,
    process: Anchor,
    terminal: ControllingTerminal,
}

/// What the kernel tells of a process.
#[derive(Debug)]
struct Found {
    terminal: ControllingTerminal,
    server: Option<OsString>,
    path: Option<OsString>,
    /// The process and its ancestors.
    lineage: Vec<u32>,
}

impl Seat {
    /// Finds the pane in which a process reads what is typed.
    pub async fn find(looks: &Looks, process: &Anchor) -> Result<Self, NoPane> {
        let wanted = process.clone();
        let found = looks.run(move |processes| look(processes, &wanted)).await?.ok_or(NoPane::Ended)?;
        let socket = found.server.as_ref().and_then(socket_of).ok_or(NoPane::NotInTmux)?;
        if !found.terminal.is_foreground {
            return Err(NoPane::InBackground);
        }
        let tmux = Tmux::at(socket, found.path.as_deref())?;
        let panes = tmux.panes().await?;
        let is_it =
            |pane: &&Pane| found.lineage.contains(&pane.pid) && device_of(&pane.tty) == Some(found.terminal.device);
        let mut matching = panes.iter().filter(is_it);
        match (matching.next(), matching.next()) {
            (Some(pane), None) => {
                Ok(Self { tmux, pane: pane.id.clone(), process: process.clone(), terminal: found.terminal })
            }
            _ => Err(NoPane::Elsewhere),
        }
    }

    /// Whether the process still reads what is typed there.
    pub async fn is_taken(&self, looks: &Looks) -> bool {
        let process = self.process.clone();
        let found = looks.run(move |processes| look(processes, &process)).await;
        found.ok().flatten().is_some_and(|found| found.terminal == self.terminal && found.terminal.is_foreground)
    }
}

fn look(processes: &dyn Processes, process: &Anchor) -> Option<Found> {
    let pid = process.pid;
    let same = processes.started_at(pid).is_ok_and(|started_at| started_at == process.process_started_at);
    // The numbers of terminals in another container mean something else.
    if !same || process.host_id != processes.host_id() || !processes.shares_namespace(pid) {
        return None;
    }
    let terminal = processes.terminal(pid)?;
    let lineage = processes.lineage(pid).map(|process| process.pid).collect();
    Some(Found {
        terminal,
        server: processes.variable(pid, SERVER_VARIABLE),
        path: processes.variable(pid, "PATH"),
        lineage,
    })
}

/// The socket that the variable of tmux names. Both it and what follows may have commas.
fn socket_of(value: &OsString) -> Option<PathBuf> {
    let mut parts = value.to_str()?.rsplitn(3, ',');
    let (_session, _pid, socket) = (parts.next()?, parts.next()?, parts.next()?);
    Some(PathBuf::from(socket)).filter(|socket| socket.is_absolute())
}

/// The number of a terminal's device.
fn device_of(tty: &Path) -> Option<u64> {
    std::fs::metadata(tty).ok().map(|meta| meta.rdev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_of_tmux_names_a_socket() {
        let socket = |value: &str| socket_of(&OsString::from(value));
        assert_eq!(socket("/tmp/tmux-0/default,42,0"), Some("/tmp/tmux-0/default".into()));
        assert_eq!(socket("/tmp/a,b/s,42,0"), Some("/tmp/a,b/s".into()));
        for value in ["", "/tmp/s", "/tmp/s,1", "s,42,0", ",,"] {
            assert_eq!(socket(value), None, "{value:?}");
        }
    }
}
