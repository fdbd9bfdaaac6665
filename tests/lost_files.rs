//! The database, its log, the lock or the whole data directory removed, replaced or renamed under a running daemon: no promise is
//! made that nobody can keep, and the next command finds a daemon with the files that are there now.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::Path;

use tt_proto::{Error, ErrorCode};
use tt_tests::{Home, Member, block_on, home, process, run};

fn take_away(path: &Path, home: &Home) {
    std::fs::rename(path, home.path().join("taken")).unwrap();
}

/// What happened to the files, by name.
type Change = (&'static str, fn(&Home));

const CHANGES: [Change; 8] = [
    ("the database renamed", |home| take_away(&home.paths().database(), home)),
    ("the database replaced", |home| {
        let database = home.paths().database();
        std::fs::copy(&database, home.path().join("copy")).unwrap();
        std::fs::rename(home.path().join("copy"), database).unwrap();
    }),
    ("its log removed", |home| std::fs::remove_file(home.paths().database().with_extension("sqlite-wal")).unwrap()),
    ("the lock removed", |home| std::fs::remove_file(home.paths().lock()).unwrap()),
    ("the directory renamed", |home| take_away(&home.paths().data_dir, home)),
    ("the directory replaced by an empty one", |home| {
        take_away(&home.paths().data_dir, home);
        home.make_data_dir();
    }),
    // With the lock that nobody has, and a socket on which nobody listens.
    ("the directory replaced by a copy", |home| {
        let data_dir = home.paths().data_dir;
        take_away(&data_dir, home);
        run::finish(home.command("cp").arg("-Rp").arg(home.path().join("taken")).arg(&data_dir)).ok();
    }),
    ("the directory removed", |home| std::fs::remove_dir_all(home.paths().data_dir).unwrap()),
];

#[test]
fn nothing_is_acknowledged_that_the_next_daemon_does_not_have() {
    for (what, change) in CHANGES {
        let home = home!();
        let daemon = home.start();
        block_on(async {
            let mut member = Member::join(&home, "a").await;
            member.say(None, "kept").await;
            change(&home);
            match member.try_say(None, "lost").await {
                Err(error) => assert!(is_told(&error), "{what}: {error:?}"),
                // The daemon had noticed by itself, and the next one has the files that are there now.
                Ok(sent) => {
                    let log = Member::join(&home, "b").await.events().await;
                    assert!(log.iter().any(|event| event.event_seq == sent.event_seq), "{what}: {log:?}");
                }
            }
        });
        // The daemon leaves, and the next command is served by another one, the only one there is.
        home.run(&["whoami"]).ok();
        let next = home.daemon().unwrap();
        assert_ne!(next, daemon, "{what}");
        if cfg!(target_os = "linux") {
            let socket = home.paths().socket;
            let ours =
                |pid: &u32| process::environment(*pid).get("HOME").is_some_and(|dir| Path::new(dir) == home.path());
            let all: Vec<u32> = std::fs::read_dir("/proc")
                .unwrap()
                .flatten()
                .filter_map(|e| e.file_name().to_str()?.parse().ok())
                .collect();
            let serving: Vec<u32> = all.into_iter().filter(ours).collect();
            assert_eq!(serving, [next], "{what}: {}", socket.display());
        }
    }
}

/// The daemon says that its files are gone, or has left already because it noticed by itself: then the next one answers, which
/// does not have the room.
fn is_told(error: &Error) -> bool {
    match error.code {
        ErrorCode::StorageUnavailable => error.message.contains("while the daemon used it"),
        code => code == ErrorCode::RoomNotFound,
    }
}

#[test]
fn a_reader_is_told_as_well() {
    let home = home!();
    home.start();
    block_on(async {
        let member = Member::join(&home, "a").await;
        std::fs::remove_file(home.paths().database()).unwrap();
        let state = tt_proto::requests::GetRoomState { room_id: member.room.clone(), ..Default::default() };
        let error = tt_tests::scene::refused(member.rpc().call(state).await);
        assert!(is_told(&error), "{error:?}");
    });
}
