//! Turns on a real daemon over a real socket: who is woken by what, who may take over when, and what is refused.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tt_proto::event::EventType;
use tt_proto::handoff::RawJson;
use tt_proto::note::MAX_NOTE_BYTES;
use tt_proto::policy::PolicyOverrides;
use tt_proto::requests::{
    AddNote, Departure, GetRoomEvents, GetRoomState, Heartbeat, KickMember, LeaveRoom, ListNotes, ListRooms, PassStick,
    ReleaseStick, ResolveNote, SetRoomPolicy, TakeoverStick, WaitForTurn,
};
use tt_proto::room::DerivedState;
use tt_proto::turn::{TakeoverReason, WaitStatus};
use tt_proto::{ErrorCode, LeaseId, RoomId};
use tt_tests::home::send;
use tt_tests::scene::{code, handoff, refused, told};
use tt_tests::{LIMIT, Member, Running, Scene, Turn, block_on, home};

const MINUTE: u64 = 60;

/// Long enough for a wait that wakes without cause to be caught at it.
const A_WHILE: Duration = Duration::from_millis(300);

#[test]
fn a_wait_ends_with_the_turn_when_the_holder_releases_passes_leaves_or_is_kicked() {
    block_on(async {
        for (how, expected) in [
            ("release", "your_turn sequence"),
            ("pass", "your_turn direct_pass"),
            ("leave", "your_turn open_claim"),
            ("kick", "your_turn open_claim"),
        ] {
            let scene = Scene::new(home!());
            let (a, b, c) = (scene.join("a").await, scene.join("b").await, scene.join("c").await);
            let turn = a.claim().await;
            let wait = b.start_waiting().await;
            match how {
                "release" => a.release(&turn, "done").await,
                "pass" => a.pass(&turn, &b, "done").await,
                "leave" => {
                    drop(a.rpc().call(LeaveRoom { room_id: a.room.clone(), ..Default::default() }).await.unwrap())
                }
                _ => drop(
                    c.rpc()
                        .call(KickMember {
                            room_id: c.room.clone(),
                            target_agent_id: a.id.clone(),
                            force: Some(true),
                            ..Default::default()
                        })
                        .await
                        .unwrap(),
                ),
            }
            let wait = wait.await.unwrap();
            assert_eq!((told(&wait).as_str(), wait.turn_id), (expected, 2), "{how}");
            let given = matches!(how, "release" | "pass");
            assert_eq!(wait.handoff, given.then(|| handoff("done")), "{how}");
            assert_eq!(wait.from_agent_id, given.then(|| a.id.clone()), "{how}");
            assert_eq!(b.state().await.room.owner.as_ref(), Some(&b.id));
        }
    });
}

#[test]
fn the_fairest_of_those_who_wait_is_next_and_the_parked_are_passed_over() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let (c, d) = (scene.join("c").await, scene.join("d").await);
        let first = a.claim().await;
        let waiting_b = b.start_waiting().await;
        a.release(&first, "one").await;
        let second = Turn::of(&waiting_b.await.unwrap());
        // a held longer ago than b; c and d never did, and d is parked.
        let parked = d.clone();
        let parked = tokio::spawn(async move {
            parked
                .rpc()
                .call(WaitForTurn {
                    room_id: parked.room.clone(),
                    max_wait_ms: Some(60_000),
                    park: Some(true),
                    ..Default::default()
                })
                .await
                .unwrap()
        });
        d.until(|state| state.members.iter().any(|m| m.agent_id == d.id && m.waiting)).await;
        let (waiting_a, waiting_c) = (a.start_waiting().await, c.start_waiting().await);
        b.release(&second, "two").await;
        let third = waiting_c.await.unwrap();
        assert_eq!((told(&third).as_str(), third.handoff.clone()), ("your_turn sequence", Some(handoff("two"))));
        assert!(!waiting_a.is_finished() && !parked.is_finished());
        c.pass(&Turn::of(&third), &d, "three").await;
        assert_eq!(d.state().await.room.reserved_for.as_ref(), Some(&d.id), "a parked member is given no turn");
        assert!(!parked.is_finished());
        d.rpc().call(LeaveRoom { room_id: d.room.clone(), ..Default::default() }).await.unwrap();
        assert_eq!(told(&parked.await.unwrap()), "removed");
        let fourth = waiting_a.await.unwrap();
        assert_eq!(fourth.handoff, Some(handoff("three")), "what d never received is for the next");
    });
}

#[test]
fn a_fairer_member_between_two_waits_is_given_the_grace_and_no_more() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b, c) = (scene.join("a").await, scene.join("b").await, scene.join("c").await);
        let first = a.claim().await;
        let wait = b.start_waiting().await;
        a.release(&first, "one").await;
        let second = Turn::of(&wait.await.unwrap());
        // c never held the stick, waited a moment ago, and is about to wait again.
        assert_eq!(c.try_it().await.status, WaitStatus::NotYet);
        let waiting = a.start_waiting().await;
        b.release(&second, "two").await;
        assert_eq!(told(&b.try_it().await), "not_yet", "the releaser cannot take it straight back");
        assert!(!waiting.is_finished(), "c goes first");
        let state = c.state().await;
        assert_eq!((state.room.owner, state.pending_handoff), (None, Some(handoff("two"))));
        scene.advance(11);
        assert_eq!(told(&waiting.await.unwrap()), "your_turn open_claim", "the grace is over");
    });
}

#[test]
fn a_wait_that_was_refused_holds_nobody_up() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = b.claim().await;
        let waiting = a.start_waiting().await;
        b.release(&turn, "first").await;
        let turn = Turn::of(&waiting.await.unwrap());
        let stranger = Member::join_at(scene.settings("s"), scene.home.path().to_str().unwrap()).await;
        let early = stranger
            .rpc()
            .call(WaitForTurn { room_id: a.room.clone(), max_wait_ms: Some(0), ..Default::default() })
            .await;
        assert_eq!(code(early), ErrorCode::UnknownMember);
        scene.join("s").await;
        // s never held the stick and is fairer than b, but it does not wait, nor did it ever.
        let waiting = b.start_waiting().await;
        a.release(&turn, "done").await;
        assert_eq!(told(&waiting.await.unwrap()), "your_turn sequence");
    });
}

#[test]
fn a_lone_member_takes_the_room_only_when_it_says_so() {
    block_on(async {
        let scene = Scene::new(home!());
        let a = scene.join("a").await;
        let alone = a
            .rpc()
            .call(WaitForTurn { room_id: a.room.clone(), max_wait_ms: Some(0), ..Default::default() })
            .await
            .unwrap();
        assert_eq!(alone.status, WaitStatus::NotYet);
        let wait = a.start_waiting().await;
        scene.join("b").await;
        assert_eq!(told(&wait.await.unwrap()), "your_turn open_claim", "company came");
        let both = a
            .rpc()
            .call(WaitForTurn {
                room_id: a.room.clone(),
                max_wait_ms: Some(0),
                park: Some(true),
                claim: Some(true),
                ..Default::default()
            })
            .await;
        assert_eq!(code(both), ErrorCode::InvalidInput);
    });
}

#[test]
fn a_second_listener_is_refused_and_told_of_the_first() {
    block_on(async {
        let scene = Scene::new(home!());
        let a = scene.join("a").await;
        scene.join("b").await.claim().await;
        // For as long as the daemon lets it, which is longer than this test may take.
        let first = a.clone();
        let wait = tokio::spawn(async move {
            first.rpc().call(WaitForTurn { room_id: first.room.clone(), ..Default::default() }).await.map(drop)
        });
        a.until(|state| state.members.iter().any(|m| m.waiting)).await;
        let again = scene.join("a").await;
        let error = refused(
            again.rpc().call(WaitForTurn { room_id: a.room.clone(), max_wait_ms: Some(0), ..Default::default() }).await,
        );
        assert_eq!(error.code, ErrorCode::DuplicateListener);
        assert_eq!(error.details["pid"], std::process::id(), "{error:?}");
        // The first is cut off in the middle of its wait.
        wait.abort();
        drop(a);
        let _ = wait.await;
        loop {
            let again = again
                .rpc()
                .call(WaitForTurn { room_id: again.room.clone(), max_wait_ms: Some(0), ..Default::default() })
                .await;
            match again {
                Ok(wait) => break assert_eq!(wait.status, WaitStatus::NotYet),
                refusal => assert_eq!(code(refusal), ErrorCode::DuplicateListener),
            }
        }
    });
}

#[test]
fn the_place_of_a_listener_that_was_killed_is_free_at_once() {
    let home = home!();
    let tt = |args: &[&str]| {
        let mut tt = home.tt(args);
        tt.env("TT_HARNESS_AGENT_ID", "codex:x");
        tt
    };
    block_on(async {
        let holder = Member::join_at(home.settings_of("h"), home.path().to_str().unwrap()).await;
        tt_tests::run::finish(&mut tt(&["join"])).ok();
        holder.claim().await;
        for _ in 0..10 {
            let first = Running::start(&mut tt(&["wait"]));
            holder.until(|state| state.members.iter().any(|m| m.waiting)).await;
            first.signal(Signal::SIGKILL);
            assert!(first.ended_within(LIMIT));
            let second = tt_tests::run::finish(&mut tt(&["wait", "--timeout", "0s"])).json();
            assert_eq!(second["status"], "timeout");
        }
    });
}

#[test]
fn a_wait_in_progress_ends_as_removed_when_its_member_is_kicked_or_the_room_goes() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        let wait = b.start_waiting().await;
        a.rpc()
            .call(KickMember {
                room_id: a.room.clone(),
                target_agent_id: b.id.clone(),
                force: Some(true),
                reason: Some("off".into()),
                ..Default::default()
            })
            .await
            .unwrap();
        assert_eq!(told(&wait.await.unwrap()), "removed");
        a.release(&turn, "done").await;
        assert_eq!(a.state().await.room.owner, None, "nobody who was removed is granted anything");
        let gone =
            b.rpc().call(WaitForTurn { room_id: b.room.clone(), max_wait_ms: Some(0), ..Default::default() }).await;
        assert_eq!(code(gone), ErrorCode::Kicked);
    });
}

#[test]
fn a_wait_from_a_second_terminal_outlives_the_first() {
    block_on(async {
        let scene = Scene::new(home!());
        let holder = scene.join("h").await;
        let turn = holder.claim().await;
        // The same member from two processes; the one it joined from last is the first to end.
        let mut elsewhere = scene.settings("a");
        elsewhere.signals.env.insert("CLAUDE_PID".into(), tt_tests::Cast::player(25).to_string());
        let second = Member::join_at(elsewhere, scene.dir.to_str().unwrap()).await;
        let first = scene.join("a").await;
        let mut wait = second.start_waiting().await;
        scene.kill("a");
        drop(first);
        assert!(tokio::time::timeout(A_WHILE, &mut wait).await.is_err(), "it ended with the other process");
        holder.release(&turn, "done").await;
        let wait = wait.await.unwrap();
        assert_eq!(told(&wait), "your_turn sequence");
        let left = second.events().await.into_iter().filter(|e| e.event_type == EventType::MemberLeft).count();
        assert_eq!(left, 0, "it was here all along");
    });
}

// The takeover table, row by row.

#[test]
fn nobody_takes_the_stick_from_a_holder_who_is_well() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        assert_eq!(b.take_over(0).await.unwrap_err(), ErrorCode::TakeoverNotAvailable, "idle");
        let turn = a.claim().await;
        assert_eq!(b.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverNotAvailable);
        assert_eq!(a.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverNotAvailable, "the holder itself");
        assert_eq!(b.take_over(turn.id - 1).await.unwrap_err(), ErrorCode::TurnMismatch);
        assert!(!b.state().await.takeover.available);
    });
}

#[test]
fn takeover_claim_timeout_and_the_prior_owner_refused_then_allowed() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b, c) = (scene.join("a").await, scene.join("b").await, scene.join("c").await);
        let turn = a.claim().await;
        a.pass(&turn, &b, "for you").await;
        let (waiting_a, waiting_c) = (a.start_waiting().await, c.start_waiting().await);
        scene.advance(20 * MINUTE - 1);
        assert_eq!(c.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverNotAvailable);
        scene.advance(1);
        assert_eq!(told(&waiting_c.await.unwrap()), "takeover_available claim_timeout");
        assert!(!waiting_a.is_finished(), "the prior owner leaves it to another");
        assert_eq!(a.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverIneligible);
        assert_eq!(a.count(EventType::ReservationExpired).await, 1);
        scene.kill("c");
        assert_eq!(told(&waiting_a.await.unwrap()), "takeover_available claim_timeout", "nobody else is left");
        let taken = a.take_over(turn.id).await.unwrap();
        assert_eq!((taken.turn_id, taken.reason), (2, TakeoverReason::ClaimTimeout));
        assert_eq!(taken.revoked_agent_id.as_ref(), Some(&b.id));
        assert!(taken.handoff.is_some(), "the handoff that nobody picked up comes with it");
        assert_eq!(a.state().await.current_handoff, taken.handoff, "and stays visible");
    });
}

#[test]
fn a_reservation_past_its_deadline_is_still_its_members_until_somebody_takes_it() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        a.pass(&turn, &b, "for you").await;
        scene.advance(21 * MINUTE);
        let wait = b.try_it().await;
        assert_eq!((told(&wait).as_str(), wait.handoff), ("your_turn direct_pass", Some(handoff("for you"))));
    });
}

#[test]
fn takeover_owner_timeout_and_an_expired_owner_that_acts_keeps_the_stick() {
    block_on(async {
        let scene = Scene::with(home!(), |options| options.policy.owner_activity_ttl = Duration::from_secs(86_400));
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        scene.advance(45 * MINUTE);
        assert_eq!(b.state().await.room.derived_state, Some(DerivedState::StaleOwner));
        a.beat(&turn).await.unwrap();
        assert_eq!(b.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverNotAvailable);
        let waiting = b.start_waiting().await;
        scene.advance(45 * MINUTE);
        assert_eq!(told(&waiting.await.unwrap()), "takeover_available owner_timeout");
        assert_eq!(b.take_over(turn.id).await.unwrap().reason, TakeoverReason::OwnerTimeout);
        let late = refused(a.beat(&turn).await);
        assert_eq!((late.code, &late.details["turn_id"]), (ErrorCode::TurnMismatch, &2.into()));
        assert_eq!(late.details["owner"], b.id.as_str());
        assert_eq!(late.details["state"], "owned");
    });
}

#[test]
fn takeover_owner_gone_at_once() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        let waiting = b.start_waiting().await;
        scene.kill("a");
        let wait = waiting.await.unwrap();
        assert_eq!(told(&wait), "takeover_available owner_gone");
        assert_eq!(wait.from_agent_id.as_ref(), Some(&a.id));
        assert_eq!(b.state().await.room.derived_state, Some(DerivedState::OwnerGone));
        assert_eq!(b.state().await.room.owner.as_ref(), Some(&a.id), "ownership never moves by itself");
        assert_eq!(b.take_over(turn.id).await.unwrap().reason, TakeoverReason::OwnerGone);
        let history = b.history().await;
        assert!(history.iter().any(|event| event == "takeover owner_gone: stuck"), "{history:?}");
    });
}

#[test]
fn a_holder_that_only_fell_silent_and_then_dies_is_reported_too() {
    block_on(async {
        let scene = Scene::with(home!(), |options| options.policy.presence_ttl = Duration::from_secs(60));
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        a.claim().await;
        // b is heard of in the middle, or it would be gone as well.
        scene.advance(MINUTE / 2);
        b.state().await;
        scene.advance(MINUTE / 2);
        b.until_gone(a.id.as_str()).await;
        assert_eq!(b.state().await.room.derived_state, None, "silence is not death, and the lease still runs");
        let waiting = b.start_waiting().await;
        scene.kill("a");
        assert_eq!(told(&waiting.await.unwrap()), "takeover_available owner_gone");
    });
}

#[test]
fn a_holder_that_goes_on_in_another_process_is_watched_there() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        a.claim().await;
        let waiting = b.start_waiting().await;
        // One command moves it there, and no other follows that would make anybody look.
        let mut elsewhere = scene.settings("a");
        elsewhere.signals.env.insert("CLAUDE_PID".into(), tt_tests::Cast::player(25).to_string());
        let client = tt_client::connect::Client::connect(elsewhere).await.unwrap();
        client
            .rpc()
            .call(AddNote { room_id: a.room.clone(), body: "on from here".into(), ..Default::default() })
            .await
            .unwrap();
        scene.kill("z");
        assert_eq!(told(&waiting.await.unwrap()), "takeover_available owner_gone");
    });
}

#[test]
fn takeover_recipient_gone_at_once() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b, c) = (scene.join("a").await, scene.join("b").await, scene.join("c").await);
        let turn = a.claim().await;
        a.pass(&turn, &b, "for you").await;
        let waiting = c.start_waiting().await;
        scene.kill("b");
        assert_eq!(told(&waiting.await.unwrap()), "takeover_available recipient_gone");
        assert_eq!(c.state().await.room.derived_state, Some(DerivedState::RecipientGone));
        assert_eq!(c.take_over(turn.id).await.unwrap().reason, TakeoverReason::RecipientGone);
    });
}

#[test]
fn takeover_owner_idle_with_and_without_someone_waiting() {
    block_on(async {
        let scene = Scene::with(home!(), |options| options.policy.owner_activity_ttl = Duration::from_secs(60));
        let (a, b, c) = (scene.join("a").await, scene.join("b").await, scene.join("c").await);
        let turn = a.claim().await;
        scene.advance(2 * MINUTE);
        assert_eq!(b.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverNotAvailable, "nobody waits");
        let wait = c.wait().await;
        assert_eq!(told(&wait), "takeover_available owner_idle", "c waits");
        assert_eq!(b.state().await.room.derived_state, Some(DerivedState::OwnerIdle));
        c.rpc().call(LeaveRoom { room_id: c.room.clone(), ..Default::default() }).await.unwrap();
        assert_eq!(b.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverNotAvailable, "c waits no more");
        assert_eq!(told(&b.wait().await), "takeover_available owner_idle");
        assert_eq!(b.take_over(turn.id).await.unwrap().reason, TakeoverReason::OwnerIdle);
    });
}

#[test]
fn an_operator_may_override_and_the_log_says_so() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b, c) = (scene.join("a").await, scene.join("b").await, scene.join("c").await);
        let turn = a.claim().await;
        let over = |m: Arc<Member>, turn, reason: &'static str| async move {
            m.rpc()
                .call(TakeoverStick {
                    room_id: m.room.clone(),
                    expected_turn_id: turn,
                    reason: reason.into(),
                    operator_override: Some(true),
                    ..Default::default()
                })
                .await
        };
        assert_eq!(code(over(b.clone(), turn.id, " ").await), ErrorCode::InvalidInput, "a reason is needed");
        let taken = over(b.clone(), turn.id, "going home").await.unwrap();
        assert_eq!((taken.reason, taken.revoked_agent_id), (TakeoverReason::OperatorOverride, Some(a.id.clone())));
        let history = b.history().await;
        let [.., takeover, told] = history.as_slice() else { panic!("{history:?}") };
        assert_eq!((takeover.as_str(), told.as_str()), ("takeover operator_override: going home", "message_sent -"));
        // It also overrides the refusal of a prior owner.
        let turn = Turn { id: taken.turn_id, lease: taken.lease_id };
        b.pass(&turn, &c, "x").await;
        scene.advance(20 * MINUTE);
        assert_eq!(b.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverIneligible);
        let taken = over(b.clone(), turn.id, "mine").await.unwrap();
        assert_eq!(taken.reason, TakeoverReason::OperatorOverride);
    });
}

#[test]
fn whatever_the_holder_does_renews_its_lease() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        for sign in 0..6 {
            scene.advance(44 * MINUTE);
            match sign {
                0 => drop(a.beat(&turn).await.unwrap()),
                1 => drop(a.note("still at it").await.unwrap()),
                2 => drop(a.state().await),
                3 => drop(a.rpc().call(ListRooms::default()).await.unwrap()),
                4 => assert_eq!(told(&a.try_it().await), "your_turn already_owner"),
                _ => assert_eq!(
                    code(
                        a.rpc()
                            .call(ReleaseStick {
                                room_id: a.room.clone(),
                                lease_id: turn.lease.clone(),
                                expected_turn_id: 0,
                                handoff: handoff("x"),
                                ..Default::default()
                            })
                            .await
                    ),
                    ErrorCode::TurnMismatch
                ),
            }
            assert_eq!(b.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverNotAvailable, "sign {sign}");
        }
        scene.advance(45 * MINUTE);
        b.take_over(turn.id).await.unwrap();
    });
}

#[test]
fn a_wall_clock_set_an_hour_off_changes_nothing() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        let waiting = b.start_waiting().await;
        for hour in [3_600_000, -7_200_000] {
            scene.clock.turn_wall(hour);
            let state = b.state().await;
            assert_eq!((state.takeover.available, state.room.owner.as_ref()), (false, Some(&a.id)));
            let beat = a.beat(&turn).await.unwrap();
            let left = beat.lease_expires_at.since(scene.clock.wall());
            assert!(left > Duration::from_secs(44 * MINUTE) && left <= Duration::from_secs(45 * MINUTE), "{left:?}");
        }
        assert!(!waiting.is_finished());
        scene.advance(45 * MINUTE);
        assert_eq!(told(&waiting.await.unwrap()), "takeover_available owner_timeout", "real time still counts");
    });
}

#[test]
fn a_daemon_started_again_in_the_same_boot_goes_by_the_same_clock() {
    block_on(async {
        // The wall clock was an hour ahead when the first daemon started, and is right again.
        let mut scene = Scene::with(home!(), |options| {
            let mut offsets = options.clock.offsets();
            offsets.lease += 3_600_000;
            offsets.deadline += 3_600_000;
            options.clock.set_offsets(offsets);
            options.clock.turn_wall(3_600_000);
        });
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        drop((a, b));
        scene.restart();
        let b = scene.join("b").await;
        let left = b.state().await.room.lease_expires_at.unwrap().since(scene.clock.wall());
        // The minute is the doubt about what a daemon did not write down.
        assert!(left > Duration::from_secs(44 * MINUTE) && left <= Duration::from_secs(46 * MINUTE), "{left:?}");
        assert_eq!(b.take_over(turn.id).await.unwrap_err(), ErrorCode::TakeoverNotAvailable);
        scene.advance(46 * MINUTE);
        b.take_over(turn.id).await.unwrap();
    });
}

#[test]
fn every_refusal_has_its_code() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        let (room, lease) = (a.room.clone(), turn.lease.clone());
        let nowhere = RoomId::from("nowhere");
        let stranger = Member::join_at(scene.settings("s"), scene.home.path().join("..").to_str().unwrap()).await;

        for rpc in [a.rpc(), stranger.rpc()] {
            assert_eq!(
                code(rpc.call(GetRoomState { room_id: nowhere.clone(), ..Default::default() }).await),
                ErrorCode::RoomNotFound
            );
            assert_eq!(
                code(rpc.call(LeaveRoom { room_id: nowhere.clone(), ..Default::default() }).await),
                ErrorCode::RoomNotFound
            );
            let wait =
                rpc.call(WaitForTurn { room_id: nowhere.clone(), max_wait_ms: Some(0), ..Default::default() }).await;
            assert_eq!(code(wait), ErrorCode::RoomNotFound);
        }
        let rpc = stranger.rpc();
        assert_eq!(
            code(rpc.call(WaitForTurn { room_id: room.clone(), max_wait_ms: Some(0), ..Default::default() }).await),
            ErrorCode::UnknownMember
        );
        assert_eq!(
            code(rpc.call(Heartbeat { room_id: room.clone(), lease_id: lease.clone(), expected_turn_id: 1 }).await),
            ErrorCode::UnknownMember
        );
        assert_eq!(
            code(rpc.call(LeaveRoom { room_id: room.clone(), ..Default::default() }).await),
            ErrorCode::UnknownMember
        );
        assert_eq!(
            code(rpc.call(AddNote { room_id: room.clone(), body: "n".into(), ..Default::default() }).await),
            ErrorCode::UnknownMember
        );
        let policy = rpc
            .call(SetRoomPolicy { room_id: room.clone(), policy: PolicyOverrides::default(), ..Default::default() })
            .await;
        assert_eq!(code(policy), ErrorCode::UnknownMember);

        let kick = |target: &str, force| {
            a.rpc().call(KickMember {
                room_id: room.clone(),
                target_agent_id: tt_proto::AgentId::trusted(target),
                force,
                ..Default::default()
            })
        };
        assert_eq!(code(kick("nobody", Some(true)).await), ErrorCode::UnknownTarget);
        assert_eq!(code(kick("b", None).await), ErrorCode::TargetActive);
        assert_eq!(code(kick("a", Some(true)).await), ErrorCode::CannotKickSelf);

        let pass = |to: &str| {
            let to = tt_proto::AgentId::trusted(to);
            a.rpc().call(PassStick {
                room_id: room.clone(),
                lease_id: lease.clone(),
                expected_turn_id: turn.id,
                to_agent_id: to,
                handoff: handoff("x"),
                ..Default::default()
            })
        };
        assert_eq!(code(pass("nobody").await), ErrorCode::UnknownTarget);
        assert_eq!(code(pass("a").await), ErrorCode::InvalidInput);

        let release = |m: Arc<Member>, lease: LeaseId, turn: i64| {
            let room = room.clone();
            async move {
                m.rpc()
                    .call(ReleaseStick {
                        room_id: room,
                        lease_id: lease,
                        expected_turn_id: turn,
                        handoff: handoff("x"),
                        ..Default::default()
                    })
                    .await
            }
        };
        let stale = refused(release(a.clone(), LeaseId::fresh(), turn.id).await);
        assert_eq!(stale.code, ErrorCode::StaleLease);
        assert_eq!((&stale.details["owner"], &stale.details["turn_id"]), (&"a".into(), &1.into()));
        assert_eq!(stale.details["state"], "owned");
        assert_eq!(code(release(b.clone(), lease.clone(), turn.id).await), ErrorCode::StaleLease);
        assert_eq!(code(release(a.clone(), lease.clone(), 7).await), ErrorCode::TurnMismatch);
        assert_eq!(
            code(
                b.rpc()
                    .call(Heartbeat { room_id: room.clone(), lease_id: lease.clone(), expected_turn_id: turn.id })
                    .await
            ),
            ErrorCode::StaleLease
        );

        let park = a
            .rpc()
            .call(WaitForTurn { room_id: room.clone(), max_wait_ms: Some(0), park: Some(true), ..Default::default() })
            .await;
        assert_eq!(code(park), ErrorCode::ParkRequiresRelease);
        let note = a
            .rpc()
            .call(AddNote { room_id: room.clone(), body: "n".into(), turn_id: Some(2), ..Default::default() })
            .await;
        assert_eq!(code(note), ErrorCode::InvalidTurnId);
        let events = a
            .rpc()
            .call(GetRoomEvents { room_id: room.clone(), after_event_seq: Some(-1), ..Default::default() })
            .await;
        assert_eq!(code(events), ErrorCode::InvalidCursor);
        let notes = a
            .rpc()
            .call(ListNotes { room_id: room.clone(), after_note_id: Some("nothing".into()), ..Default::default() })
            .await;
        assert_eq!(code(notes), ErrorCode::InvalidCursor);
        assert_eq!(
            code(a.rpc().call(ResolveNote { room_id: room.clone(), note_id: "x".into(), ..Default::default() }).await),
            ErrorCode::UnknownTarget
        );
        let key = Some("k".repeat(129));
        assert_eq!(
            code(
                a.rpc()
                    .call(AddNote {
                        room_id: room.clone(),
                        body: "n".into(),
                        idempotency_key: key,
                        ..Default::default()
                    })
                    .await
            ),
            ErrorCode::InvalidInput
        );

        assert_eq!(
            a.beat(&turn).await.unwrap().status,
            tt_proto::requests::HeartbeatStatus::Ok,
            "and nothing has changed"
        );
        assert_eq!(a.events().await.len(), 3);
    });
}

#[test]
fn a_connection_that_has_not_said_hello_has_no_name_to_call_by() {
    let scene = Scene::new(home!());
    let mut wire = tt_tests::Wire::upgraded(&scene.home.paths().socket);
    for method in ["wait_for_turn", "get_room_state", "leave_room"] {
        wire.text(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"room_id":"x"}}}}"#));
        let answer = wire.answer();
        assert!(answer.contains("agent_id_required"), "{method}: {answer}");
    }
}

#[test]
fn handoffs_that_say_nothing_are_refused_and_good_ones_come_back_to_the_letter() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let turn = a.claim().await;
        for bad in [
            "{}",
            "null",
            "[]",
            r#""done""#,
            r#"{"status":"s"}"#,
            r#"{"next_action":"n"}"#,
            r#"{"status":"","next_action":"n"}"#,
            r#"{"status":"s","next_action":" \t\n"}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"path":"a","role":"edit","lines":[9,2]}]}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"path":"a","role":"edit","lines":[0,2]}]}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"path":"","role":"edit"}]}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"path":"a","role":"paint"}]}"#,
            r#"{"status":"s","next_action":"n","open_questions":"why"}"#,
        ] {
            let words = RawJson::parse(bad.into()).unwrap();
            let (room, lease) = (a.room.clone(), turn.lease.clone());
            let released = a
                .rpc()
                .call(ReleaseStick {
                    room_id: room.clone(),
                    lease_id: lease.clone(),
                    expected_turn_id: turn.id,
                    handoff: words.clone(),
                    ..Default::default()
                })
                .await;
            assert_eq!(code(released), ErrorCode::InvalidHandoff, "{bad}");
            let passed = a
                .rpc()
                .call(PassStick {
                    room_id: room,
                    lease_id: lease,
                    expected_turn_id: turn.id,
                    to_agent_id: b.id.clone(),
                    handoff: words,
                    ..Default::default()
                })
                .await;
            assert_eq!(code(passed), ErrorCode::InvalidHandoff, "{bad}");
        }
        assert_eq!(a.state().await.room.owner.as_ref(), Some(&a.id));
        let good = r#"{ "next_action":"n" ,"status":"zoë \u00e9\ud83d\ude00", "mood": 1.50, "artifacts":[{"path":"a b","lines":[3,3],"role":"output","note":"x"}] }"#;
        let words = RawJson::parse(good.into()).unwrap();
        let wait = b.start_waiting().await;
        a.rpc()
            .call(ReleaseStick {
                room_id: a.room.clone(),
                lease_id: turn.lease.clone(),
                expected_turn_id: turn.id,
                handoff: words,
                ..Default::default()
            })
            .await
            .unwrap();
        assert_eq!(wait.await.unwrap().handoff.unwrap().as_str(), good);
        let log = b.events().await;
        let stored = log.iter().find(|e| e.event_type == EventType::Release).unwrap().handoff.as_ref().unwrap();
        assert_eq!(stored.as_str(), good);
        assert!(log.iter().filter(|e| e.event_type == EventType::Release).all(|e| e.payload.is_none()));
    });
}

#[test]
fn notes_are_kept_resolved_once_and_limited_in_length() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        let longest = "ü".repeat(MAX_NOTE_BYTES / 2);
        let first = a.note(&longest).await.unwrap();
        let error = refused(a.note(&format!("{longest}x")).await);
        assert_eq!((error.code, &error.details["bytes"]), (ErrorCode::BodyTooLarge, &(MAX_NOTE_BYTES + 1).into()));
        for empty in ["", " \n\t"] {
            assert_eq!(code(a.note(empty).await), ErrorCode::InvalidBody);
        }
        let second = b.note("second").await.unwrap();
        let list = |after, all| {
            a.rpc().call(ListNotes {
                room_id: a.room.clone(),
                after_note_id: after,
                include_resolved: Some(all),
                limit: Some(1),
            })
        };
        let page = list(None, false).await.unwrap().notes;
        assert_eq!((page.len(), page[0].body.as_str()), (1, longest.as_str()));
        assert_eq!(list(Some(first.note_id.clone()), false).await.unwrap().notes[0].note_id, second.note_id);
        let resolve = |m: Arc<Member>| {
            let note = first.note_id.clone();
            async move {
                m.rpc()
                    .call(ResolveNote { room_id: m.room.clone(), note_id: note, ..Default::default() })
                    .await
                    .unwrap()
            }
        };
        let resolved = resolve(b.clone()).await;
        assert_eq!(resolve(a.clone()).await, resolved, "whoever resolves it first stands");
        assert_eq!(list(None, false).await.unwrap().notes[0].note_id, second.note_id);
        assert_eq!(list(None, true).await.unwrap().notes[0].resolved_by_agent_id.as_ref(), Some(&b.id));
        assert_eq!((a.count(EventType::NoteAdded).await, a.count(EventType::NoteResolved).await), (2, 1));
    });
}

#[test]
fn leaving_gives_back_the_stick_and_the_room_stays() {
    block_on(async {
        let scene = Scene::new(home!());
        let (a, b) = (scene.join("a").await, scene.join("b").await);
        a.claim().await;
        let left = a.rpc().call(LeaveRoom { room_id: a.room.clone(), ..Default::default() }).await.unwrap();
        assert_eq!((left.status, left.remaining_members), (Departure::Left, 1));
        assert_eq!(b.state().await.room.owner, None);
        let last = b.rpc().call(LeaveRoom { room_id: b.room.clone(), ..Default::default() }).await.unwrap();
        assert_eq!((last.status, last.remaining_members), (Departure::Left, 0));
        let rooms = b.rpc().call(ListRooms::default()).await.unwrap().rooms;
        assert_eq!((rooms.len(), rooms[0].members), (1, 0));
        let again = scene.join("a").await;
        assert_eq!((&again.room, again.joined.joined_existing_room), (&a.room, true));
    });
}

#[test]
fn a_waiter_is_told_when_the_holders_process_is_killed() {
    const ROUNDS: usize = 10;
    let home = home!();
    home.start();
    let path = home.path().to_str().unwrap().to_owned();
    block_on(async {
        let waiter = Member::join_at(home.settings_of("waiter"), &path).await;
        for round in 0..ROUNDS {
            // A shell that leads its session, as a terminal's does; the member lives as long as it does.
            let mut shell = home.command("setsid");
            shell.args(["--wait", "sh", "-c", "echo $$ >&2; \"$0\" join && \"$0\" try && read -r never"]);
            shell.arg(home.tt_path()).env("TT_HARNESS_AGENT_ID", format!("holder:{round}"));
            let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let mut pid = String::new();
            BufReader::new(shell.stderr.take().unwrap()).read_line(&mut pid).unwrap();
            let pid = pid.trim().parse().unwrap();
            let holder = format!("holder:{round}");
            let state = waiter.until(|s| s.room.owner.as_ref().is_some_and(|o| o.as_str() == holder)).await;
            let waiting = waiter.start_waiting().await;
            send(pid, Signal::SIGKILL);
            let wait = waiting.await.unwrap();
            assert_eq!(told(&wait), "takeover_available owner_gone");
            let _ = shell.wait();
            let taken = waiter.take_over(state.room.turn_id).await.unwrap();
            waiter.release(&Turn { id: taken.turn_id, lease: taken.lease_id }, "next").await;
        }
    });
}
