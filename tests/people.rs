//! People and the rooms they leave behind: one member on many terminals, names, and what a room keeps when nobody is in it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::sync::Arc;

use tt_client::connect::{Client, Settings};
use tt_proto::ErrorCode;
use tt_proto::event::EventType;
use tt_proto::message::MessageSent;
use tt_proto::requests::{
    DeleteRoom, GetRoomState, JoinPath, KickMember, LeaveRoom, ListRooms, SendMessage, TakeMessages,
};
use tt_proto::room::MemberStatus;
use tt_tests::scene::{code, handoff, refused};
use tt_tests::{Cast, Member, Scene, block_on, home, run};

/// A person, at one of the terminals of the cast.
fn person(scene: &Scene, terminal: usize) -> Settings {
    scene.cast.sit_at(Cast::player(terminal));
    let mut settings = scene.settings("x");
    settings.signals.env.clear();
    settings
}

async fn join_person(scene: &Scene, terminal: usize) -> Arc<Member> {
    Member::join_at(person(scene, terminal), scene.dir.to_str().unwrap()).await
}

fn take(member: &Member, after: Option<i64>) -> TakeMessages {
    TakeMessages {
        room_id: member.room.clone(),
        surface: "follow".into(),
        after_event_seq: after,
        ..Default::default()
    }
}

#[test]
fn a_room_that_everybody_left_keeps_all_and_only_a_command_deletes_it() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        a.release(&turn, "half done").await;
        let say = SendMessage { room_id: a.room.clone(), body: "for later".into(), ..Default::default() };
        a.rpc().call(say).await.unwrap();
        let delete = || DeleteRoom { room_id: a.room.clone(), ..Default::default() };
        assert_eq!(code(a.rpc().call(delete()).await), ErrorCode::RoomInUse);
        for member in [&a, &b] {
            member.rpc().call(LeaveRoom { room_id: a.room.clone(), ..Default::default() }).await.unwrap();
        }
        scene.advance(400 * 24 * 3600);
        let rooms = ListRooms { sizes: Some(true), ..Default::default() };
        let rooms = a.rpc().call(rooms).await.unwrap().rooms;
        let size = rooms[0].size.unwrap();
        assert_eq!((rooms.len(), rooms[0].members, size.unread), (1, 0, 1));
        assert!(size.events >= 6 && size.bytes > 0);
        let back = scene.join("b").await;
        assert_eq!((&back.room, back.unread().await), (&a.room, 1), "what was unread still is");
        assert_eq!(back.try_it().await.handoff, Some(handoff("half done")));
        a.rpc().call(delete()).await.map(|_| ()).unwrap_err();
        back.rpc().call(delete()).await.unwrap();
        assert_eq!(
            code(back.rpc().call(GetRoomState { room_id: a.room.clone(), ..Default::default() }).await),
            ErrorCode::RoomNotFound
        );
    });
}

#[test]
fn a_person_is_there_while_any_of_its_terminals_is_and_messages_wait_for_it() {
    block_on(async {
        let scene = Scene::new(home!());
        let a = scene.join("a").await;
        let first = join_person(&scene, 20).await;
        let second = join_person(&scene, 21).await;
        assert_eq!(first.id, second.id);
        let turn = second.claim().await;
        scene.cast.kill(Cast::player(21));
        let status = |state: &tt_proto::requests::RoomState| {
            state.members.iter().find(|m| m.agent_id == first.id).map(|m| m.status)
        };
        a.note("a command looks at every process").await.unwrap();
        assert_eq!(status(&a.state().await), Some(MemberStatus::Active), "one terminal is left");
        scene.cast.kill(Cast::player(20));
        a.until(|state| status(state) == Some(MemberStatus::Away)).await;
        assert_eq!(a.take_over(turn.id).await.map(|_| ()), Err(ErrorCode::TakeoverNotAvailable), "only a tab closed");
        for to in [None, Some("human")] {
            let say = SendMessage {
                room_id: a.room.clone(),
                to: to.map(Into::into),
                body: "hi".into(),
                ..Default::default()
            };
            let sent = a.rpc().call(say).await.unwrap();
            assert_eq!(sent.recipients.iter().map(|r| &r.agent_id).collect::<Vec<_>>(), [&first.id]);
        }
        let back = join_person(&scene, 22).await;
        assert_eq!((status(&back.state().await), back.unread().await), (Some(MemberStatus::Active), 2));
    });
}

#[test]
fn every_terminal_of_a_person_shows_every_message() {
    block_on(async {
        let scene = Scene::new(home!());
        let a = scene.join("a").await;
        let (one, two) = (join_person(&scene, 20).await, join_person(&scene, 21).await);
        let mut cursors = Vec::new();
        for terminal in [&one, &two] {
            let taken = terminal.rpc().call(take(terminal, None)).await.unwrap();
            cursors.push(taken.cursor_event_seq.unwrap());
        }
        let say = SendMessage { room_id: a.room.clone(), body: "hi".into(), ..Default::default() };
        let sent = a.rpc().call(say).await.unwrap();
        for (terminal, cursor) in [&one, &two].into_iter().zip(cursors) {
            let taken = terminal.rpc().call(take(terminal, Some(cursor))).await.unwrap();
            assert_eq!(taken.events.iter().map(|e| e.event_seq).collect::<Vec<_>>(), [sent.event_seq]);
            let confirm = tt_proto::requests::ConfirmMessages {
                room_id: a.room.clone(),
                surface: "follow".into(),
                event_seqs: vec![sent.event_seq],
            };
            terminal.rpc().call(confirm).await.unwrap();
        }
        assert_eq!(one.unread().await, 0);
        assert_eq!(code(a.rpc().call(take(&a, Some(0))).await), ErrorCode::InvalidInput, "an agent has an inbox");
    });
}

#[test]
fn a_message_is_marked_as_a_persons_only_if_its_processes_show_one() {
    block_on(async {
        let scene = Scene::new(home!());
        let a = scene.join("a").await;
        let alice = join_person(&scene, 20).await;
        let marked = async |member: &Arc<Member>| {
            let say = SendMessage { room_id: a.room.clone(), body: "stop".into(), ..Default::default() };
            let sent = member.rpc().call(say).await.unwrap();
            let event = a.events().await.into_iter().find(|event| event.event_seq == sent.event_seq).unwrap();
            serde_json::from_str::<MessageSent>(event.payload.unwrap().as_str()).unwrap().from_person
        };
        assert!(marked(&alice).await);
        assert!(!marked(&a).await, "an agent");
        scene.cast.play_harness(Some("claude"));
        assert!(!marked(&alice).await, "a harness above the terminal, whatever the variables say");
    });
}

#[test]
fn a_kicked_member_stays_out_until_it_joins_and_hears_why() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let kick = KickMember {
            room_id: a.room.clone(),
            target_agent_id: b.id.clone(),
            force: Some(true),
            reason: Some("it loops".into()),
            ..Default::default()
        };
        a.rpc().call(kick).await.unwrap();
        let dir = scene.dir.to_str().unwrap().to_owned();
        let joining = Settings { joins: true, context_path: Some(dir.clone()), ..scene.settings("b") };
        let client = Client::connect(joining).await.unwrap();
        let say = || SendMessage { room_id: a.room.clone(), body: "hi".into(), ..Default::default() };
        let refusal = refused(client.rpc().call(say()).await);
        assert_eq!(refusal.code, ErrorCode::Kicked);
        assert!(refusal.message.contains("it loops"), "{refusal}");
        client.rpc().call(JoinPath { context_path: dir, ..Default::default() }).await.unwrap();
        client.rpc().call(say()).await.unwrap();
    });
}

#[test]
fn what_is_refused_makes_nobody_a_member() {
    let home = home!();
    let work = home.path().join("work");
    std::fs::create_dir_all(&work).unwrap();
    let tt = |agent: &str, args: &[&str]| run::finish(home.tt_as(agent, args).current_dir(&work));
    tt("a:1", &["join"]).ok();
    for args in [&["take", "--reason", "x"][..], &["kick", "a"], &["msg", "send", "nobody", "hi"]] {
        tt("b:1", args).refused(3);
    }
    let state = tt("a:1", &["state"]).ok().json();
    assert_eq!(state["members"].as_array().unwrap().len(), 1, "{state}");
    tt("b:1", &["msg", "send", "--room", "hello", "all"]).ok();
    let state = tt("a:1", &["state"]).ok().json();
    assert_eq!((state["members"].as_array().unwrap().len(), &state["members"][0]["unread"]), (2, &1.into()));
}

#[test]
fn names_are_handles() {
    block_on(async {
        let scene = Scene::new(home!());
        let join = async |name: &str, display: Option<&str>| {
            let client = Client::connect(scene.settings(name)).await.unwrap();
            let context_path = scene.dir.to_str().unwrap().to_owned();
            let display_name = display.map(Into::into);
            client.rpc().call(JoinPath { context_path, display_name, ..Default::default() }).await
        };
        for word in ["room", "All", "everyone", "self", "any", "here", "codex:1"] {
            assert_eq!(code(join("a", Some(word)).await), ErrorCode::InvalidInput, "{word}");
        }
        let name = |joined: &tt_proto::requests::Joined| {
            joined.members.iter().find(|m| m.agent_id == joined.agent_id).unwrap().display_name.clone()
        };
        assert_eq!(name(&join("a", Some("claude")).await.unwrap()), "claude");
        assert_eq!(name(&join("b", Some("claude")).await.unwrap()), "claude-2");
        let c = scene.join("c").await;
        let say = |to: &str| SendMessage {
            room_id: c.room.clone(),
            to: Some(to.into()),
            body: "x".into(),
            ..Default::default()
        };
        let refusal = refused(c.rpc().call(say("claude")).await);
        assert_eq!(refusal.code, ErrorCode::AmbiguousRecipient);
        assert!(refusal.message.contains("claude (a, active) or claude-2 (b, active)"), "{refusal}");
        for everyone in ["room", "all", "Everyone"] {
            assert_eq!(c.rpc().call(say(everyone)).await.unwrap().recipients.len(), 2);
        }
        join("b", Some("reviewer")).await.unwrap();
        assert_eq!(c.count(EventType::MemberRenamed).await, 1);
        assert_eq!(c.rpc().call(say("reviewer")).await.unwrap().recipients[0].agent_id.as_str(), "b");
        scene.kill("a");
        c.until_gone("a").await;
        assert_eq!(c.rpc().call(say("claude")).await.unwrap().recipients[0].agent_id.as_str(), "a", "gone, and named");
    });
}

#[test]
fn a_room_above_a_repository_does_not_capture_it() {
    let home = home!();
    let src = home.path().join("src");
    let tt = |at: &std::path::Path, args: &[&str]| run::finish(home.tt(args).current_dir(at));
    for (name, is_file) in [("proj", false), ("worktree", true)] {
        std::fs::create_dir_all(src.join(name).join("deep")).unwrap();
        match is_file {
            true => std::fs::write(src.join(name).join(".git"), "gitdir: elsewhere\n").unwrap(),
            false => std::fs::create_dir(src.join(name).join(".git")).unwrap(),
        }
    }
    tt(&src, &["join"]).ok();
    for name in ["proj", "worktree"] {
        let top = src.join(name).canonicalize().unwrap();
        tt(&top.join("deep"), &["state", "--json"]).refused(3);
        let joined = tt(&top.join("deep"), &["join", "--json"]).ok().json();
        assert_eq!(joined["canonical_path"], top.to_str().unwrap());
        assert!(joined["warning"].as_str().unwrap().contains("above this repository"), "{joined}");
        let state = tt(&top.join("deep"), &["state", "--json"]).ok().json();
        assert_eq!(state["room"]["canonical_path"], top.to_str().unwrap());
    }
}
