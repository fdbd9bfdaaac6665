//! What the machine can do at best: an echo between two processes, one SQLite commit, one process.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rusqlite::{Connection, params};

use crate::Fallible;
use crate::samples::{Samples, now};
use crate::scratch::{Player, Scratch};

/// What is said in every measurement.
pub(crate) const BODY: &str =
    "the parser is done and its tests are green; have a look at src/parse.rs before you go on with the renderer";

/// A bare Unix socket to another process that sends back what it gets.
#[derive(Debug)]
pub(crate) struct Echo {
    stream: UnixStream,
    bytes: Vec<u8>,
    _player: Player,
}

impl Echo {
    pub(crate) fn of(scratch: &Scratch, size: usize) -> Fallible<Self> {
        let socket = scratch.data_dir().join("echo.sock");
        let mut player = scratch.player("bench:echo", &["echo", &socket.display().to_string(), &size.to_string()])?;
        player.line()?;
        let mut echo = Self { stream: UnixStream::connect(&socket)?, bytes: vec![b'x'; size], _player: player };
        for _ in 0..200 {
            echo.once()?;
        }
        Ok(echo)
    }

    fn once(&mut self) -> Fallible<()> {
        self.stream.write_all(&self.bytes)?;
        Ok(self.stream.read_exact(&mut self.bytes)?)
    }

    pub(crate) fn sample(&mut self, samples: &mut Samples) -> Fallible<()> {
        let from = now();
        self.once()?;
        samples.add(from, now());
        Ok(())
    }
}

/// A database with the daemon's schema and pragmas on the daemon's disk, and nothing around it: one row, one commit.
#[derive(Debug)]
pub(crate) struct Commits {
    connection: Connection,
    payload: String,
    _scratch: Scratch,
}

impl Commits {
    pub(crate) fn new() -> Fallible<Self> {
        let scratch = Scratch::new()?;
        let file = scratch.database();
        tt_store::sqlite::SqliteStore::create(&file)?;
        let connection = Connection::open(&file)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
             INSERT INTO path_rooms (room_id, canonical_path, state, updated_at) VALUES ('room', '/', 'idle', '')",
        )?;
        let payload = serde_json::json!({ "body": BODY, "delivery_hint": "normal" }).to_string();
        let commits = Self { connection, payload, _scratch: scratch };
        // Until the write-ahead log has been folded in once: from then on it is written over, as in a daemon that has run a while.
        for _ in 0..500 {
            commits.once()?;
        }
        Ok(commits)
    }

    fn once(&self) -> Fallible<()> {
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO room_events (event_id, room_id, turn_id, event_type, from_agent_id, created_at, payload_json)
             VALUES (?1, 'room', 1, 'message_sent', 'bench:sender', ?2, ?3)",
        )?;
        let id = uuid::Uuid::now_v7().to_string();
        insert.execute(params![id, ttd::clock::wall().to_string(), self.payload])?;
        Ok(())
    }

    pub(crate) fn sample(&self, samples: &mut Samples) -> Fallible<()> {
        let from = now();
        self.once()?;
        samples.add(from, now());
        Ok(())
    }
}

/// The smallest process there is, from spawning it to its end.
pub(crate) fn spawn(scratch: &Scratch, samples: &mut Samples) -> Fallible<()> {
    let mut command = scratch.command("/bin/true".as_ref());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let from = now();
    command.status()?;
    samples.add(from, now());
    Ok(())
}
