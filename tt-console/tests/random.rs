//! Random keys, mouse clicks, pasted text, sizes and events: nothing panics, nothing that was typed is lost, and in the end the model
//! shows what the log has. `TT_CONSOLE_STEPS=100000` does more than the share that `cargo test` does; `TT_CONSOLE_SEED` repeats a run.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]
#![expect(clippy::disallowed_methods, reason = "a test reads its own variables")]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;
use tt_console::exchange::{Deed, Request, Update};
use tt_console::model::{Action, Layer, Model};
use tt_console::timeline::{MAX_EVENTS, PAGE};
use tt_console::view::{self, Palette};
use tt_proto::event::Event;
use tt_proto::requests::{EventPage, RoomState};
use tt_proto::room::RoomSummary;
use tt_proto::{AgentId, RoomId, WallTime};

const STEPS: usize = 1500;

const ROOMS: usize = 3;

/// A daemon of which only the log is there: it answers what the console asks, at some time.
struct Daemon {
    random: fastrand::Rng,
    logs: Vec<Vec<Event>>,
    /// What was answered and has not arrived yet, in order.
    answers: Vec<Update>,
    next_seq: i64,
    sent: Vec<String>,
}

fn room(at: usize) -> RoomId {
    RoomId::from(format!("room-{at}"))
}

impl Daemon {
    fn at(room: &RoomId) -> usize {
        (0..ROOMS).find(|at| self::room(*at) == *room).unwrap()
    }

    fn summaries(&self) -> Vec<RoomSummary> {
        let summary = |at: usize| {
            serde_json::from_value(json!({
                "room_id": room(at), "canonical_path": format!("/home/漢字\u{202e}/{at}"), "state": "owned", "owner": "claude:1",
                "turn_id": 1, "members": 2, "updated_at": "2026-11-16T12:00:00.000Z",
            }))
        };
        (0..ROOMS).map(|at| summary(at).unwrap()).collect()
    }

    fn state(&mut self, at: usize) -> RoomState {
        let (asks, takeover) = (self.random.bool(), self.random.bool());
        serde_json::from_value(json!({
            "room": {"room_id": room(at), "canonical_path": "/", "owner": if self.random.bool() { "claude:1" } else { "human:me" },
                "turn_id": 1, "state": "owned", "updated_at": "2026-11-16T12:00:00.000Z"},
            "members": [
                {"agent_id": "human:me", "display_name": "me", "unread": self.random.usize(..3)},
                {"agent_id": "claude:1", "display_name": "cla\u{1b}ude", "activity": if asks { "asking" } else { "working" }},
                {"agent_id": "codex:1", "display_name": "👩🏽\u{200d}💻", "status": "away", "activity": "away"},
            ],
            "queue": ["codex:1"], "takeover": {"available": takeover}, "turn_started_at": "2026-11-16T11:00:00.000Z",
            "cursor_event_seq": self.next_seq,
            "current_handoff": {"status": "half\ndone", "next_action": "the rest"},
        }))
        .unwrap()
    }

    /// Something happens in a room.
    fn happen(&mut self) {
        let (at, seq) = (self.random.usize(..ROOMS), self.next_seq);
        self.next_seq += 1;
        let from = *self.random.choice(["claude:1", "codex:1", "human:me"].iter()).unwrap();
        let reply_to = self.logs[at].last().filter(|_| self.random.u8(..4) == 0).map(|event| event.event_seq);
        let body = self
            .random
            .choice(["short", "漢字 👩🏽\u{200d}💻\t", "a\u{1b}[2J\n\nb", &"long ".repeat(300)].iter())
            .unwrap()
            .to_string();
        let kind = *self
            .random
            .choice(["message_sent", "message_sent", "claim", "note_added", "kick", "unheard_of"].iter())
            .unwrap();
        let mut payload = json!({"body": body, "delivery_hint": "normal", "expects_reply": self.random.bool()});
        if let Some(reply_to) = reply_to {
            payload["reply_to"] = reply_to.into();
        }
        let event: Event = serde_json::from_value(json!({
            "event_seq": seq, "event_id": format!("id-{seq}"), "room_id": room(at), "event_type": kind, "from_agent_id": from,
            "created_at": "2026-11-16T12:00:00.000Z", "payload": payload,
        }))
        .unwrap();
        self.logs[at].push(event.clone());
        self.answers.push(Update::Event { room: room(at), event: Box::new(event) });
    }

    fn page(&self, at: usize, keep: impl Fn(i64) -> bool, newest: bool) -> Box<EventPage> {
        let mut events: Vec<Event> = self.logs[at].iter().filter(|event| keep(event.event_seq)).cloned().collect();
        let left = events.len().saturating_sub(PAGE);
        let mut page = EventPage::new(Vec::new(), 0);
        if newest {
            events.drain(..left);
            page.earlier = left;
        } else {
            events.truncate(PAGE);
            page.more = left > 0;
        }
        Box::new(EventPage { events, ..page })
    }

    fn answer(&mut self, request: Request) {
        let update = match request {
            Request::Rooms => Update::Rooms(self.summaries()),
            Request::Look(room) => {
                let state = Box::new(self.state(Self::at(&room)));
                Update::State { room, state, questions: Vec::new() }
            }
            Request::Open(room) => {
                let page = self.page(Self::at(&room), |_| true, true);
                let members = self.state(Self::at(&room)).members;
                Update::Opened { room, page, members, notes: Vec::new() }
            }
            Request::Before { room, seq } => {
                Update::Before { page: self.page(Self::at(&room), |other| other < seq, true), room, seq }
            }
            Request::After { room, seq } => {
                Update::After { page: self.page(Self::at(&room), |other| other > seq, false), room, seq }
            }
            Request::Around { room, seq } => {
                Update::Around { page: self.page(Self::at(&room), |other| other <= seq, true), room, seq }
            }
            Request::MessageStatus { room, seq } => {
                let state = *self.random.choice(["pending", "delivered", "answered", "expired"].iter()).unwrap();
                let recipients =
                    json!([{"agent_id": "human:me", "state": state}, {"agent_id": "codex:1", "state": "pending"}]);
                Update::Recipients { room, seq, recipients: serde_json::from_value(recipients).unwrap() }
            }
            Request::Search { room, words } => {
                let events = self.logs[Self::at(&room)].iter().take(30).cloned().collect();
                Update::Found { room, words, events }
            }
            Request::Notes(room) => Update::Notes { room, notes: Vec::new() },
            Request::Inbox => Update::Inbox(Vec::new()),
            Request::Confirm { .. } => return,
            Request::Do(_, deed) => {
                let body = match &deed {
                    Deed::Send(letter) => letter.body.clone(),
                    Deed::Reply { body, .. } => body.clone(),
                    _ => return self.answers.push(Update::Done("done".into())),
                };
                if self.random.bool() {
                    self.answers.push(Update::NotSent { error: "no".into(), to: vec!["claude".into()] });
                    return;
                }
                self.sent.push(body);
                Update::Sent("sent".into())
            }
        };
        self.answers.push(update);
    }
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
    KeyEvent::new(code, modifiers)
}

fn random_key(random: &mut fastrand::Rng) -> KeyEvent {
    let codes = [
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::Backspace,
        KeyCode::Delete,
        KeyCode::F(1),
    ];
    let modifiers = match random.u8(..8) {
        0 => KeyModifiers::CONTROL,
        1 => KeyModifiers::ALT,
        _ => KeyModifiers::NONE,
    };
    match random.u8(..3) {
        0 => key(*random.choice(codes.iter()).unwrap(), modifiers),
        1 => key(KeyCode::Char(random.char('!'..='~')), modifiers),
        _ => key(
            KeyCode::Char(
                *random
                    .choice(['w', 'a', 'r', 'j', 'k', 'g', 'G', '/', 'i', 'z', 'ß', '漢', '\u{301}', ' '].iter())
                    .unwrap(),
            ),
            KeyModifiers::NONE,
        ),
    }
}

/// What is being written.
fn body(model: &Model) -> Option<String> {
    match &model.layer {
        Layer::Compose(compose) if compose.is_in_body && !compose.is_sending => Some(compose.body.text().to_owned()),
        _ => None,
    }
}

#[test]
fn random_keys_sizes_and_events_never_break_the_console() {
    let steps = std::env::var("TT_CONSOLE_STEPS").ok().map_or(STEPS, |steps| steps.parse().unwrap());
    let seed = std::env::var("TT_CONSOLE_SEED").ok().map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("TT_CONSOLE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut daemon = Daemon {
        random: random.fork(),
        logs: vec![Vec::new(); ROOMS],
        answers: Vec::new(),
        next_seq: 1,
        sent: Vec::new(),
    };
    let mut model = Model::new(WallTime::parse("2026-11-16T12:00:00Z").unwrap());
    let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
    (0..300).for_each(|_| daemon.happen());
    daemon.answers.clear();
    let connected = || Update::Connected { me: AgentId::trusted("human:me"), name: "me".into() };
    let mut actions = model.apply(connected());
    daemon.answer(Request::Rooms);
    let palettes = [Palette::plain(), Palette::coloured()];
    for _ in 0..steps {
        for action in std::mem::take(&mut actions) {
            if let Action::Ask(request) = action {
                daemon.answer(request);
            }
        }
        match random.u8(..16) {
            0..6 => {
                let (before, key) = (body(&model), random_key(&mut random));
                let is_plain = matches!(key.code, KeyCode::Char(_)) && key.modifiers == KeyModifiers::NONE;
                actions = model.key(key);
                if let (Some(before), KeyCode::Char(c), true) = (before, key.code, is_plain) {
                    let after = body(&model).unwrap();
                    assert_eq!(after.chars().count(), before.chars().count() + 1, "a key was lost");
                    assert!(after.contains(c), "{c:?} is not in {after:?}");
                }
            }
            6 => {
                let kind = *random
                    .choice(
                        [MouseEventKind::ScrollUp, MouseEventKind::ScrollDown, MouseEventKind::Down(MouseButton::Left)]
                            .iter(),
                    )
                    .unwrap();
                let (column, row) = (random.u16(..200), random.u16(..50));
                actions = model.mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE });
            }
            7 => actions = model.paste("pasted\r\n\u{1b}[31mtext"),
            8 => terminal.backend_mut().resize(random.u16(1..220), random.u16(1..60)),
            9 => {
                let at = random.usize(..ROOMS);
                daemon.answer(Request::Look(room(at)));
            }
            10 if random.u8(..20) == 0 => {
                // The connection is cut: what was on its way does not come, but for what is being sent.
                actions = model.apply(Update::Disconnected("gone".into()));
                daemon.answers.retain(|answer| matches!(answer, Update::Sent(_) | Update::NotSent { .. }));
                actions.extend(model.apply(connected()));
                daemon.answer(Request::Rooms);
            }
            10 | 11 => daemon.happen(),
            _ if !daemon.answers.is_empty() => {
                let update = daemon.answers.remove(0);
                actions = model.apply(update);
            }
            _ => {}
        }
        terminal
            .draw(|frame| {
                let shown = view::draw(&model, &palettes[random.usize(..2)], frame);
                actions.extend(model.was_shown(shown));
            })
            .unwrap();
    }
    // Everything arrives, and the end of the log is looked at.
    model.layer = Layer::None;
    model.pane = tt_console::model::Pane::Timeline;
    actions.extend(model.key(key(KeyCode::End, KeyModifiers::NONE)));
    terminal.backend_mut().resize(120, 40);
    loop {
        for action in std::mem::take(&mut actions) {
            if let Action::Ask(request) = action {
                daemon.answer(request);
            }
        }
        if daemon.answers.is_empty() {
            break;
        }
        actions = model.apply(daemon.answers.remove(0));
        model.layer = Layer::None;
        terminal
            .draw(|frame| {
                let shown = view::draw(&model, &palettes[0], frame);
                actions.extend(model.was_shown(shown));
            })
            .unwrap();
    }
    let log = &daemon.logs[Daemon::at(model.open.as_ref().unwrap())];
    let known: Vec<i64> = model.timeline.items().map(|item| item.seq()).collect();
    let newest: Vec<i64> = log.iter().rev().take(known.len()).rev().map(|event| event.event_seq).collect();
    assert_eq!(known, newest, "the model is not the end of the log");
    assert!(known.len() >= log.len().min(PAGE) && known.len() <= MAX_EVENTS);
    assert!(!model.timeline.has_later);
}
