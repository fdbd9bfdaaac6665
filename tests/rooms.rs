//! Rooms and their members on a real daemon over a real socket: which path belongs to which room, who is there, what a
//! restart keeps, and what time takes away.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;
use tt_client::connect::Client;
use tt_proto::event::EventType;
use tt_proto::policy::{Policy, PolicyOverrides};
use tt_proto::requests::{
    AddNote, AddReminder, Departure, GetRoomState, Heartbeat, Hello, JoinPath, Joined, KickMember, LeaveRoom,
    ListNotes, ListRooms, ReleaseStick, RoomState, SendMessage, SetRoomPolicy, TakeoverStick, WaitForEvents,
    WaitForTurn,
};
use tt_proto::room::{DerivedState, Liveness, MemberStatus};
use tt_proto::turn::{TakeoverReason, WaitStatus};
use tt_proto::{AgentId, ErrorCode, WallTime};
use tt_tests::scene::{code, handoff, refused, told};
use tt_tests::{Home, LIMIT, Member, Scene, Turn, Wire, block_on, home, run};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Long enough for a daemon that leaves too early to be caught at it.
const A_WHILE: Duration = Duration::from_millis(300);

fn dir(base: &Path, name: &str) -> PathBuf {
    let dir = base.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir.canonicalize().unwrap()
}

fn touch(path: PathBuf) {
    std::fs::write(path, "").unwrap();
}

/// Joins by a path, as `a`.
async fn join(scene: &Scene, path: &Path, force_new: bool) -> Result<Joined, tt_proto::Error> {
    let client = Client::connect(scene.settings("a")).await.unwrap();
    let joined = client
        .rpc()
        .call(JoinPath {
            context_path: path.to_str().unwrap().to_owned(),
            force_new: Some(force_new),
            ..Default::default()
        })
        .await;
    match joined {
        Ok(joined) => Ok(joined),
        refusal => Err(refused(refusal)),
    }
}

async fn room_of(scene: &Scene, path: &Path) -> PathBuf {
    PathBuf::from(join(scene, path, false).await.unwrap().canonical_path)
}

fn is(state: &RoomState, agent: &str, status: MemberStatus) -> bool {
    state.members.iter().any(|m| m.agent_id.as_str() == agent && m.status == status)
}

#[test]
fn here_is_the_room_the_greeting_named_and_nothing_else() {
    block_on(async {
        let scene = Scene::new(home!());
        let home = scene.home.path();
        let (inside, outside) = (dir(home, "repo/deep"), dir(home, "elsewhere"));
        let joined = join(&scene, &dir(home, "repo"), true).await.unwrap();
        let here = || tt_proto::RoomId::from(tt_proto::RoomId::HERE);
        let at = |path: Option<&Path>| tt_client::connect::Settings {
            context_path: path.map(|path| path.to_str().unwrap().to_owned()),
            ..scene.settings("a")
        };
        let found = Client::connect(at(Some(&inside))).await.unwrap();
        assert_eq!(found.welcome().room_id.as_ref(), Some(&joined.room_id));
        assert_eq!(
            found.rpc().call(GetRoomState { room_id: here(), ..Default::default() }).await.unwrap().room.room_id,
            joined.room_id
        );
        let lost = Client::connect(at(Some(&outside))).await.unwrap();
        assert_eq!(
            refused(lost.rpc().call(GetRoomState { room_id: here(), ..Default::default() }).await).code,
            ErrorCode::RoomNotFound
        );
        let silent = Client::connect(at(None)).await.unwrap();
        assert_eq!(
            refused(silent.rpc().call(GetRoomState { room_id: here(), ..Default::default() }).await).code,
            ErrorCode::InvalidInput
        );
        // Whoever says hello again, from elsewhere, is told and is then there.
        let second = join(&scene, &outside, true).await.unwrap();
        let mut hello = serde_json::json!({"protocol": tt_proto::PROTOCOL, "version": tt_proto::VERSION});
        hello["signals"] = serde_json::to_value(&scene.settings("a").signals).unwrap();
        hello["context_path"] = outside.to_str().unwrap().into();
        let welcome = found.rpc().call(Hello { hello: serde_json::from_value(hello).unwrap() }).await.unwrap();
        assert_eq!(welcome.room_id.as_ref(), Some(&second.room_id));
        assert_eq!(
            found.rpc().call(GetRoomState { room_id: here(), ..Default::default() }).await.unwrap().room.room_id,
            second.room_id
        );
    });
}

/// Whoever stands where it says is answered from memory; whoever names a path, by a look at the disk and the database.
#[test]
fn where_one_stands_and_what_one_names_are_the_same_room_however_rooms_come_and_go() {
    let home = home!();
    let (outer, inner, deep) = (dir(home.path(), "a"), dir(home.path(), "a/b"), dir(home.path(), "a/b/c"));
    let elsewhere = dir(home.path(), "elsewhere");
    symlink(&deep, elsewhere.join("link")).unwrap();
    let tt = |at: &Path, args: &[&str]| run::finish(home.tt(args).current_dir(at));
    let room = |told: run::Finished| (told.code == Some(0)).then(|| told.json()["room"]["canonical_path"].clone());
    let same = |expected: Option<&Path>, when: &str| {
        let expected = expected.map(|path| serde_json::json!(path));
        for named in [deep.as_path(), &elsewhere.join("link")] {
            let by_name = tt(&elsewhere, &["state", "--json", "--path", named.to_str().unwrap()]);
            assert_eq!(room(by_name), expected, "{when}, named {}", named.display());
        }
        assert_eq!(room(tt(&deep, &["state", "--json"])), expected, "{when}, standing there");
        // A shell keeps the name it came by; the kernel does not.
        assert_eq!(
            room(tt(&elsewhere.join("link"), &["state", "--json"])),
            expected,
            "{when}, standing there by a link"
        );
    };
    same(None, "before");
    tt(&outer, &["join", "--force-new"]).ok();
    same(Some(&outer), "with a room above");
    tt(&inner, &["join", "--force-new"]).ok();
    same(Some(&inner), "with a nearer one");
    home.kill_daemon();
    same(Some(&inner), "after a crash");
    tt(&inner, &["leave"]).ok();
    same(Some(&inner), "when everybody left the nearer one");
    tt(&inner, &["room", "delete", "--yes"]).ok();
    same(Some(&outer), "when the nearer one is gone");
    tt(&inner, &["join", "--force-new"]).ok();
    same(Some(&inner), "when it is there again");
    // What another program does is seen once this daemon has written something.
    let database = Connection::open(home.paths().database()).unwrap();
    let theirs =
        "INSERT INTO path_rooms (room_id, canonical_path, state, updated_at) VALUES ('theirs', ?1, 'idle', ?2)";
    database.execute(theirs, [deep.to_str().unwrap(), "2026-01-01T00:00:00.000Z"]).unwrap();
    tt(&outer, &["notes", "add", "x"]).ok();
    same(Some(&deep), "when another program has made one");
    database.execute("DELETE FROM path_rooms WHERE room_id = 'theirs'", []).unwrap();
    tt(&outer, &["notes", "add", "x"]).ok();
    same(Some(&inner), "when another program has taken it away");
    tt(&inner, &["room", "delete", "--yes"]).ok();
    tt(&outer, &["room", "delete", "--yes"]).ok();
    same(None, "when all are deleted");
}

#[test]
fn a_greeting_and_one_call_may_come_in_one_request_and_no_more() {
    let home = home!();
    let repo = dir(home.path(), "repo");
    run::finish(home.tt(&["join"]).current_dir(&repo)).ok();
    let call = |id: u32, method: &str, params: serde_json::Value| serde_json::json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let hello = serde_json::json!({"protocol": tt_proto::PROTOCOL, "version": tt_proto::VERSION, "context_path": repo});
    let (hello, state) =
        (call(1, "hello", serde_json::json!([hello])), call(2, "get_room_state", serde_json::json!(["here"])));
    let ask =
        |calls: &[&serde_json::Value]| Wire::connect(&home.paths().socket).post(&serde_json::json!(calls).to_string());
    let answers = ask(&[&hello, &state]);
    assert!(answers[0]["result"]["room_id"].is_string(), "{answers}");
    assert_eq!(answers[0]["result"]["room_id"], answers[1]["result"]["room"]["room_id"]);
    assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&1.into(), &2.into()));
    let before = ask(&[&state, &hello]);
    assert_eq!(before[0]["error"]["data"]["error"], "agent_id_required", "{before}");
    assert!(before[1]["result"].is_object());
    let many = ask(&[&hello, &state, &state]);
    assert!(many["error"].is_object(), "{many}");
}

#[test]
fn a_repository_a_worktree_a_submodule_and_a_marker_each_make_a_room() {
    block_on(async {
        let scene = Scene::new(home!());
        let home = scene.home.path();
        let repository = dir(home, "repository");
        std::fs::create_dir(repository.join(".git")).unwrap();
        touch(dir(&repository, "crate").join("Cargo.toml"));
        assert_eq!(room_of(&scene, &dir(&repository, "crate/src")).await, repository, "before any marker in it");
        for linked in ["worktree", "other/submodule"] {
            let tree = dir(home, linked);
            std::fs::write(tree.join(".git"), "gitdir: elsewhere\n").unwrap();
            assert_eq!(room_of(&scene, &dir(&tree, "deep/er")).await, tree);
        }
        for marker in ["AGENTS.md", "CLAUDE.md", "Cargo.toml", "package.json", "pyproject.toml", "go.mod"] {
            let marked = dir(home, &format!("by-{marker}"));
            touch(marked.join(marker));
            assert_eq!(room_of(&scene, &dir(&marked, "x/y")).await, marked);
        }
        let plain = dir(home, "plain/inner");
        assert_eq!(room_of(&scene, &plain).await, plain);
    });
}

#[test]
fn markers_in_home_count_for_home_alone() {
    block_on(async {
        let scene = Scene::new(home!());
        let home = scene.home.path().canonicalize().unwrap();
        std::fs::create_dir(home.join(".git")).unwrap();
        touch(home.join("AGENTS.md"));
        assert_eq!(room_of(&scene, &home).await, home);
        let below = dir(&home, "project");
        assert_eq!(room_of(&scene, &below).await, below, "neither its marker nor its room reaches below");
    });
}

#[test]
fn force_new_has_three_shapes_and_nested_rooms_are_found_deepest_first() {
    block_on(async {
        let scene = Scene::new(home!());
        let outer = dir(scene.home.path(), "outer");
        let fresh = join(&scene, &outer, true).await.unwrap();
        assert_eq!((fresh.joined_existing_room, fresh.warning.as_ref()), (false, None));
        let inner = dir(&outer, "in/ner");
        let nested = join(&scene, &inner, true).await.unwrap();
        assert_eq!((nested.canonical_path.as_str(), nested.joined_existing_room), (inner.to_str().unwrap(), false));
        assert!(nested.warning.unwrap().contains(outer.to_str().unwrap()));
        let again = join(&scene, &inner, true).await.unwrap();
        assert_eq!((&again.room_id, again.joined_existing_room), (&nested.room_id, true));
        assert!(again.warning.unwrap().contains("no effect"));
        assert_eq!(room_of(&scene, &dir(&inner, "x")).await, inner);
        assert_eq!(room_of(&scene, &dir(&outer, "in")).await, outer);
        assert_eq!(join(&scene, &outer, false).await.unwrap().warning, None);
    });
}

#[test]
fn odd_paths_are_resolved_or_refused() {
    block_on(async {
        let scene = Scene::new(home!());
        let home = scene.home.path().canonicalize().unwrap();
        let work = dir(&home, "work");
        touch(work.join("file.txt"));
        symlink(&work, home.join("link")).unwrap();
        symlink(work.join("file.txt"), home.join("file-link")).unwrap();
        for path in ["work/file.txt", "link", "link/file.txt", "file-link", "work/../work/.", "link//"] {
            assert_eq!(room_of(&scene, &home.join(path)).await, work, "{path}");
            assert_eq!(room_of(&scene, Path::new(path)).await, work, "{path}, from the caller's directory");
        }
        symlink(home.join("loop-b"), home.join("loop-a")).unwrap();
        symlink(home.join("loop-a"), home.join("loop-b")).unwrap();
        symlink(home.join("nothing"), home.join("dangling")).unwrap();
        let long = home.join("x".repeat(4096));
        for bad in
            [Path::new("loop-a"), Path::new("dangling"), Path::new("nowhere"), Path::new(""), Path::new("a\0b"), &long]
        {
            let error = join(&scene, bad, false).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidInput, "{bad:?}");
            assert!(!error.hint.is_empty());
        }
        let mut nowhere = scene.settings("a");
        nowhere.cwd = None;
        let client = Client::connect(nowhere).await.unwrap();
        assert_eq!(
            code(client.rpc().call(JoinPath { context_path: "work".into(), ..Default::default() }).await),
            ErrorCode::InvalidInput
        );
        let rooms = client.rpc().call(ListRooms::default()).await.unwrap().rooms;
        assert_eq!(rooms.len(), 1, "a refusal makes no room");
        for name in ["", " ", "two\nlines", &"n".repeat(65)] {
            let named = client
                .rpc()
                .call(JoinPath {
                    context_path: work.to_str().unwrap().into(),
                    display_name: Some(name.to_owned()),
                    ..Default::default()
                })
                .await;
            assert_eq!(code(named), ErrorCode::InvalidInput, "{name:?}");
        }
    });
}

// Only where a name may be any bytes can such a directory be made.
#[cfg(target_os = "linux")]
#[test]
fn a_directory_whose_name_is_not_utf_8_is_refused_even_behind_a_link() {
    use std::os::unix::ffi::OsStrExt;
    block_on(async {
        let scene = Scene::new(home!());
        let odd = scene.home.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        std::fs::create_dir(&odd).unwrap();
        symlink(&odd, scene.home.path().join("link")).unwrap();
        let error = join(&scene, &scene.home.path().join("link"), false).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidInput);
        assert!(error.message.contains("UTF-8"), "{error}");
    });
}

#[test]
fn a_dormant_room_is_resumed_after_a_restart_with_all_it_had() {
    block_on(async {
        let mut scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        a.note("remember").await.unwrap();
        a.release(&turn, "half done").await;
        scene.kill("a");
        scene.kill("b");
        let watcher = Member::join_at(scene.settings("w"), scene.home.path().to_str().unwrap()).await;
        watcher.until_gone_from(&a.room, "a").await;
        let state = watcher.until_gone_from(&a.room, "b").await;
        assert_eq!(state.room.derived_state, Some(DerivedState::Dormant));
        let (room, seq) = (a.room.clone(), a.events().await.len());
        drop((a, b, watcher));
        scene.restart();
        let c = scene.join("c").await;
        assert_eq!((&c.room, c.joined.joined_existing_room), (&room, true));
        let wait = c.try_it().await;
        assert_eq!((told(&wait).as_str(), wait.turn_id), ("your_turn open_claim", 2));
        assert_eq!(wait.handoff, Some(handoff("half done")));
        let notes = c.rpc().call(ListNotes { room_id: room, ..Default::default() }).await.unwrap().notes;
        assert_eq!(notes[0].body, "remember");
        assert_eq!(c.events().await.len(), seq + 2, "joined and claimed, and nothing lost");
    });
}

#[test]
fn a_ghost_can_be_kicked_after_two_heartbeats_and_its_stick_is_free() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        a.claim().await;
        scene.kill("a");
        let state = b.until_gone("a").await;
        let ghost = state.members.iter().find(|m| m.agent_id == a.id).unwrap();
        assert_eq!(ghost.liveness, Liveness::Gone);
        assert_eq!(b.history().await.last().unwrap(), "member_left process_exited");
        let kick = || {
            b.rpc().call(KickMember {
                room_id: b.room.clone(),
                target_agent_id: a.id.clone(),
                reason: Some("ghost".into()),
                ..Default::default()
            })
        };
        scene.advance(10 * MINUTE - 5);
        assert_eq!(code(kick().await), ErrorCode::TargetActive);
        scene.advance(5);
        let kicked = kick().await.unwrap();
        assert_eq!((kicked.status, kicked.remaining_members), (Departure::Kicked, 1));
        assert!(kicked.target_was_owner && !kicked.target_was_reserved_for);
        assert_eq!(b.state().await.room.owner, None);
        let log = b.events().await;
        let kick_event = log.iter().find(|e| e.event_type == EventType::Kick).unwrap();
        assert_eq!(kick_event.from_agent_id.as_ref(), Some(&b.id));
        assert_eq!((kick_event.to_agent_id.as_ref(), kick_event.reason.as_deref()), (Some(&a.id), Some("ghost")));
        assert_eq!(code(kick().await), ErrorCode::UnknownTarget, "once");
        assert_eq!(code(a.note("still here").await), ErrorCode::Kicked);
    });
}

#[test]
fn a_member_that_counted_as_gone_returns_by_any_call_and_keeps_its_stick() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        scene.kill("a");
        b.until_gone("a").await;
        // The same agent in a new process, which only says that it is at work.
        let mut elsewhere = scene.settings("a");
        elsewhere.signals.env.insert("CLAUDE_PID".into(), tt_tests::Cast::player(25).to_string());
        let anew = Client::connect(elsewhere).await.unwrap();
        let stale = anew
            .rpc()
            .call(Heartbeat { room_id: a.room.clone(), lease_id: turn.lease.clone(), expected_turn_id: 7 })
            .await;
        assert_eq!(code(stale), ErrorCode::TurnMismatch);
        assert!(is(&b.state().await, "a", MemberStatus::Gone), "what is refused changes nothing");
        anew.rpc()
            .call(Heartbeat { room_id: a.room.clone(), lease_id: turn.lease.clone(), expected_turn_id: turn.id })
            .await
            .unwrap();
        let state = b.state().await;
        assert!(is(&state, "a", MemberStatus::Active) && !state.takeover.available);
        assert_eq!(b.history().await.last().unwrap(), "member_joined returned");
        assert_eq!(b.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverNotAvailable);
    });
}

#[test]
fn silence_expires_a_member_and_any_call_brings_it_back() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join_unseen("a").await, scene.join("b").await);
        scene.advance(4 * HOUR - 5);
        assert!(is(&b.state().await, "a", MemberStatus::Active));
        scene.advance(5);
        b.until_gone("a").await;
        assert_eq!(b.history().await.last().unwrap(), "member_left expired");
        a.note("back").await.unwrap();
        assert!(is(&b.state().await, "a", MemberStatus::Active));
        assert_eq!(b.history().await.iter().rev().nth(1).unwrap(), "member_joined returned");
    });
}

#[test]
fn a_new_daemon_lets_members_expire_that_no_process_stands_for() {
    block_on(async {
        let mut scene = Scene::new(home!());
        let a = scene.join_unseen("a").await;
        let room = a.room.clone();
        drop(a);
        scene.restart();
        let watcher = Member::join_at(scene.settings("w"), scene.home.path().to_str().unwrap()).await;
        scene.advance(4 * HOUR + MINUTE);
        watcher.until_gone_from(&room, "a").await;
    });
}

#[test]
fn whoever_stopped_waiting_and_was_never_heard_of_again_expires_too() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join_unseen("b").await);
        a.claim().await;
        scene.advance(4 * HOUR);
        assert_eq!(told(&b.wait().await), "takeover_available owner_timeout");
        let watcher = Member::join_at(scene.settings("w"), scene.home.path().to_str().unwrap()).await;
        assert!(is(
            &watcher.rpc().call(GetRoomState { room_id: b.room.clone(), ..Default::default() }).await.unwrap(),
            "b",
            MemberStatus::Active
        ));
        scene.advance(4 * HOUR);
        // Waiting for the log is no sign of life from b, and makes no deadline come up that was not set.
        watcher.until_gone_from(&b.room, "b").await;
    });
}

#[test]
fn a_room_left_alone_for_a_week_is_purged_and_one_somebody_lives_in_is_not() {
    block_on(async {
        let scene = Scene::new(home!());
        let (kept, lived_in) = (dir(scene.home.path(), "kept"), dir(scene.home.path(), "lived-in"));
        let a = scene.join("a").await;
        let other = Member::join_at(scene.settings("a"), kept.to_str().unwrap()).await;
        Member::join_at(scene.settings("l"), lived_in.to_str().unwrap()).await;
        let longer =
            PolicyOverrides { idle_room_ttl: Some(Duration::from_secs(30 * DAY)), ..PolicyOverrides::default() };
        other
            .rpc()
            .call(SetRoomPolicy { room_id: other.room.clone(), policy: longer, ..Default::default() })
            .await
            .unwrap();
        // Each of these has one thing in it that somebody wrote.
        let room = async |name: &str| {
            let dir = dir(scene.home.path(), name);
            (Member::join_at(scene.settings("a"), dir.to_str().unwrap()).await, dir)
        };
        let ((said, with_message), (noted, with_note)) = (room("message").await, room("note").await);
        let ((handed, with_handoff), (later, with_reminder)) = (room("handoff").await, room("reminder").await);
        let (to, room_id) = (Some("a".into()), said.room.clone());
        said.rpc().call(SendMessage { room_id, to, body: "for later".into(), ..Default::default() }).await.unwrap();
        noted.note("the cart rounds twice").await.unwrap();
        let turn = handed.claim().await;
        handed.release(&turn, "half done").await;
        let (room_id, in_ms) = (later.room.clone(), 300 * DAY * 1000);
        later.rpc().call(AddReminder { room_id, body: "renew".into(), in_ms, ..Default::default() }).await.unwrap();
        let written = [with_message, with_note, with_handoff, with_reminder];
        scene.kill("a");
        a.until_gone("a").await;
        let left_alone = a.room.clone();
        drop((a, other, said, noted, handed, later));
        scene.clock.turn_wall(i64::try_from(8 * DAY * 1000).unwrap());
        scene.advance(8 * DAY);
        // Any sign of life makes the daemon look around.
        let b = Member::join_at(scene.settings("b"), dir(scene.home.path(), "elsewhere").to_str().unwrap()).await;
        let purged = b.rpc().call(WaitForEvents { room_id: left_alone, ..Default::default() }).await;
        assert_eq!(code(purged), ErrorCode::RoomNotFound);
        let rooms = b.rpc().call(ListRooms::default()).await.unwrap().rooms;
        let rooms: Vec<PathBuf> = rooms.into_iter().map(|room| room.canonical_path.into()).collect();
        assert!(rooms.contains(&kept) && rooms.contains(&lived_in) && !rooms.contains(&scene.dir), "{rooms:?}");
        assert!(written.iter().all(|dir| rooms.contains(dir)), "no time deletes what was written: {rooms:?}");
    });
}

#[test]
fn a_closed_room_is_readable_and_takes_nothing_more() {
    block_on(async {
        let mut scene = Scene::new(home!());
        let a = scene.join("a").await;
        let room = a.room.clone();
        drop(a);
        scene.restart_after(|database| {
            database.execute("UPDATE path_rooms SET state = 'closed'", []).unwrap();
        });
        let a = Client::connect(scene.settings("a")).await.unwrap();
        let rpc = a.rpc();
        let path = scene.dir.to_str().unwrap().to_owned();
        assert_eq!(code(rpc.call(JoinPath { context_path: path, ..Default::default() }).await), ErrorCode::RoomClosed);
        assert_eq!(
            code(rpc.call(AddNote { room_id: room.clone(), body: "n".into(), ..Default::default() }).await),
            ErrorCode::RoomClosed
        );
        let take = rpc
            .call(TakeoverStick {
                room_id: room.clone(),
                expected_turn_id: 0,
                reason: "why".into(),
                operator_override: Some(true),
                ..Default::default()
            })
            .await;
        assert_eq!(code(take), ErrorCode::RoomClosed);
        let wait = rpc
            .call(WaitForTurn {
                room_id: room.clone(),
                max_wait_ms: Some(60_000),
                claim: Some(true),
                ..Default::default()
            })
            .await
            .unwrap();
        assert_eq!(wait.status, WaitStatus::Closed);
        assert_eq!(rpc.call(GetRoomState { room_id: room, ..Default::default() }).await.unwrap().members.len(), 1);
    });
}

/// What 0.1.x left behind, with its first room at this path and its processes on this host.
fn left_by_0_1(home: &Home, path: &Path, host: &str) {
    let fixture = include_str!("../ttd/store/src/sqlite/fixture_0_1.sql");
    let fixture = fixture.replace("/srv/shop", path.to_str().unwrap()).replace("old-host", host);
    let blog = dir(home.path(), "blog");
    home.make_data_dir();
    let fixture = fixture.replace("/srv/blog", blog.to_str().unwrap());
    Connection::open(home.paths().database()).unwrap().execute_batch(&fixture).unwrap();
}

#[test]
fn a_room_of_0_1_whose_holder_is_dead_opens_and_can_be_taken_over() {
    let name = nix::unistd::gethostname().unwrap().into_string().unwrap();
    for (host, reason) in [(name.as_str(), TakeoverReason::OwnerGone), ("another", TakeoverReason::OwnerTimeout)] {
        block_on(async {
            let home = home!();
            left_by_0_1(&home, &dir(home.path(), "work"), host);
            let scene = Scene::new(home);
            let a = scene.join("a").await;
            assert!(a.joined.joined_existing_room);
            assert_eq!(a.state().await.room.turn_id, 7);
            let taken = a.take_over(7).await.unwrap();
            assert_eq!((taken.turn_id, taken.reason), (8, reason), "{host}");
            assert_eq!(taken.revoked_agent_id, Some(AgentId::trusted("claude:11aa22bb")));
            let notes = a
                .rpc()
                .call(ListNotes { room_id: a.room.clone(), include_resolved: Some(true), ..Default::default() })
                .await
                .unwrap()
                .notes;
            assert_eq!((notes.len(), notes[0].body.as_str()), (2, "the cart rounds twice"));
            // A handoff nobody received is still for the next claimant.
            let blog = Member::join_at(scene.settings("b"), scene.home.path().join("blog").to_str().unwrap()).await;
            assert!(blog.joined.joined_existing_room, "nothing old is purged on the first day");
            let wait = blog.try_it().await;
            assert_eq!((wait.turn_id, wait.from_agent_id), (3, Some(AgentId::trusted("human:alice"))));
            assert!(wait.handoff.unwrap().as_str().starts_with(r#"{"status":"reviewed""#));
        });
    }
}

#[test]
fn the_daemon_stays_while_somebody_alive_holds_the_stick() {
    let scene = Scene::with(home!(), |options| options.idle_exit = Some(Duration::from_millis(50)));
    block_on(async {
        scene.join("a").await.claim().await;
    });
    assert!(!scene.daemon.ended_within(A_WHILE), "it left a holder alone");
    scene.kill("a");
    assert!(scene.daemon.ended_within(LIMIT), "it stayed for the dead");
}

#[test]
fn the_times_come_from_the_file_the_environment_and_the_room() {
    let home = home!();
    std::fs::create_dir_all(home.paths().config_dir).unwrap();
    let file = home.paths().config_dir.join("config.toml");
    std::fs::write(&file, "[policy]\nclaim_ttl = \"5m\"\nwaiter_grace = \"2s\"\n").unwrap();
    let path = home.path().to_str().unwrap();
    let mut environment = home.settings_of("a");
    environment.env = tt_proto::paths::Environment::of([
        ("HOME", home.path().as_os_str()),
        ("TALKING_STICK_WAITER_GRACE", "3s".as_ref()),
    ]);
    block_on(async {
        let a = Member::join_at(environment.clone(), path).await;
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let policy = policy_of(&a).await;
        assert_eq!((policy.claim_ttl, policy.waiter_grace), (minutes(5), Duration::from_secs(3)));
        assert_eq!(policy.presence_ttl, Policy::default().presence_ttl);
        let set = |claim, lease| {
            let policy = PolicyOverrides { claim_ttl: claim, owner_lease_ttl: lease, ..PolicyOverrides::default() };
            a.rpc().call(SetRoomPolicy { room_id: a.room.clone(), policy, ..Default::default() })
        };
        set(Some(minutes(7)), None).await.unwrap();
        // Longer than any calendar: it must break nothing.
        let policy = set(None, Some(Duration::from_millis(u64::MAX))).await.unwrap().policy;
        assert_eq!(policy.claim_ttl, minutes(7), "what was set stays set");
        let turn = a.claim().await;
        assert!(a.beat(&turn).await.unwrap().lease_expires_at > WallTime::parse("9000-01-01T00:00:00Z").unwrap());
        home.kill_daemon();
        let b = Member::join_at(environment, path).await;
        assert_eq!(policy_of(&b).await.claim_ttl, minutes(7), "and outlives the daemon");
        assert_eq!(b.joined.room_state.owner, Some(AgentId::trusted("a")));
        home.kill_daemon();
        std::fs::write(&file, "[policy]\nclaim_tll = \"5m\"\n").unwrap();
        let error = Client::connect(home.settings_of("a")).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidInput);
        assert!(error.message.contains("claim_tll"), "{error}");
    });
}

/// Three values of a policy, none of which is the one before it.
fn values_of(key: &str) -> [String; 3] {
    let defaults = serde_json::to_value(Policy::default()).unwrap();
    match defaults.get(key) {
        None => ["11m", "12m", "13m"].map(str::to_owned),
        Some(Value::Number(_)) => ["3", "4", "5"].map(str::to_owned),
        Some(Value::Bool(usual)) => [!usual, *usual, !usual].map(|value| value.to_string()),
        Some(_) if key == "guard" => ["off", "advise", "off"].map(str::to_owned),
        Some(_) if key == "ways" => ["none", "hook", "tool_response"].map(str::to_owned),
        Some(usual) => panic!("which values may {key} have beside {usual}?"),
    }
}

#[test]
fn every_policy_can_be_set_in_the_file_in_the_environment_and_for_a_room() {
    for key in ["ask_expiry", "message_timeout", "busy_doubt", "max_batch", "max_wakes", "ways", "guard"] {
        assert!(PolicyOverrides::KEYS.contains(&key), "{key} is not a policy");
    }
    let with = |place: usize| {
        let mut overrides = PolicyOverrides::default();
        PolicyOverrides::KEYS.iter().for_each(|key| overrides.set(key, &values_of(key)[place]).unwrap());
        overrides
    };
    let expected = |place: usize| with(place).over(&Policy::default());
    let home = home!();
    std::fs::create_dir_all(home.paths().config_dir).unwrap();
    let lines = PolicyOverrides::KEYS.iter().map(|key| format!("{key} = \"{}\"\n", values_of(key)[0]));
    let file = format!("[policy]\n{}", lines.collect::<String>());
    std::fs::write(home.paths().config_dir.join("config.toml"), file).unwrap();
    let path = home.path().to_str().unwrap();
    let mut environment = home.settings_of("a");
    let variables = PolicyOverrides::KEYS
        .iter()
        .map(|key| (format!("TALKING_STICK_{}", key.to_uppercase()), values_of(key)[1].clone()));
    let variables: Vec<(String, String)> =
        variables.chain([("HOME".to_owned(), home.path().display().to_string())]).collect();
    environment.env = tt_proto::paths::Environment::of(variables.iter().map(|(key, value)| (key, value)));
    block_on(async {
        let a = Member::join_at(home.settings_of("a"), path).await;
        assert_eq!(policy_of(&a).await, expected(0), "in config.toml");
        home.kill_daemon();
        let a = Member::join_at(environment.clone(), path).await;
        assert_eq!(policy_of(&a).await, expected(1), "in the environment");
        let set = SetRoomPolicy { room_id: a.room.clone(), policy: with(2), ..Default::default() };
        assert_eq!(a.rpc().call(set).await.unwrap().policy, expected(2), "for a room");
        home.kill_daemon();
        let a = Member::join_at(environment, path).await;
        assert_eq!(policy_of(&a).await, expected(2), "and with the next daemon");
    });
}

#[test]
fn a_write_repeated_with_its_key_gets_the_first_answer_and_happens_once() {
    let home = home!();
    let path = home.path().to_str().unwrap();
    block_on(async {
        let key = |text: &str| Some(text.to_owned());
        let mut a = Member::join_at(home.settings_of("a"), path).await;
        let turn = a.claim().await;
        let mut answers = Vec::new();
        // On one daemon, and on the next, and on the one after that.
        for round in 0..4 {
            let (rpc, room) = (a.rpc(), a.room.clone());
            let note = rpc
                .call(AddNote {
                    room_id: room.clone(),
                    body: "once".into(),
                    idempotency_key: key("note"),
                    ..Default::default()
                })
                .await
                .unwrap();
            let (lease, words) = (turn.lease.clone(), handoff("once"));
            let released = rpc
                .call(ReleaseStick {
                    room_id: room.clone(),
                    lease_id: lease,
                    expected_turn_id: turn.id,
                    handoff: words,
                    idempotency_key: key("release"),
                })
                .await
                .unwrap();
            answers.push((note, released));
            if round % 2 == 1 {
                home.kill_daemon();
                a = Member::join_at(home.settings_of("a"), path).await;
            }
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
        assert_eq!((a.count(EventType::NoteAdded).await, a.count(EventType::Release).await), (1, 1));
        // A key is its agent's own, and a refusal is not kept.
        let b = Member::join_at(home.settings_of("b"), path).await;
        let other = b
            .rpc()
            .call(AddNote {
                room_id: b.room.clone(),
                body: "mine".into(),
                idempotency_key: key("note"),
                ..Default::default()
            })
            .await
            .unwrap();
        assert_ne!(other.note_id, answers[0].0.note_id);
        assert_eq!(
            code(
                b.rpc()
                    .call(AddNote {
                        room_id: b.room.clone(),
                        body: " ".into(),
                        idempotency_key: key("second"),
                        ..Default::default()
                    })
                    .await
            ),
            ErrorCode::InvalidBody
        );
        b.rpc()
            .call(AddNote {
                room_id: b.room.clone(),
                body: "better".into(),
                idempotency_key: key("second"),
                ..Default::default()
            })
            .await
            .unwrap();
        // A membership that ended is answered again.
        a.rpc().call(LeaveRoom { room_id: a.room.clone(), idempotency_key: key("leave") }).await.unwrap();
        let last = b.rpc().call(LeaveRoom { room_id: b.room.clone(), idempotency_key: key("leave") }).await.unwrap();
        assert_eq!(last.status, Departure::Left);
        assert_eq!(
            b.rpc().call(LeaveRoom { room_id: b.room.clone(), idempotency_key: key("leave") }).await.unwrap(),
            last
        );
    });
}

fn stored_seen(home: &Home, agent: &str) -> WallTime {
    let database = Connection::open(home.paths().database()).unwrap();
    let sql = "SELECT last_seen_at FROM room_members WHERE agent_id = ?1";
    let at: String = database.query_row(sql, [agent], |row| row.get(0)).unwrap();
    WallTime::parse(&at).unwrap()
}

#[test]
fn a_sign_of_life_after_a_silence_is_written_down_at_once() {
    block_on(async {
        let scene = Scene::new(home!());
        let a = scene.join("a").await;
        let turn = a.claim().await;
        let before = stored_seen(&scene.home, "a");
        scene.advance(44 * MINUTE);
        a.beat(&turn).await.unwrap();
        // Were the daemon killed now, the lease it just confirmed would hold.
        while stored_seen(&scene.home, "a").since(before) < Duration::from_secs(44 * MINUTE) {
            tokio::task::yield_now().await;
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "compared with what the daemon stored")]
fn now() -> WallTime {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    WallTime::from_millis(i64::try_from(since_epoch.as_millis()).unwrap())
}

#[test]
fn what_is_known_of_a_member_survives_sigterm_to_the_letter_and_sigkill_within_a_minute() {
    let home = home!();
    let path = home.path().to_str().unwrap();
    block_on(async {
        for kill in [false, true] {
            let a = Member::join_at(home.settings_of("a"), path).await;
            let mut seen = now();
            for _ in 0..20 {
                seen = now();
                a.state().await;
            }
            if kill {
                home.kill_daemon()
            } else {
                drop(home.run(&["daemon", "stop"]).ok())
            }
            // Steady time is shown as a time of day, which may round to the millisecond before.
            let stored = stored_seen(&home, "a") + Duration::from_millis(2);
            let doubt = if kill { ttd::presence::STORE_INTERVAL } else { Duration::ZERO };
            assert!(stored + doubt >= seen, "kill: {kill}, stored {stored}, seen {seen}");
            // Were it long ago, since what was just now is left out of the answer.
            let database = Connection::open(home.paths().database()).unwrap();
            let long_ago = seen - Duration::from_secs(10 * MINUTE);
            let sql = "UPDATE room_members SET last_seen_at = ?1 WHERE agent_id = 'a'";
            assert_eq!(database.execute(sql, [long_ago.to_string()]).unwrap(), 1);
            drop(database);
            let again = Member::join_at(home.settings_of("b"), path).await;
            let state = again.state().await;
            let member = state.members.iter().find(|m| m.agent_id.as_str() == "a").unwrap();
            let shown = member.last_seen_at.unwrap() + Duration::from_millis(2);
            assert!(shown >= long_ago + ttd::presence::STORE_INTERVAL, "always in its favour: {shown}, {long_ago}");
            assert!(shown < seen, "and no more than that");
        }
    });
}

#[test]
fn a_holder_is_still_the_holder_after_its_daemon_was_killed() {
    let home = home!();
    let path = home.path().to_str().unwrap();
    block_on(async {
        let a = Member::join_at(home.settings_of("a"), path).await;
        let turn = a.claim().await;
        for _ in 0..3 {
            home.kill_daemon();
            let a = Member::join_at(home.settings_of("a"), path).await;
            a.beat(&turn).await.unwrap();
            let wait = a.try_it().await;
            assert_eq!((told(&wait).as_str(), Turn::of(&wait).lease), ("your_turn already_owner", turn.lease.clone()));
        }
    });
}

#[test]
fn what_another_program_writes_into_the_database_is_seen_by_the_next_command() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let say = async |to: &str| {
            a.rpc()
                .call(SendMessage {
                    room_id: a.room.clone(),
                    body: "hi".into(),
                    to: Some(to.into()),
                    ..Default::default()
                })
                .await
        };
        assert_eq!(code(say("bertha").await), ErrorCode::UnknownRecipient);
        let other = rusqlite::Connection::open(scene.home.paths().database()).unwrap();
        let renamed = "UPDATE room_members SET display_name = 'bertha' WHERE agent_id = ?1";
        assert_eq!(other.execute(renamed, [b.id.as_str()]).unwrap(), 1);
        assert_eq!(say("bertha").await.unwrap().recipients[0].agent_id, b.id);
    });
}

/// The times a room goes by. Setting none of them shows them all.
async fn policy_of(member: &Member) -> Policy {
    let (room_id, policy) = (member.room.clone(), PolicyOverrides::default());
    member.rpc().call(SetRoomPolicy { room_id, policy, ..Default::default() }).await.unwrap().policy
}
