//! What an actor was told, written down as it is told: one file for each process that plays an actor. A line that was written
//! survives the end of its process.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Fallible;

/// One thing that an actor was told, or is about to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub(crate) enum Fact {
    /// A message was accepted.
    Sent {
        event_seq: i64,
        event_id: String,
        body: String,
    },
    /// A message is about to be confirmed: the actor has it.
    Shown {
        event_seq: i64,
    },
    /// The daemon has accepted the confirmation.
    Confirmed {
        event_seqs: Vec<i64>,
    },
    /// The actor has the stick.
    Turn {
        turn_id: i64,
        lease_id: String,
        by_takeover: bool,
    },
    /// The daemon has accepted a heartbeat that was sent at this time.
    Renewed {
        turn_id: i64,
        asked_at: u64,
    },
    /// The daemon has accepted a release or a pass that was sent at this time.
    Gave {
        turn_id: i64,
        event_seq: i64,
        asked_at: u64,
    },
    Noted {
        note_id: String,
    },
    /// A call was made as this member. The actor may turn out to be another.
    Joined {
        agent_id: String,
    },
    /// A hook said that the actor was given the stick for an edit.
    Given {
        turn_id: i64,
    },
    /// A hook let the actor edit, and the daemon had decided that: it was asked and answered between these times.
    Edited {
        asked_at: u64,
        answered_at: u64,
    },
    /// From here on the actor is this member, until it says so of another.
    Lives {
        agent_id: String,
    },
    /// A call was refused or got no answer.
    Failed {
        call: String,
        code: String,
    },
    /// What must never happen.
    Broken {
        what: String,
    },
}

/// A line of a journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Milliseconds on the machine's monotonic clock, the same for all processes.
    pub at: u64,
    #[serde(flatten)]
    pub fact: Fact,
}

#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn create(path: &Path) -> Fallible<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    pub(crate) fn write(&mut self, fact: Fact) -> Fallible<()> {
        let mut line = serde_json::to_vec(&Entry { at: now(), fact })?;
        line.push(b'\n');
        Ok(self.0.write_all(&line)?)
    }
}

/// The entries of a journal. An incomplete last line was never told.
pub(crate) fn read(path: &Path) -> Fallible<Vec<Entry>> {
    Ok(std::fs::read_to_string(path)?.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Milliseconds on the machine's monotonic clock.
pub(crate) fn now() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |t| t.tv_sec().unsigned_abs() * 1000 + t.tv_nsec().unsigned_abs() / 1_000_000)
}
