use tt_proto::delivery::WaitReason as R;
use tt_proto::message::DeliveryHint::{self, Idle, Important, Interrupt, Normal};
use tt_proto::message::MAX_BATCH_BYTES;
use tt_rules::testing::{at, now};

use super::*;

/// The time of every plan here, in seconds.
const NOW: i64 = 10_000;

fn way(name: WayName, reach: Reach) -> WayFacts {
    WayFacts { name, reach, left_out: None }
}

const INTO_IDLE: Reach = Reach::Starts(Abilities { idle: true, busy: false, gone: false });
const INTO_BUSY: Reach = Reach::Starts(Abilities { idle: true, busy: true, gone: false });
const INTO_GONE: Reach = Reach::Starts(Abilities { idle: false, busy: false, gone: true });

/// A recipient that has hooks, and whatever else.
fn room(more: &[WayFacts]) -> RoomFacts {
    let hook = way(WayName::Hook, Reach::Calls(None));
    let has_hook = more.iter().any(|way| way.name == WayName::Hook);
    let mut ways: Vec<WayFacts> = more.to_vec();
    ways.extend((!has_hook).then_some(hook));
    ways.sort_by_key(|way| way.name);
    RoomFacts { there: There::Yes, quiet_until: None, settings: Settings::default(), ways }
}

fn message(event_seq: i64, hint: DeliveryHint) -> Message {
    Message {
        event_seq,
        room: 0,
        hint,
        from_person: false,
        wakes: Wakes::ByAgent,
        is_taken: false,
        attempts: 0,
        sent_at: None,
        bytes: 100,
    }
}

fn from_person(event_seq: i64, hint: DeliveryHint) -> Message {
    Message { from_person: true, wakes: Wakes::ByPerson, ..message(event_seq, hint) }
}

/// The plan of these messages for a session that does this since a moment ago.
fn planned(messages: &[Message], doing: Doing, rooms: &[RoomFacts]) -> Plan {
    planned_since(messages, doing, Some(NOW - 5), rooms, &Woken::default())
}

fn planned_since(messages: &[Message], doing: Doing, since: Option<i64>, rooms: &[RoomFacts], woken: &Woken) -> Plan {
    let recipient = Recipient { doing, since: since.map(at), rooms, woken };
    plan(messages, &recipient, MAX_BATCH_BYTES, now(NOW))
}

/// What becomes of one message: the way, or the reason.
fn fate(message: Message, doing: Doing, room: &RoomFacts) -> Result<WayName, R> {
    let plan = planned(&[message], doing, std::slice::from_ref(room));
    match (&plan.hand_over, plan.wait_of(0)) {
        (Some(hand_over), None) if hand_over.messages == [0] => Ok(hand_over.way),
        (None, Some(wait)) => Err(wait.because),
        _ => panic!("{plan:?}"),
    }
}

#[test]
fn every_hint_has_its_moment_whatever_the_session_does() {
    let calls = |opening| room(&[way(WayName::Hook, Reach::Calls(Some(opening)))]);
    let listening = room(&[way(WayName::Listening, Reach::Listens)]);
    let (mid_turn, fresh) = (calls(Opening::MidTurn), calls(Opening::Fresh));
    let (turn_end, held) = (calls(Opening::TurnEnd { was_held: false }), calls(Opening::TurnEnd { was_held: true }));
    let terminal = room(&[way(WayName::Terminal, INTO_IDLE)]);
    let native = room(&[way(WayName::NativeInbox, INTO_BUSY)]);
    // A person types there: the terminal said so a moment ago; the native way leaves the draft as it is.
    let typing = LeftOut { until: at(NOW + 5), because: R::Draft };
    let draft = room(&[WayFacts { left_out: Some(typing), ..way(WayName::Terminal, INTO_IDLE) }]);
    let native_beside_draft = room(&[
        way(WayName::NativeInbox, INTO_IDLE),
        WayFacts { left_out: Some(typing), ..way(WayName::Terminal, INTO_IDLE) },
    ]);
    let bare = room(&[]);
    let nothing = RoomFacts { ways: Vec::new(), ..room(&[]) };
    use Doing::{Asking, Busy, Gone, Unknown};
    use WayName::{Hook, Listening, NativeInbox, Terminal};
    let (idle, normal, important, interrupt) = (0, 1, 2, 3);
    let hints = [Idle, Normal, Important, Interrupt];
    // For each moment what becomes of each hint, of a message that an agent sent by name.
    type Row<'a> = (&'a str, Doing, &'a RoomFacts, [Result<WayName, R>; 4]);
    let table: &[Row<'_>] = &[
        ("in a wait", Busy, &listening, [Ok(Listening); 4]),
        ("in a wait, though a hook said that it is idle", Doing::Idle, &listening, [Ok(Listening); 4]),
        ("in a wait, though a question is open", Asking, &listening, [Ok(Listening); 4]),
        ("in a wait, and nothing else is known", Unknown, &listening, [Ok(Listening); 4]),
        ("in a wait, though its process seemed to end", Gone, &listening, [Ok(Listening); 4]),
        ("busy", Busy, &bare, [Err(R::UntilTurnEnds), Err(R::Working), Err(R::Working), Err(R::Working)]),
        ("busy, at a tool", Busy, &mid_turn, [Err(R::UntilTurnEnds), Ok(Hook), Ok(Hook), Ok(Hook)]),
        (
            "at a tool, though it seemed idle",
            Doing::Idle,
            &mid_turn,
            [Err(R::UntilTurnEnds), Ok(Hook), Ok(Hook), Ok(Hook)],
        ),
        (
            "at a tool, though a question is open",
            Asking,
            &mid_turn,
            [Err(R::UntilTurnEnds), Ok(Hook), Ok(Hook), Ok(Hook)],
        ),
        ("its turn ends", Doing::Idle, &turn_end, [Ok(Hook); 4]),
        ("its turn ends, and nothing else is known", Unknown, &turn_end, [Ok(Hook); 4]),
        ("its turn ends again after it was held", Doing::Idle, &held, [Err(R::Idle); 4]),
        ("a prompt", Doing::Idle, &fresh, [Ok(Hook); 4]),
        (
            "busy, and the native way is there",
            Busy,
            &native,
            [Err(R::UntilTurnEnds), Err(R::Working), Err(R::Working), Err(R::Working)],
        ),
        ("idle, with hooks alone", Doing::Idle, &bare, [Err(R::Idle); 4]),
        ("idle, with nothing", Doing::Idle, &nothing, [Err(R::NoWay); 4]),
        ("idle, with a terminal", Doing::Idle, &terminal, [Ok(Terminal); 4]),
        ("idle, with a native way", Doing::Idle, &native, [Ok(NativeInbox); 4]),
        ("a draft, and the terminal alone", Doing::Idle, &draft, [Err(R::Draft); 4]),
        ("a draft, and a native way", Doing::Idle, &native_beside_draft, [Ok(NativeInbox); 4]),
        ("a question to its user", Asking, &native, [Err(R::Asking); 4]),
        ("nothing is known", Unknown, &native, [Err(R::Unknown); 4]),
        ("gone", Gone, &native, [Err(R::Gone); 4]),
        ("gone, and it can be resumed", Gone, &room(&[way(Terminal, INTO_GONE)]), [Ok(Terminal); 4]),
    ];
    for (case, doing, room, expected) in table {
        let found = hints.map(|hint| fate(message(1, hint), *doing, room));
        assert_eq!(&found, expected, "{case}");
        // A person's are treated alike, but for one that interrupts.
        let mut by_person = *expected;
        if *case == "busy, and the native way is there" {
            by_person[interrupt] = Ok(NativeInbox);
        }
        let found = hints.map(|hint| fate(from_person(1, hint), *doing, room));
        assert_eq!(found, by_person, "{case}, from a person");
    }
    assert_eq!([idle, normal, important, interrupt].map(|place| hints[place]), hints);
}

#[test]
fn only_what_a_person_sends_to_interrupt_breaks_a_turn_off_unless_the_room_allows_agents_to() {
    let native = room(&[way(WayName::NativeInbox, INTO_BUSY), way(WayName::Terminal, INTO_BUSY)]);
    let lenient = RoomFacts { settings: Settings { agents_may_break: true, ..Settings::default() }, ..native.clone() };
    let breaks = |message, room: &RoomFacts| {
        planned(&[message], Doing::Busy, std::slice::from_ref(room)).hand_over.map(|now| (now.breaks_off, now.wakes))
    };
    assert_eq!(breaks(from_person(1, Interrupt), &native), Some((true, None)));
    assert_eq!(breaks(message(1, Interrupt), &native), None);
    assert_eq!(breaks(message(1, Interrupt), &lenient), Some((true, None)));
    for hint in [Idle, Normal, Important] {
        assert_eq!(breaks(from_person(1, hint), &native), None, "{hint:?}");
    }
    let idle = planned(&[from_person(1, Interrupt)], Doing::Idle, &[native]).hand_over.unwrap();
    assert!(!idle.breaks_off, "there is nothing to break off");
}

#[test]
fn a_session_that_was_busy_for_long_is_doubted_and_never_taken_for_idle() {
    let rooms = [room(&[way(WayName::NativeInbox, INTO_BUSY)])];
    let plan = |since: Option<i64>, message| planned_since(&[message], Doing::Busy, since, &rooms, &Woken::default());
    let of = |since| plan(since, message(1, Normal)).wait_of(0).unwrap();
    let doubted_at = Some(at(NOW - 599 + 600));
    assert_eq!(of(Some(NOW - 599)), Wait { because: R::Working, until: doubted_at }, "looked at again then");
    assert_eq!(of(Some(NOW - 600)), Wait { because: R::Unknown, until: None });
    assert_eq!(of(None), Wait { because: R::Unknown, until: None });
    assert_eq!(plan(Some(NOW - 600), from_person(1, Interrupt)).hand_over, None, "there may be nothing to break off");
    let patient = Settings { busy_doubt: Duration::from_secs(6000), ..Settings::default() };
    let rooms = [RoomFacts { settings: patient, ..rooms[0].clone() }];
    let plan = planned_since(&[message(1, Normal)], Doing::Busy, Some(NOW - 600), &rooms, &Woken::default());
    assert_eq!(plan.wait_of(0).unwrap().because, R::Working);
}

#[test]
fn where_a_recipient_is_counts_before_what_its_session_did_and_a_listener_before_both() {
    let native = room(&[way(WayName::NativeInbox, INTO_BUSY)]);
    for (there, expected) in [(There::Away, R::Away), (There::Gone, R::Gone), (There::Removed, R::Removed)] {
        let room = RoomFacts { there, ..native.clone() };
        for doing in [Doing::Idle, Doing::Busy, Doing::Unknown, Doing::Asking] {
            assert_eq!(fate(from_person(1, Interrupt), doing, &room), Err(expected), "{there:?} {doing:?}");
        }
        let listening = RoomFacts { there, ..self::room(&[way(WayName::Listening, Reach::Listens)]) };
        let expected = if there == There::Removed { Err(R::Removed) } else { Ok(WayName::Listening) };
        assert_eq!(fate(message(1, Normal), Doing::Unknown, &listening), expected, "{there:?}");
    }
}

#[test]
fn what_a_surface_has_taken_is_on_its_way_and_nothing_else_becomes_of_it() {
    let listening = room(&[way(WayName::Listening, Reach::Listens)]);
    let taken = Message { is_taken: true, ..message(1, Interrupt) };
    for doing in [Doing::Idle, Doing::Busy, Doing::Unknown] {
        assert_eq!(fate(taken, doing, &listening), Err(R::OnItsWay));
    }
}

#[test]
fn a_broadcast_of_an_agent_and_a_notice_wake_nobody_and_come_with_what_does() {
    let native = [room(&[way(WayName::NativeInbox, INTO_IDLE)])];
    let broadcast = Message { wakes: Wakes::Never, ..message(1, Interrupt) };
    let alone = planned(&[broadcast], Doing::Idle, &native);
    assert_eq!((alone.hand_over.is_none(), alone.wait_of(0)), (true, Some(Wait { because: R::Idle, until: None })));
    let together = planned(&[broadcast, message(2, Normal)], Doing::Idle, &native).hand_over.unwrap();
    assert_eq!((together.messages, together.wakes), (vec![0, 1], Some(Wakes::ByAgent)));
    let turn_end = [room(&[way(WayName::Hook, Reach::Calls(Some(Opening::TurnEnd { was_held: false })))])];
    assert_eq!(planned(&[broadcast], Doing::Idle, &turn_end).hand_over, None, "no turn is held for it");
    assert_eq!(planned(&[broadcast, message(2, Normal)], Doing::Idle, &turn_end).hand_over.unwrap().messages, [0, 1]);
    let tool = [room(&[way(WayName::Hook, Reach::Calls(Some(Opening::MidTurn)))])];
    assert_eq!(planned(&[broadcast], Doing::Busy, &tool).hand_over.unwrap().messages, [0]);
}

#[test]
fn quiet_keeps_an_idle_session_from_being_woken_and_nothing_else() {
    let quiet = |ways: &[WayFacts]| RoomFacts { quiet_until: Some(now(NOW + 60).deadline), ..room(ways) };
    let native = quiet(&[way(WayName::NativeInbox, INTO_BUSY)]);
    let plan = planned(&[from_person(1, Interrupt)], Doing::Idle, std::slice::from_ref(&native));
    assert_eq!(plan.wait_of(0), Some(Wait { because: R::Quiet, until: Some(at(NOW + 60)) }));
    assert_eq!(plan.look_again(), Some(at(NOW + 60)));
    let answer = Message { wakes: Wakes::Answer, ..message(1, Normal) };
    assert_eq!(fate(answer, Doing::Idle, &native), Err(R::Quiet));
    let turn_end = quiet(&[way(WayName::Hook, Reach::Calls(Some(Opening::TurnEnd { was_held: false })))]);
    assert_eq!(fate(message(1, Normal), Doing::Idle, &turn_end), Err(R::Quiet), "its turn is not held");
    for opening in [Opening::MidTurn, Opening::Fresh] {
        let calls = quiet(&[way(WayName::Hook, Reach::Calls(Some(opening)))]);
        assert_eq!(fate(message(1, Normal), Doing::Idle, &calls), Ok(WayName::Hook), "{opening:?}");
    }
    assert_eq!(fate(from_person(1, Interrupt), Doing::Busy, &native), Ok(WayName::NativeInbox), "it is awake");
    let over = RoomFacts { quiet_until: Some(now(NOW).deadline), ..native };
    assert_eq!(fate(message(1, Normal), Doing::Idle, &over), Ok(WayName::NativeInbox));
}

#[test]
fn agents_wake_a_session_only_so_often_and_its_own_answers_always_do() {
    let rooms = [room(&[way(WayName::NativeInbox, INTO_IDLE)])];
    let mut woken = Woken::default();
    (0..20).for_each(|n| woken.add(Wakes::ByAgent, at(NOW - 100 + n)));
    let plan = |messages: &[Message]| planned_since(messages, Doing::Idle, Some(NOW - 5), &rooms, &woken);
    let by_agent = plan(&[message(1, Interrupt)]);
    assert_eq!(by_agent.wait_of(0), Some(Wait { because: R::WokenTooOften, until: Some(at(NOW - 100 + 3600)) }));
    let answer = Message { wakes: Wakes::Answer, ..message(2, Normal) };
    let both = plan(&[message(1, Interrupt), answer]);
    assert_eq!(
        both.hand_over.as_ref().map(|now| (now.messages.as_slice(), now.wakes)),
        Some((&[1][..], Some(Wakes::Answer)))
    );
    assert_eq!(both.wait_of(0).map(|wait| wait.because), Some(R::WokenTooOften));
    let person = plan(&[from_person(3, Idle)]).hand_over.unwrap();
    assert_eq!(person.wakes, Some(Wakes::ByPerson));
    let turn_end = [room(&[way(WayName::Hook, Reach::Calls(Some(Opening::TurnEnd { was_held: false })))])];
    let held = planned_since(&[message(1, Normal)], Doing::Idle, None, &turn_end, &woken);
    assert_eq!(held.wait_of(0).map(|wait| wait.because), Some(R::WokenTooOften), "a held turn is a wake");
    let strict = Settings { max_wakes: 0, ..Settings::default() };
    let rooms = [RoomFacts { settings: strict, ..rooms[0].clone() }];
    assert_eq!(planned(&[message(1, Normal)], Doing::Idle, &rooms).wait_of(0).unwrap().because, R::WokenTooOften);
}

#[test]
fn a_way_that_failed_is_left_out_and_the_next_one_is_tried() {
    let out = |until: i64, because| Some(LeftOut { until: at(until), because });
    let native = |left_out| WayFacts { left_out, ..way(WayName::NativeInbox, INTO_BUSY) };
    let terminal = |left_out| WayFacts { left_out, ..way(WayName::Terminal, INTO_BUSY) };
    let fate_of = |ways: &[WayFacts]| fate(message(1, Normal), Doing::Idle, &room(ways));
    assert_eq!(fate_of(&[native(out(NOW + 5, R::NoWay)), terminal(None)]), Ok(WayName::Terminal));
    assert_eq!(fate_of(&[native(out(NOW, R::NoWay)), terminal(None)]), Ok(WayName::NativeInbox), "until then");
    let all = [room(&[native(out(NOW + 50, R::NoWay)), terminal(out(NOW + 5, R::Draft))])];
    let plan = planned(&[message(1, Normal)], Doing::Idle, &all);
    assert_eq!(plan.wait_of(0), Some(Wait { because: R::NoWay, until: Some(at(NOW + 5)) }));
    let broken = room(&[native(out(NOW + 5, R::NoWay)), terminal(None)]);
    assert_eq!(fate(from_person(1, Interrupt), Doing::Busy, &broken), Ok(WayName::Terminal));
}

#[test]
fn the_best_way_is_used_whatever_the_order_in_which_they_are_named() {
    let ways = [way(WayName::Terminal, INTO_IDLE), way(WayName::NativeInbox, INTO_IDLE)];
    assert_eq!(fate(message(1, Normal), Doing::Idle, &room(&ways)), Ok(WayName::NativeInbox));
}

#[test]
fn a_batch_has_the_most_urgent_first_then_the_oldest_and_in_order_for_each_sender_and_hint() {
    let hints = [Normal, Idle, Interrupt, Normal, Important, Interrupt];
    let messages: Vec<Message> = (1..).zip(hints).map(|(seq, hint)| message(seq, hint)).collect();
    let fresh = [room(&[way(WayName::Hook, Reach::Calls(Some(Opening::Fresh)))])];
    assert_eq!(planned(&messages, Doing::Idle, &fresh).hand_over.unwrap().messages, [2, 5, 4, 0, 3, 1]);
    let two_rooms = [fresh[0].clone(), fresh[0].clone()];
    let messages: Vec<Message> =
        (1..=6).rev().map(|seq| Message { room: seq as usize % 2, ..message(seq, Normal) }).collect();
    assert_eq!(
        planned(&messages, Doing::Idle, &two_rooms).hand_over.unwrap().messages,
        [5, 4, 3, 2, 1, 0],
        "over all rooms"
    );
}

#[test]
fn a_batch_ends_with_ten_messages_or_eight_kilobytes_and_never_passes_over_one() {
    let fresh = [room(&[way(WayName::Hook, Reach::Calls(Some(Opening::Fresh)))])];
    let handed = |sizes: &[usize]| {
        let messages: Vec<Message> =
            (1..).zip(sizes).map(|(seq, bytes)| Message { bytes: *bytes, ..message(seq, Normal) }).collect();
        let plan = planned(&messages, Doing::Idle, &fresh);
        let chosen = plan.hand_over.unwrap().messages;
        let rest: Vec<usize> = plan.waits.iter().map(|(place, _)| *place).collect();
        assert_eq!(rest, (chosen.len()..sizes.len()).collect::<Vec<_>>(), "the rest waits");
        assert!(plan.waits.iter().all(|(_, wait)| wait.because == R::Working), "for the next boundary");
        chosen.len()
    };
    assert_eq!(handed(&[100; 25]), 10);
    assert_eq!(handed(&[4000, 4000, 4000]), 2);
    assert_eq!(handed(&[9000, 10]), 1, "one that is longer than a block goes alone");
    assert_eq!(handed(&[4000, 9000, 10]), 1, "and nothing overtakes it");
    let small = Settings { max_batch: 3, ..Settings::default() };
    let rooms = [RoomFacts { settings: small, ..fresh[0].clone() }];
    let messages: Vec<Message> = (1..9).map(|seq| message(seq, Normal)).collect();
    assert_eq!(planned(&messages, Doing::Idle, &rooms).hand_over.unwrap().messages, [0, 1, 2]);
}

#[test]
fn each_room_has_its_own_listeners_settings_and_quiet() {
    let listening = room(&[way(WayName::Listening, Reach::Listens), way(WayName::NativeInbox, INTO_IDLE)]);
    let quiet =
        RoomFacts { quiet_until: Some(now(NOW + 60).deadline), ..room(&[way(WayName::NativeInbox, INTO_IDLE)]) };
    let open = room(&[way(WayName::NativeInbox, INTO_IDLE)]);
    let in_room = |seq, room| Message { room, ..message(seq, Normal) };
    let rooms = [listening, quiet, open];
    let plan = planned(&[in_room(1, 0), in_room(2, 1), in_room(3, 2)], Doing::Idle, &rooms);
    assert_eq!(plan.hand_over.as_ref().map(|now| (now.way, now.messages.clone())), Some((WayName::Listening, vec![0])));
    let plan = planned(&[in_room(2, 1), in_room(3, 2)], Doing::Idle, &rooms);
    assert_eq!(plan.hand_over.map(|now| (now.way, now.messages)), Some((WayName::NativeInbox, vec![1])));
    assert_eq!(plan.waits, [(0, Wait { because: R::Quiet, until: Some(at(NOW + 60)) })]);
    // What wakes nobody comes along only by a way that is there in its room.
    let switched_off = room(&[]);
    let along = Message { wakes: Wakes::Never, ..in_room(4, 1) };
    let plan = planned(&[in_room(5, 0), along], Doing::Idle, &[rooms[2].clone(), switched_off]);
    assert_eq!(plan.hand_over.unwrap().messages, [0]);
}

#[test]
fn nothing_is_planned_for_nobody() {
    assert_eq!(planned(&[], Doing::Idle, &[]), Plan::default());
}

#[test]
fn what_listens_and_takes_nothing_is_passed_over_once_the_session_was_idle_for_a_while() {
    let rooms = [room(&[way(WayName::Listening, Reach::Listens), way(WayName::NativeInbox, INTO_IDLE)])];
    let sent = |seconds| Message { sent_at: Some(at(seconds)), ..message(1, Normal) };
    let by = |message: Message, doing, since| {
        let plan = planned_since(&[message], doing, Some(since), &rooms, &Woken::default());
        plan.hand_over.map(|hand_over| hand_over.way)
    };
    assert_eq!(by(sent(NOW - 45), Doing::Idle, NOW - 60), Some(WayName::NativeInbox));
    assert_eq!(by(sent(NOW - 44), Doing::Idle, NOW - 60), Some(WayName::Listening), "it was sent since");
    assert_eq!(by(sent(NOW - 60), Doing::Idle, NOW - 44), Some(WayName::Listening), "it is idle since");
    for doing in [Doing::Busy, Doing::Asking, Doing::Unknown] {
        assert_eq!(by(sent(NOW - 1000), doing, NOW - 1000), Some(WayName::Listening), "{doing:?}");
    }
}

#[test]
fn what_may_have_arrived_often_enough_is_left_to_what_the_session_does_itself() {
    let tried = |attempts| Message { attempts, ..message(1, Normal) };
    let native = room(&[way(WayName::NativeInbox, INTO_IDLE)]);
    assert_eq!(fate(tried(MAX_ATTEMPTS - 1), Doing::Idle, &native), Ok(WayName::NativeInbox));
    assert_eq!(fate(tried(MAX_ATTEMPTS), Doing::Idle, &native), Err(R::Unconfirmed));
    assert_eq!(fate(tried(MAX_ATTEMPTS), Doing::Busy, &native), Err(R::Working));
    let prompt = room(&[way(WayName::NativeInbox, INTO_IDLE), way(WayName::Hook, Reach::Calls(Some(Opening::Fresh)))]);
    assert_eq!(fate(tried(MAX_ATTEMPTS), Doing::Idle, &prompt), Ok(WayName::Hook));
    let along = Message { wakes: Wakes::Never, ..tried(MAX_ATTEMPTS) };
    let plan = planned(&[message(2, Normal), along], Doing::Idle, std::slice::from_ref(&native));
    assert_eq!(plan.hand_over.map(|now| now.messages), Some(vec![0]), "nor does it come along");
}

#[test]
fn what_only_comes_along_takes_the_room_that_is_left() {
    let along = |seq| Message { wakes: Wakes::Never, ..message(seq, Important) };
    let messages: Vec<Message> = (1..=20).map(along).chain([message(21, Normal)]).collect();
    let plan = planned(&messages, Doing::Idle, &[room(&[way(WayName::NativeInbox, INTO_IDLE)])]);
    let chosen = plan.hand_over.unwrap().messages;
    assert_eq!(chosen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 20]);
}
