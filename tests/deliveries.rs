//! What becomes of messages, with a real daemon: questions and answers, deadlines, notices and reminders, also when the daemon is
//! killed, and many messages at once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::sys::signal::Signal;
use rusqlite::Connection;
use tt_proto::delivery::DeliveryState;
use tt_proto::event::Event;
use tt_proto::message::{MessageSent, Notice};
use tt_proto::requests::{
    AddReminder, ConfirmMessages, GetMessageStatus, LeaveRoom, Reply, ReturnMessages, SendMessage, Sent,
    SubscribeDeliveries, TakeMessages, Taken, TakeoverStick, WithdrawMessage,
};
use tt_proto::{ErrorCode, RoomId};
use tt_tests::home::send;
use tt_tests::member::fresh_key;
use tt_tests::{Home, Member, block_on, home, process};

fn payload(event: &Event) -> MessageSent {
    serde_json::from_str(event.payload.as_ref().unwrap().as_str()).unwrap()
}

async fn ask(member: &mut Member, to: &str, timeout: Duration) -> Sent {
    let (key, timeout_ms) = (fresh_key(), Some(u64::try_from(timeout.as_millis()).unwrap()));
    let call = |room_id: RoomId| SendMessage {
        room_id,
        body: "why?".into(),
        to: Some(to.to_owned()),
        expects_reply: Some(true),
        timeout_ms,
        idempotency_key: key.clone(),
        ..Default::default()
    };
    member.call(call).await
}

async fn reply(member: &mut Member, event_seq: i64, body: &str) -> Sent {
    let key = fresh_key();
    member.call(|room_id| Reply { room_id, event_seq, body: body.into(), idempotency_key: key.clone() }).await
}

/// Waits for what concerns a question of the caller.
async fn hear(member: &mut Member, about: i64) -> Taken {
    let call = |room_id| TakeMessages {
        room_id,
        surface: "wait".into(),
        max_wait_ms: Some(60_000),
        about: Some(about),
        ..Default::default()
    };
    member.call(call).await
}

async fn confirm(member: &mut Member, event_seqs: Vec<i64>) -> usize {
    let call = |room_id| ConfirmMessages { room_id, surface: "recv".into(), event_seqs: event_seqs.clone() };
    member.call(call).await.confirmed
}

async fn state(member: &mut Member, event_seq: i64) -> (DeliveryState, bool, bool) {
    let status = member.call(|room_id| GetMessageStatus { room_id, event_seq }).await;
    let recipient = &status.recipients[0];
    (recipient.state, recipient.is_over, recipient.is_late)
}

#[test]
fn a_question_is_answered_and_everybody_who_follows_sees_how_far_it_is() {
    let home = home!();
    home.start();
    block_on(async {
        let (mut a, mut b) = (Member::join(&home, "a").await, Member::join(&home, "b").await);
        let mut follower = Member::join(&home, "a").await;
        let mut changes = follower.subscribe(|room_id| SubscribeDeliveries { room_id, target_agent_id: None }).await;
        let mut other = Member::join(&home, "c").await;
        let mut of_other = other.subscribe(|room_id| SubscribeDeliveries { room_id, target_agent_id: None }).await;
        let any = Some("any".to_owned());
        let mut of_room = other.subscribe(|room_id| SubscribeDeliveries { room_id, target_agent_id: any }).await;
        let question = ask(&mut a, "b", Duration::from_secs(600)).await;
        let seq = question.event_seq;
        assert_eq!(state(&mut a, seq).await, (DeliveryState::Pending, false, false));
        let taken = b.take(0).await;
        assert_eq!(taken.events[0].event_seq, seq);
        assert_eq!(confirm(&mut b, vec![seq]).await, 1);
        let answer = reply(&mut b, seq, "because").await;
        let heard = hear(&mut a, seq).await;
        assert_eq!((heard.events[0].event_seq, payload(&heard.events[0]).reply_to), (answer.event_seq, Some(seq)));
        assert_eq!(state(&mut a, seq).await, (DeliveryState::Answered, false, false));
        confirm(&mut a, vec![answer.event_seq]).await;
        let again = hear(&mut a, seq).await;
        assert!(again.events.is_empty() && again.is_over, "nothing more is to come, so nothing is waited for");
        let own = a.say(Some("c"), "and you?").await.event_seq;
        other.take(0).await;
        confirm(&mut other, vec![own]).await;
        let mut seen = [Vec::new(), Vec::new(), Vec::new()];
        for (changes, seen) in [&mut changes, &mut of_room, &mut of_other].into_iter().zip(&mut seen) {
            while seen.last() != Some(&(own, DeliveryState::Delivered)) {
                let change = changes.next().await.unwrap().unwrap().delivery.unwrap();
                seen.push((change.event_seq, change.state));
            }
        }
        let answered = (answer.event_seq, DeliveryState::Delivered);
        let own = (own, DeliveryState::Delivered);
        let all = vec![(seq, DeliveryState::Delivered), (seq, DeliveryState::Answered), answered, own];
        assert_eq!(seen, [all.clone(), all, vec![own]], "those that concern one, and all of the room");
    });
}

/// How many questions have a deadline of their own.
const DEADLINES: u64 = 8;

/// How late a notice is before it says so.
const LATE_MS: i64 = 1000;

/// How exactly is measured by `ttbench --only deadline`, and shown in virtual time by the model: a busy machine may hold up any of them.
#[test]
fn a_question_that_nobody_answers_ends_at_its_deadline_also_with_another_daemon() {
    let home = home!();
    home.start();
    block_on(async {
        let (mut a, mut b) = (Member::join(&home, "a").await, Member::join(&home, "b").await);
        let mut asked = Vec::new();
        for n in 0..DEADLINES {
            // The last one asked is over first.
            asked.push(ask(&mut a, "b", Duration::from_millis(4000 - 250 * n)).await.event_seq);
        }
        home.kill_daemon();
        let mut ended = Vec::new();
        for seq in asked.iter().rev() {
            let heard = hear(&mut a, *seq).await;
            let notice = payload(&heard.events[0]);
            assert_eq!((notice.notice, notice.about), (Some(Notice::Expired), Some(*seq)));
            let status = a.call(|room_id| GetMessageStatus { room_id, event_seq: *seq }).await;
            let deadline = payload(&status.event).expires_at.unwrap();
            let late = heard.events[0].created_at.as_millis() - deadline.as_millis();
            // All of these are rounded on their own.
            assert!(late >= -1, "{late} ms: too early");
            match notice.late_ms {
                None => assert!(late <= LATE_MS + 1, "{late} ms late, and it does not say so"),
                Some(says) => assert!((i64::try_from(says).unwrap() - late).abs() <= 2, "{late} ms late, not {says}"),
            }
            ended.push((deadline, heard.events[0].event_seq));
            assert_eq!(state(&mut a, *seq).await, (DeliveryState::Expired, true, false));
        }
        ended.sort();
        assert!(
            ended.is_sorted_by_key(|(_, notice)| *notice),
            "one ended before another that was over earlier: {ended:?}"
        );
        assert!(b.take(0).await.events.is_empty(), "what expired is handed to nobody");
        reply(&mut b, asked[0], "too late, but here it is").await;
        assert_eq!(state(&mut a, asked[0]).await, (DeliveryState::Expired, true, false), "what is final stays");
    });
}

#[test]
fn what_was_due_while_no_daemon_ran_happens_once_and_says_so() {
    let home = home!();
    home.start();
    block_on(async {
        let (mut a, mut b) = (Member::join(&home, "a").await, Member::join(&home, "b").await);
        let question = ask(&mut a, "b", Duration::from_secs(3600)).await.event_seq;
        let key = fresh_key();
        let remind = |room_id| AddReminder {
            room_id,
            body: "look at CI".into(),
            in_ms: 3_600_000,
            every_ms: Some(60_000),
            times: Some(3),
            idempotency_key: key.clone(),
            ..Default::default()
        };
        a.call(remind).await;
        home.kill_daemon();
        // As if two hours had gone by meanwhile.
        let database = Connection::open(home.paths().database()).unwrap();
        let past = "UPDATE deliveries SET expires_at = expires_at - 7200000, due_at = due_at - 7200000
                    WHERE due_at IS NOT NULL; UPDATE reminders SET due_at = due_at - 7200000;";
        database.execute_batch(past).unwrap();
        drop(database);
        assert!(b.take(0).await.events.is_empty(), "the first call of the next daemon is not handed what expired");
        let mut told = BTreeMap::new();
        while told.len() < 2 {
            let taken = a.take(60_000).await;
            confirm(&mut a, taken.events.iter().map(|event| event.event_seq).collect()).await;
            for event in &taken.events {
                let payload = payload(event);
                let late = payload.late_ms.unwrap();
                assert!(late >= 3_600_000, "{late}");
                assert!(told.insert(payload.about, payload.notice).is_none(), "told twice: {payload:?}");
            }
        }
        assert_eq!(told, BTreeMap::from([(None, None), (Some(question), Some(Notice::Expired))]));
        home.kill_daemon();
        assert!(a.take(0).await.events.is_empty(), "those of the series that were missed came as one");
    });
}

#[test]
fn deadlines_pass_in_a_room_that_everybody_has_left() {
    let home = home!();
    home.start();
    block_on(async {
        let (mut a, mut b) = (Member::join(&home, "a").await, Member::join(&home, "b").await);
        let question = ask(&mut a, "b", Duration::from_millis(1500)).await.event_seq;
        let key = fresh_key();
        let remind = |room_id| AddReminder {
            room_id,
            body: "look at CI".into(),
            in_ms: 1500,
            idempotency_key: key.clone(),
            ..Default::default()
        };
        a.call(remind).await;
        // The asker first, so that it is told nothing when the other one leaves.
        for member in [&mut a, &mut b] {
            member.call(|room_id| LeaveRoom { room_id, ..Default::default() }).await;
        }
        let database = Connection::open(home.paths().database()).unwrap();
        let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        let started = std::time::Instant::now();
        while count("SELECT count(*) FROM deliveries WHERE state = 'expired'") == 0
            || count("SELECT count(*) FROM reminders") == 1
        {
            assert!(started.elapsed() < tt_tests::LIMIT, "nobody is there, and nothing happens");
            tokio::task::yield_now().await;
        }
        assert_eq!(count("SELECT count(*) FROM room_events WHERE event_type = 'message_sent'"), 1, "nobody was told");
        let (mut a, mut b) = (Member::join(&home, "a").await, Member::join(&home, "b").await);
        assert_eq!(state(&mut a, question).await, (DeliveryState::Expired, true, false));
        assert!(a.take(0).await.events.is_empty() && b.take(0).await.events.is_empty());
    });
}

#[test]
fn a_message_is_taken_back_only_before_a_surface_has_it() {
    let home = home!();
    home.start();
    block_on(async {
        let (mut a, mut b) = (Member::join(&home, "a").await, Member::join(&home, "b").await);
        let withdraw = async |member: &mut Member, event_seq| {
            let key = fresh_key();
            member
                .try_call(|room_id| WithdrawMessage { room_id, event_seq, idempotency_key: key.clone() })
                .await
                .map(|done| done.withdrawn)
                .map_err(|e| e.code)
        };
        let seq = a.say(Some("b"), "first").await.event_seq;
        b.take(0).await;
        assert_eq!(withdraw(&mut a, seq).await, Err(ErrorCode::AlreadyDelivered), "it may be on a screen");
        b.call(|room_id| ReturnMessages { room_id, event_seqs: vec![seq] }).await;
        assert_eq!(withdraw(&mut b, seq).await, Err(ErrorCode::InvalidInput), "it is not b's");
        assert_eq!(withdraw(&mut a, seq).await, Ok(1));
        assert!(b.take(0).await.events.is_empty());
        assert_eq!(confirm(&mut b, vec![seq]).await, 0, "a confirmation that comes too late changes nothing");
        assert_eq!(state(&mut a, seq).await.0, DeliveryState::Withdrawn);
        // A wait for the answer ends with the question.
        let question = ask(&mut a, "b", Duration::from_secs(600)).await.event_seq;
        let mut waiting = Member::join(&home, "a").await;
        let (heard, withdrawn) = tokio::join!(hear(&mut waiting, question), withdraw(&mut a, question));
        assert!(heard.is_over && withdrawn == Ok(1), "{heard:?}");
    });
}

#[test]
fn a_message_outlives_its_sender_and_a_notice_about_it_does_not() {
    let home = home!();
    home.start();
    block_on(async {
        let (mut a, mut b) = (Member::join(&home, "a").await, Member::join(&home, "b").await);
        let key = fresh_key();
        let send = |room_id| SendMessage {
            room_id,
            body: "the tests are red".into(),
            to: Some("b".into()),
            notify_on_delivery: Some(true),
            idempotency_key: key.clone(),
            ..Default::default()
        };
        let seq = a.call(send).await.event_seq;
        a.call(|room_id| LeaveRoom { room_id, ..Default::default() }).await;
        let taken = b.take(0).await.events;
        assert_eq!(taken.iter().map(|event| event.event_seq).collect::<Vec<_>>(), [seq]);
        confirm(&mut b, vec![seq]).await;
        let answer = reply(&mut b, seq, "I look at it").await.event_seq;
        let mut a = Member::join(&home, "a").await;
        let waits: Vec<i64> = a.take(0).await.events.iter().map(|event| event.event_seq).collect();
        assert_eq!(waits, [answer], "the answer waited, and no notice was written to somebody who was not there");
    });
}

#[test]
fn a_member_that_lost_the_stick_is_told_by_whom_and_why() {
    let home = home!();
    home.start();
    block_on(async {
        let (mut a, mut b) = (Member::join(&home, "a").await, Member::join(&home, "b").await);
        let turn = a.claim().await;
        let (key, expected_turn_id) = (fresh_key(), turn.id);
        let take_over = |room_id| TakeoverStick {
            room_id,
            expected_turn_id,
            reason: "the release is today".into(),
            operator_override: Some(true),
            idempotency_key: key.clone(),
        };
        b.call(take_over).await;
        let told = a.take(0).await.events;
        let notice = payload(&told[0]);
        assert_eq!((told.len(), &told[0].from_agent_id, notice.notice), (1, &None, Some(Notice::TakenOver)));
        for words in ["b took the stick", "operator override", "the release is today"] {
            assert!(notice.body.contains(words), "{words} is not in {}", notice.body);
        }
        let (key, event_seq) = (fresh_key(), told[0].event_seq);
        let answer = |room_id| Reply { room_id, event_seq, body: "oh".into(), idempotency_key: key.clone() };
        assert_eq!(a.try_call(answer).await.unwrap_err().code, ErrorCode::NotARecipient, "nobody reads the answer");
    });
}

/// Many messages with whatever a sender may want, while members take, confirm, answer, are cut off, come and go, and the daemon is
/// killed in the middle of their calls.
/// The long run: `TT_DELIVERY_MESSAGES=100000 TT_DELIVERY_KILLS=200 cargo test --release --test suite_rooms every_message_ends`.
#[test]
fn every_message_ends_in_exactly_one_state_and_none_is_shown_again_after_it_was_confirmed() {
    #[expect(clippy::disallowed_methods, reason = "a test's own knob")]
    let variable = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (messages, kills) = (variable("TT_DELIVERY_MESSAGES", 800), variable("TT_DELIVERY_KILLS", 4));
    let home = home!();
    home.start();
    // A long run takes longer than a test may that waits for something.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut run = runtime.block_on(Run::new(&home));
    for n in 0..messages {
        let is_killed = (n + 1) % (messages / (kills + 1)).max(1) == 0 && run.kills < kills;
        run.kills += u64::from(is_killed);
        std::thread::scope(|scope| {
            if is_killed {
                scope.spawn(|| kill_if_it_serves(&home));
            }
            runtime.block_on(run.step(n));
        });
    }
    run.check(&home, messages);
}

/// Kills the daemon wherever it is, and waits for nothing.
fn kill_if_it_serves(home: &Home) {
    if let Some(pid) = home.daemon().filter(|pid| process::serves(*pid, &home.paths())) {
        send(pid, Signal::SIGKILL);
    }
}

/// The last two come and go, and send nothing.
const NAMES: [&str; 6] = ["m0", "m1", "m2", "m3", "m4", "m5"];
const SENDERS: u64 = 4;

/// A run under way, and what its members were told.
struct Run<'a> {
    home: &'a Home,
    members: Vec<Member>,
    random: u64,
    kills: u64,
    /// What each member confirmed, as the daemon acknowledged it.
    confirmed: Vec<BTreeSet<i64>>,
    /// What each member was shown by a daemon that was killed before it could be confirmed, and confirmed too late: the next daemon
    /// may have ended it meanwhile.
    too_late: Vec<BTreeSet<i64>>,
    sent: BTreeSet<i64>,
    /// Those that have left.
    out: [bool; NAMES.len()],
    left: u64,
    refused: u64,
    cut_off: u64,
    shown: u64,
    answers: u64,
    withdrawn: u64,
}

impl<'a> Run<'a> {
    async fn new(home: &'a Home) -> Self {
        let mut members = Vec::new();
        for name in NAMES {
            members.push(Member::join(home, name).await);
        }
        let confirmed = vec![BTreeSet::new(); NAMES.len()];
        Self {
            home,
            members,
            random: 7,
            kills: 0,
            too_late: confirmed.clone(),
            confirmed,
            sent: BTreeSet::new(),
            out: [false; NAMES.len()],
            left: 0,
            refused: 0,
            cut_off: 0,
            shown: 0,
            answers: 0,
            withdrawn: 0,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    async fn step(&mut self, n: u64) {
        let (by, to) = (self.below(SENDERS) as usize, self.below(NAMES.len() as u64) as usize);
        let hint = ["idle", "normal", "normal", "important", "interrupt"][self.below(5) as usize];
        let wishes = self.below(64);
        let (timeout_ms, after) = (1 + self.below(2000), 1 + self.below(2000));
        let key = fresh_key();
        let call = |room_id| SendMessage {
            room_id,
            body: format!("message {n}"),
            to: (wishes & 3 != 0).then(|| NAMES[to].to_owned()),
            delivery_hint: Some(hint.to_owned()),
            expects_reply: Some(wishes & 4 != 0 && to != by),
            timeout_ms: (wishes & 8 != 0).then_some(timeout_ms),
            notify_on_delivery: Some(wishes & 48 == 0),
            notify_after_ms: (wishes & 48 == 16).then_some(after),
            idempotency_key: key.clone(),
            ..Default::default()
        };
        match self.members[by].try_call(call).await {
            Ok(sent) => {
                assert!(self.sent.insert(sent.event_seq), "two messages have the number {}", sent.event_seq);
                self.act(by, to, wishes, sent.event_seq).await;
            }
            // Nobody asks somebody who has left.
            Err(e) => {
                assert!(self.out[to] && e.code == ErrorCode::UnknownRecipient, "{e}");
                self.refused += 1;
            }
        }
    }

    /// What happens after a message was sent.
    async fn act(&mut self, by: usize, to: usize, wishes: u64, sent: i64) {
        match self.below(8) {
            0 | 1 => self.read(to).await,
            2 | 3 if wishes & 4 != 0 => {
                let key = fresh_key();
                let back = |room_id| WithdrawMessage { room_id, event_seq: sent, idempotency_key: key.clone() };
                self.withdrawn += u64::from(self.members[by].try_call(back).await.is_ok());
            }
            // A surface that dies in the middle.
            4 if !self.out[to] => {
                self.members[to].take(0).await;
                self.members[to] = Member::join(self.home, NAMES[to]).await;
                self.cut_off += 1;
            }
            5 => {
                let who = SENDERS as usize + self.below(2) as usize;
                self.out[who] = !self.out[who];
                if self.out[who] {
                    let key = fresh_key();
                    let leave = |room_id| LeaveRoom { room_id, idempotency_key: key.clone() };
                    self.members[who].call(leave).await;
                    self.left += 1;
                } else {
                    self.members[who] = Member::join(self.home, NAMES[who]).await;
                }
            }
            _ => {}
        }
    }

    /// Takes what there is, confirms it, and answers some of it.
    async fn read(&mut self, who: usize) {
        if self.out[who] {
            return;
        }
        let taken = self.members[who].take(0).await;
        let seqs: Vec<i64> = taken.events.iter().map(|event| event.event_seq).collect();
        for seq in &seqs {
            let was_shown = self.confirmed[who].contains(seq) || self.too_late[who].contains(seq);
            assert!(!was_shown, "{seq} was shown to {} again", NAMES[who]);
        }
        self.shown += seqs.len() as u64;
        let confirmed = confirm(&mut self.members[who], seqs.clone()).await;
        if confirmed == seqs.len() {
            self.confirmed[who].extend(&seqs);
        } else {
            self.too_late[who].extend(&seqs);
        }
        for event in &taken.events {
            if payload(event).expects_reply && self.below(2) == 0 {
                let answer = reply(&mut self.members[who], event.event_seq, "so it is").await;
                self.sent.insert(answer.event_seq);
                self.answers += 1;
            }
        }
    }

    #[expect(clippy::print_stdout, reason = "a long run tells how much there was of everything")]
    fn check(&self, home: &Home, messages: u64) {
        let database = Connection::open(home.paths().database()).unwrap();
        let mut statement = database.prepare("SELECT state, count(*) FROM deliveries GROUP BY state").unwrap();
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
        let states: BTreeMap<String, i64> = statement.query_map([], row).unwrap().map(Result::unwrap).collect();
        let one = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        println!(
            "{messages} messages ({} refused), {} answers, {} shown, {} withdrawn, {} surfaces cut off, {} times a member left, \
             {} kills: {states:?}",
            self.refused, self.answers, self.shown, self.withdrawn, self.cut_off, self.left, self.kills
        );
        let known: Vec<&str> = DeliveryState::ALL.iter().map(|state| state.as_str()).collect();
        assert!(states.keys().all(|state| known.contains(&state.as_str())), "{states:?}");
        for seq in &self.sent {
            let there = format!("SELECT count(*) FROM room_events WHERE event_seq = {seq}");
            assert_eq!(one(&there), 1, "message {seq} was acknowledged and is not there");
        }
        let is_in = |seq: &i64, who: usize, states: &str| {
            let sql = format!(
                "SELECT count(*) FROM deliveries WHERE event_seq = {seq} AND recipient_agent_id = '{}' AND state IN ({states})",
                NAMES[who]
            );
            one(&sql) == 1
        };
        for (who, confirmed) in self.confirmed.iter().enumerate() {
            for seq in confirmed {
                assert!(is_in(seq, who, "'delivered', 'answered'"), "message {seq} was confirmed by {}", NAMES[who]);
            }
        }
        let mut too_late = 0;
        for (who, shown) in self.too_late.iter().enumerate() {
            for seq in shown {
                assert!(!is_in(seq, who, "'pending'"), "message {seq} was confirmed by {}, and waits", NAMES[who]);
                too_late += u64::from(!is_in(seq, who, "'delivered', 'answered'"));
            }
        }
        assert!(too_late == 0 || self.kills > 0, "a confirmation is too late only where a daemon was killed");
        println!("{too_late} were shown and ended before they could be confirmed, because a daemon was killed between");
        // Notices tell of what truly came to pass, and no more often.
        let sql =
            "SELECT json_extract(payload_json, '$.notice'), json_extract(payload_json, '$.about') FROM room_events
                   WHERE event_type = 'message_sent' AND from_agent_id IS NULL";
        let mut notices: BTreeMap<(String, i64), i64> = BTreeMap::new();
        let mut statement = database.prepare(sql).unwrap();
        for notice in statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap() {
            *notices.entry(notice.unwrap()).or_default() += 1;
        }
        let mut in_state =
            database.prepare("SELECT count(*) FROM deliveries WHERE event_seq = ?1 AND state = ?2").unwrap();
        let expired = notices.iter().filter(|((notice, _), _)| notice == "expired");
        for ((_, about), count) in expired {
            let really: i64 = in_state.query_row((about, "expired"), |row| row.get(0)).unwrap();
            assert!(*count <= really, "{count} notices of {really} deliveries of {about} that expired");
        }
        let told = "SELECT event_seq, count(*) FROM deliveries WHERE notify_on_delivery AND surface IS NOT NULL GROUP BY event_seq";
        let mut told = database.prepare(told).unwrap();
        for row in told.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap() {
            let (seq, handed_over) = row.unwrap();
            let count = notices.get(&("delivered".to_owned(), seq)).copied().unwrap_or(0);
            assert_eq!(count, handed_over, "message {seq} was handed over, and its sender was told");
        }
        // A question to one member that ends without an answer in time ends with one notice. Another one comes only where its sender
        // wanted to know more.
        let questions = "SELECT d.event_seq, d.is_over, d.notify_after_ms IS NOT NULL OR d.notify_on_delivery FROM deliveries d
                         JOIN room_events e ON e.event_seq = d.event_seq WHERE d.expects_reply AND e.to_agent_id IS NOT NULL";
        let mut questions = database.prepare(questions).unwrap();
        let mut ended: BTreeMap<&str, i64> = BTreeMap::new();
        for row in questions.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?))).unwrap() {
            let (seq, is_over, wants_to_know): (i64, bool, bool) = row.unwrap();
            let mut told = 0;
            for notice in ["expired", "not_answered", "recipient_gone"] {
                let count = notices.get(&(notice.to_owned(), seq)).copied().unwrap_or(0);
                *ended.entry(notice).or_default() += count;
                told += count;
            }
            let (least, most) = (i64::from(is_over), i64::from(is_over) + i64::from(wants_to_know));
            assert!((least..=most).contains(&told), "question {seq}: over {is_over}, its sender was told {told} times");
        }
        println!(
            "{} kinds of notices about messages, each as often as it should; questions ended: {ended:?}",
            notices.len()
        );
    }
}
