//! What a person does changes the model: keys, the mouse, pasted text.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use tt_proto::RoomId;
use tt_proto::escape::escape_text;
use tt_proto::message::{DeliveryHint, MAX_MESSAGE_BYTES};
use tt_proto::policy::Guard;
use tt_proto::room::{Activity, StickState};
use tt_proto::time::parse_duration;

use crate::exchange::{Deed, Letter, Request};
use crate::input::Input;
use crate::model::{Action, Compose, Goal, Layer, List, Model, Pane, Prompt, Purpose, Row};
use crate::timeline::Item;

/// How many events a page up or down goes, and a turn of the mouse's wheel.
const PAGE_STEP: isize = 10;
const WHEEL_STEP: isize = 3;

impl Model {
    pub fn key(&mut self, key: KeyEvent) -> Vec<Action> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control && matches!(self.layer, Layer::None) => return vec![Action::Quit],
            KeyCode::Char('z') if control => return vec![Action::Suspend],
            KeyCode::Char('l') if control => return vec![Action::Redraw],
            KeyCode::Char('c') if control => return self.escape(),
            _ => {}
        }
        match std::mem::take(&mut self.layer) {
            Layer::None => self.pane_key(key),
            Layer::Help { scroll } => {
                if let Some(scroll) = scrolled(scroll, key) {
                    self.layer = Layer::Help { scroll };
                }
                Vec::new()
            }
            Layer::Detail { seq, scroll } => {
                match scrolled(scroll, key) {
                    Some(scroll) => self.layer = Layer::Detail { seq, scroll },
                    // The keys for a message work while it is read.
                    None if matches!(key.code, KeyCode::Char('r' | 'x' | 'y')) => return self.pane_key(key),
                    None => {}
                }
                Vec::new()
            }
            Layer::Compose(compose) => self.compose_key(compose, key),
            Layer::Prompt(prompt) => self.prompt_key(prompt, key),
            Layer::Confirm { question, deed } => match key.code {
                KeyCode::Char('y' | 'Y') => self.deed(deed),
                KeyCode::Char('n' | 'N') | KeyCode::Esc => {
                    self.say("nothing was done");
                    Vec::new()
                }
                _ => {
                    self.layer = Layer::Confirm { question, deed };
                    Vec::new()
                }
            },
            Layer::List(list) => self.list_key(list, key),
        }
    }

    pub fn paste(&mut self, text: &str) -> Vec<Action> {
        match &mut self.layer {
            Layer::Compose(compose) if !compose.is_sending => {
                if compose.is_in_body {
                    compose.body.insert(&without_controls(&text.replace("\r\n", "\n").replace('\r', "\n")));
                } else {
                    compose.to.insert(&one_line(text));
                }
            }
            Layer::Prompt(prompt) => prompt.input.insert(&one_line(text)),
            _ => {}
        }
        Vec::new()
    }

    pub fn mouse(&mut self, mouse: MouseEvent) -> Vec<Action> {
        let up = match mouse.kind {
            MouseEventKind::ScrollUp => true,
            MouseEventKind::ScrollDown => false,
            MouseEventKind::Down(MouseButton::Left) => return self.click(mouse.column, mouse.row),
            _ => return Vec::new(),
        };
        match &mut self.layer {
            Layer::None => self.timeline.step(if up { -WHEEL_STEP } else { WHEEL_STEP }),
            Layer::Help { scroll } | Layer::Detail { scroll, .. } => {
                *scroll = if up { scroll.saturating_sub(3) } else { *scroll + 3 };
            }
            Layer::List(list) => list.step(if up { -1 } else { 1 }),
            Layer::Compose(_) | Layer::Prompt(_) | Layer::Confirm { .. } => {}
        }
        Vec::new()
    }

    fn click(&mut self, column: u16, row: u16) -> Vec<Action> {
        if !matches!(self.layer, Layer::None) {
            return Vec::new();
        }
        let hits = |line: u16, from: u16, to: u16| line == row && (from..to).contains(&column);
        let room = self.shown.rooms.iter().find(|(line, from, to, _)| hits(*line, *from, *to)).map(|found| found.3);
        if let Some(room) = room.and_then(|at| Some(self.listed().get(at)?.summary.room_id.clone())) {
            self.pane = Pane::Rooms;
            return self.open_this(&room);
        }
        let event = self.shown.lines.iter().find(|(line, from, to, _)| hits(*line, *from, *to)).map(|found| found.3);
        if let Some(seq) = event {
            self.pane = Pane::Timeline;
            // A second click opens the message.
            if self.timeline.chosen == Some(seq) {
                self.layer = Layer::Detail { seq, scroll: 0 };
            }
            self.timeline.chosen = Some(seq);
        }
        Vec::new()
    }

    /// Goes one step back. What was being written is kept.
    fn escape(&mut self) -> Vec<Action> {
        if let Layer::Compose(compose) = std::mem::take(&mut self.layer) {
            self.keep_draft(compose);
        }
        Vec::new()
    }

    fn keep_draft(&mut self, compose: Compose) {
        let Some(room) = self.open.clone() else { return };
        if compose.body.text().trim().is_empty() {
            self.drafts.remove(&room);
        } else {
            self.drafts.insert(room, compose);
            self.say("what you wrote is kept: w goes on with it");
        }
    }

    fn pane_key(&mut self, key: KeyEvent) -> Vec<Action> {
        self.notice = None;
        let panes = [Pane::Rooms, Pane::Timeline, Pane::Side];
        let at = panes.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        match key.code {
            KeyCode::Char('q') => return vec![Action::Quit],
            KeyCode::Char('?') | KeyCode::F(1) => self.layer = Layer::Help { scroll: 0 },
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.pane = panes[(at + 1) % panes.len()],
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => self.pane = panes[(at + 2) % panes.len()],
            KeyCode::Down | KeyCode::Char('j') => return self.step(1),
            KeyCode::Up | KeyCode::Char('k') => return self.step(-1),
            KeyCode::PageDown => return self.step(PAGE_STEP),
            KeyCode::PageUp => return self.step(-PAGE_STEP),
            KeyCode::Home | KeyCode::Char('g') => return self.step(isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => return self.go_to_end(),
            KeyCode::Enter => self.enter(),
            KeyCode::Esc => self.pane = Pane::Rooms,
            KeyCode::Char('d') => {
                self.shows_dormant = !self.shows_dormant;
                self.say(if self.shows_dormant {
                    "all rooms are listed"
                } else {
                    "rooms with nobody in them are hidden"
                });
            }
            KeyCode::Char('b') => {
                self.is_silent = !self.is_silent;
                self.say(if self.is_silent { "silent: nothing rings" } else { "rings when somebody needs a person" });
            }
            KeyCode::Char('R') => return vec![Action::Ask(Request::Rooms)],
            KeyCode::Char('i') => return vec![Action::Ask(Request::Inbox)],
            _ => return self.room_key(key),
        }
        Vec::new()
    }

    /// A key that does something in the open room.
    fn room_key(&mut self, key: KeyEvent) -> Vec<Action> {
        let (Some(room), KeyCode::Char(c)) = (self.open.clone(), key.code) else { return Vec::new() };
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return Vec::new();
        }
        match c {
            'w' => self.write(room, false),
            'a' => self.write(room, true),
            'r' => self.reply(),
            'x' => self.withdraw(),
            'z' => {
                if let Some(seq) = self.timeline.current().map(Item::seq) {
                    self.timeline.toggle_fold(seq);
                }
            }
            'y' => return self.copy(),
            's' => return vec![Action::Shell { dir: self.dir() }],
            't' => self.take(),
            'e' => return self.release(),
            'p' if self.holds_stick() => {
                let names = self.member_names();
                self.ask(Purpose::Pass, "Pass the stick to", names);
            }
            'p' => self.complain("you do not hold the stick: only its holder can pass it"),
            'K' => {
                let names = self.member_names();
                self.ask(Purpose::Kick, "Remove from the room", names);
            }
            'u' => {
                let modes = Guard::ALL.iter().map(|guard| guard.as_str().to_owned()).collect();
                let now = self.state().map_or("", |state| state.guard.as_str());
                self.ask(Purpose::Guard, &format!("Guard (now {now}): off, advise or enforce"), modes);
            }
            'n' => self.ask(Purpose::Note, "New note", Vec::new()),
            'N' => self.list_notes(),
            'm' => self.ask(Purpose::Remind, "Remind: 10m TEXT, or @NAME 10m TEXT", Vec::new()),
            '/' => self.ask(Purpose::Search, "Search", Vec::new()),
            _ => {}
        }
        Vec::new()
    }

    fn ask(&mut self, purpose: Purpose, label: &str, candidates: Vec<String>) {
        self.layer = Layer::Prompt(Prompt { purpose, label: label.to_owned(), input: Input::default(), candidates });
    }

    /// The directory of the open room.
    fn dir(&self) -> String {
        self.open_room().map_or_else(|| "/".to_owned(), |entry| entry.summary.canonical_path.clone())
    }

    fn step(&mut self, steps: isize) -> Vec<Action> {
        match self.pane {
            Pane::Timeline => self.timeline.step(steps),
            Pane::Side => self.side_scroll = self.side_scroll.saturating_add_signed(steps).min(500),
            Pane::Rooms => {
                let listed = self.listed();
                let at = listed.iter().position(|entry| Some(&entry.summary.room_id) == self.open.as_ref());
                let next = at.map_or(0, |at| at.saturating_add_signed(steps)).min(listed.len().saturating_sub(1));
                let room = listed.get(next).map(|entry| entry.summary.room_id.clone());
                return room.map(|room| self.open_this(&room)).unwrap_or_default();
            }
        }
        Vec::new()
    }

    fn go_to_end(&mut self) -> Vec<Action> {
        if self.pane != Pane::Timeline {
            return self.step(isize::MAX / 2);
        }
        self.timeline.chosen = None;
        match self.open.clone().filter(|_| self.timeline.has_later) {
            // The newest are not in memory.
            Some(room) => {
                self.timeline.open(Vec::new(), false);
                vec![Action::Ask(Request::Open(room))]
            }
            None => Vec::new(),
        }
    }

    fn enter(&mut self) {
        match self.pane {
            Pane::Rooms => self.pane = Pane::Timeline,
            Pane::Timeline => {
                if let Some(seq) = self.timeline.current().map(Item::seq) {
                    self.timeline.chosen = Some(seq);
                    self.layer = Layer::Detail { seq, scroll: 0 };
                }
            }
            Pane::Side => self.list_notes(),
        }
    }

    fn write(&mut self, room: RoomId, is_question: bool) {
        let mut compose = self.drafts.get(&room).cloned().unwrap_or_else(|| Compose::new(None));
        if compose.reply_to.is_none() {
            compose.is_question |= is_question;
        }
        compose.is_sending = false;
        self.layer = Layer::Compose(compose);
    }

    /// Answers the chosen message. Where none was chosen, the oldest question to us that is not answered, or the newest message of
    /// somebody else.
    fn reply(&mut self) {
        let is_anothers = |item: &&Item| {
            item.message.is_some() && item.event.from_agent_id.is_some() && item.event.from_agent_id != self.me
        };
        let questions = self.open_room().map_or(&[][..], |entry| &entry.questions);
        let question = questions.iter().find_map(|seq| self.timeline.get(*seq));
        let found = match self.timeline.chosen {
            Some(seq) => self.timeline.get(seq),
            None => question.or_else(|| self.timeline.items().rev().find(is_anothers)),
        };
        let Some(seq) = found.filter(is_anothers).map(Item::seq) else {
            return self.complain("choose a message of somebody else to answer it");
        };
        let kept =
            self.open.as_ref().and_then(|room| self.drafts.get(room)).filter(|draft| draft.reply_to == Some(seq));
        let kept = kept.cloned().map(|draft| Compose { is_sending: false, ..draft });
        self.layer = Layer::Compose(kept.unwrap_or_else(|| Compose::new(Some(seq))));
    }

    fn withdraw(&mut self) {
        let Some(item) = self.timeline.current().filter(|item| item.message.is_some()) else {
            return self.complain("choose a message of yours to withdraw it");
        };
        if item.event.from_agent_id != self.me || self.me.is_none() {
            return self.complain("only its sender can withdraw a message");
        }
        let (seq, body) = (item.seq(), item.message.as_ref().map(|message| message.body.clone()).unwrap_or_default());
        let question = format!(
            "Withdraw message {seq}, \"{}\"? Those who have read it keep it.",
            escape_text(&tt_proto::message::excerpt(&body))
        );
        self.layer = Layer::Confirm { question, deed: Deed::Withdraw { seq } };
    }

    fn copy(&mut self) -> Vec<Action> {
        let id = match self.pane {
            Pane::Rooms => self.open.as_ref().map(ToString::to_string),
            _ => self.timeline.current().map(|item| item.event.event_id.to_string()),
        };
        let Some(id) = id else { return Vec::new() };
        self.say(format!("copied {}", escape_text(&id)));
        vec![Action::Copy(id)]
    }

    /// Takes the stick: at once if it is free, with a reason if it may be taken over, and else only as a decision that is asked
    /// about.
    fn take(&mut self) {
        if self.holds_stick() {
            return self.say("you hold the stick already");
        }
        let Some(state) = self.state() else { return self.complain("the room is not known yet") };
        let turn = state.room.turn_id;
        let holder = state.room.owner.as_ref().or(state.room.reserved_for.as_ref()).map(|agent| self.label(agent));
        let is_ours = state.room.reserved_for.is_some() && state.room.reserved_for == self.me;
        let (state_word, available) = (state.room.state, state.takeover.available);
        match (state_word, holder) {
            (StickState::Owned | StickState::Reserved, Some(holder)) if available && !is_ours => {
                let label = format!("Take the stick over from {holder}. Why");
                self.ask(Purpose::TakeOver { turn, operator: false }, &label, Vec::new());
            }
            (StickState::Owned | StickState::Reserved, Some(holder)) if !is_ours => {
                let label = format!("{holder} is not gone. To end its turn all the same, say why");
                self.ask(Purpose::TakeOver { turn, operator: true }, &label, Vec::new());
            }
            _ => {
                let question = "Take the stick? Nobody else may edit until you release it (e).".to_owned();
                self.layer = Layer::Confirm { question, deed: Deed::Claim };
            }
        }
    }

    fn release(&mut self) -> Vec<Action> {
        if !self.holds_stick() {
            self.complain("you do not hold the stick: there is nothing to release");
            return Vec::new();
        }
        vec![Action::RunTt { args: vec!["release".into()], dir: self.dir() }]
    }

    fn list_notes(&mut self) {
        let rows = self.notes.iter().map(|note| Row {
            text: format!("{}: {}", self.label(&note.author_agent_id), escape_text(&note.body)),
            goal: Goal::ResolveNote(note.note_id.clone()),
        });
        let rows = rows.collect();
        self.layer = Layer::List(List { title: "Open notes: Enter resolves one".to_owned(), rows, chosen: 0 });
    }

    /// Asks the daemon to do something in the open room.
    fn deed(&mut self, deed: Deed) -> Vec<Action> {
        let Some(room) = self.open.clone() else { return Vec::new() };
        vec![Action::Ask(Request::Do(room, deed))]
    }

    fn compose_key(&mut self, mut compose: Compose, key: KeyEvent) -> Vec<Action> {
        let (control, alt) = (key.modifiers.contains(KeyModifiers::CONTROL), key.modifiers.contains(KeyModifiers::ALT));
        if compose.is_sending {
            // Esc does not take back what is on its way.
            self.layer = Layer::Compose(compose);
            return Vec::new();
        }
        match key.code {
            KeyCode::Esc => {
                self.keep_draft(compose);
                return Vec::new();
            }
            KeyCode::Char('p') if control => compose.hint = next_hint(compose.hint),
            KeyCode::Char('q') if control => compose.is_question = !compose.is_question && compose.reply_to.is_none(),
            KeyCode::BackTab => compose.is_in_body = compose.reply_to.is_some(),
            KeyCode::Up if compose.is_in_body && !compose.body.parts().0.contains('\n') => {
                compose.is_in_body = compose.reply_to.is_some();
            }
            KeyCode::Down if !compose.is_in_body => compose.is_in_body = true,
            KeyCode::Tab if !compose.is_in_body => {
                let names = self.recipients();
                if compose.to.text().trim().is_empty() || !compose.to.complete(&names) {
                    self.say(format!("to: {}", names.join(", ")));
                }
            }
            KeyCode::Tab => {}
            KeyCode::Enter if alt && compose.is_in_body => compose.body.insert("\n"),
            KeyCode::Char('j') if control && compose.is_in_body => compose.body.insert("\n"),
            KeyCode::Enter if !compose.is_in_body => match compose.to.text().trim().is_empty() {
                true => self.say(format!("whom is it for? {}", self.recipients().join(", "))),
                false => compose.is_in_body = true,
            },
            KeyCode::Enter => return self.send(compose),
            _ => {
                let input = if compose.is_in_body { &mut compose.body } else { &mut compose.to };
                edit(input, key);
            }
        }
        self.layer = Layer::Compose(compose);
        Vec::new()
    }

    fn send(&mut self, mut compose: Compose) -> Vec<Action> {
        let body = compose.body.text().to_owned();
        let problem = match body.len() {
            _ if body.trim().is_empty() => Some("write something first".to_owned()),
            bytes if bytes > MAX_MESSAGE_BYTES => {
                Some(format!("the message has {bytes} bytes; at most {MAX_MESSAGE_BYTES} are allowed"))
            }
            _ if compose.reply_to.is_none() && compose.recipients().is_empty() => Some("whom is it for?".to_owned()),
            _ => None,
        };
        if let Some(problem) = problem {
            self.complain(problem);
            self.layer = Layer::Compose(compose);
            return Vec::new();
        }
        let deed = match compose.reply_to {
            Some(seq) => Deed::Reply { seq, body },
            None => Deed::Send(Letter {
                to: compose.recipients(),
                body,
                hint: compose.hint,
                is_question: compose.is_question,
            }),
        };
        compose.is_sending = true;
        if let Some(room) = self.open.clone() {
            self.drafts.insert(room, compose.clone());
        }
        self.layer = Layer::Compose(compose);
        self.deed(deed)
    }

    fn prompt_key(&mut self, mut prompt: Prompt, key: KeyEvent) -> Vec<Action> {
        match key.code {
            KeyCode::Esc => return Vec::new(),
            KeyCode::Enter => return self.answer(prompt),
            KeyCode::Tab => {
                if !prompt.input.complete(&prompt.candidates) && !prompt.candidates.is_empty() {
                    self.say(prompt.candidates.join(", "));
                }
            }
            _ => edit(&mut prompt.input, key),
        }
        self.layer = Layer::Prompt(prompt);
        Vec::new()
    }

    fn answer(&mut self, prompt: Prompt) -> Vec<Action> {
        let text = prompt.input.text().trim().to_owned();
        let Some(room) = self.open.clone() else { return Vec::new() };
        if text.is_empty() {
            return Vec::new();
        }
        match prompt.purpose {
            Purpose::Search => return vec![Action::Ask(Request::Search { room, words: text })],
            Purpose::TakeOver { turn, operator: false } => {
                return self.deed(Deed::TakeOver { turn, reason: text, operator: false });
            }
            Purpose::TakeOver { turn, operator: true } => {
                let works = self.state().and_then(|state| {
                    let holder = state.room.owner.as_ref()?;
                    state.members.iter().find(|member| member.agent_id == *holder)
                });
                let works = works.is_some_and(|holder| holder.activity == Activity::Working);
                let doing = if works { ", in the middle of its work" } else { "" };
                let question = format!("End turn {turn}{doing}, and take the stick? Its lease is void at once.");
                self.layer = Layer::Confirm { question, deed: Deed::TakeOver { turn, reason: text, operator: true } };
            }
            Purpose::Kick => self.kick(&text),
            Purpose::Pass => return vec![Action::RunTt { args: vec!["pass".into(), text], dir: self.dir() }],
            Purpose::Guard => match Guard::ALL.iter().find(|guard| guard.as_str() == text) {
                Some(Guard::Off) => {
                    let question = "Turn the guard off? Agents may then edit without the stick.".to_owned();
                    self.layer = Layer::Confirm { question, deed: Deed::Guard(Guard::Off) };
                }
                Some(guard) => return self.deed(Deed::Guard(*guard)),
                None => self.complain("the guard is off, advise or enforce"),
            },
            Purpose::Note => return self.deed(Deed::AddNote(text)),
            Purpose::Remind => match reminder(&text) {
                Some(deed) => return self.deed(deed),
                None => {
                    self.complain("say when and what, as in: 10m look at the tests");
                    self.layer = Layer::Prompt(Prompt { purpose: Purpose::Remind, ..prompt });
                }
            },
        }
        Vec::new()
    }

    fn kick(&mut self, name: &str) {
        let found = self.members.iter().find(|member| {
            self.typed_name(member) == name || member.agent_id.as_str() == name || member.display_name == name
        });
        match found.map(|member| (member.agent_id.clone(), self.label(&member.agent_id))) {
            Some((agent, name)) => {
                let question =
                    format!("Remove {name} from the room? It loses its place, and the stick if it holds it.");
                self.layer = Layer::Confirm { question, deed: Deed::Kick { agent, name } };
            }
            None => self.complain(format!("nobody here is called {}", escape_text(name))),
        }
    }

    fn list_key(&mut self, mut list: List, key: KeyEvent) -> Vec<Action> {
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return Vec::new(),
            KeyCode::Down | KeyCode::Char('j') => list.step(1),
            KeyCode::Up | KeyCode::Char('k') => list.step(-1),
            KeyCode::PageDown => list.step(PAGE_STEP),
            KeyCode::PageUp => list.step(-PAGE_STEP),
            KeyCode::Enter => {
                let goal = list.rows.get(list.chosen).map(|row| row.goal.clone());
                return goal.map(|goal| self.go(goal)).unwrap_or_default();
            }
            _ => {}
        }
        self.layer = Layer::List(list);
        Vec::new()
    }

    fn go(&mut self, goal: Goal) -> Vec<Action> {
        match goal {
            Goal::ResolveNote(note) => {
                let question = "Mark this note as resolved?".to_owned();
                self.layer = Layer::Confirm { question, deed: Deed::ResolveNote(note) };
                Vec::new()
            }
            Goal::Jump { room, seq } => {
                self.pane = Pane::Timeline;
                if self.open.as_ref() != Some(&room) {
                    self.jump = Some((room.clone(), seq));
                    return self.open_this(&room);
                }
                if self.timeline.get(seq).is_some() {
                    self.timeline.chosen = Some(seq);
                    return Vec::new();
                }
                vec![Action::Ask(Request::Around { room, seq })]
            }
        }
    }
}

impl Compose {
    pub fn new(reply_to: Option<i64>) -> Self {
        Self {
            to: Input::default(),
            body: Input::default(),
            hint: DeliveryHint::Normal,
            is_question: false,
            reply_to,
            is_in_body: reply_to.is_some(),
            is_sending: false,
        }
    }

    /// Whom it is for, each name once.
    pub fn recipients(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.to.text().split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }
}

impl List {
    fn step(&mut self, steps: isize) {
        self.chosen = self.chosen.saturating_add_signed(steps).min(self.rows.len().saturating_sub(1));
    }
}

/// `10m TEXT`, or `@NAME 10m TEXT`.
fn reminder(text: &str) -> Option<Deed> {
    let (to, rest) = match text.strip_prefix('@') {
        Some(rest) => rest.split_once(char::is_whitespace).map(|(name, rest)| (Some(name.to_owned()), rest.trim()))?,
        None => (None, text),
    };
    let (time, body) = rest.split_once(char::is_whitespace)?;
    let in_ms = u64::try_from(parse_duration(time)?.as_millis()).ok()?;
    let body = body.trim();
    (!body.is_empty()).then(|| Deed::Remind { to, in_ms, body: body.to_owned() })
}

fn next_hint(hint: DeliveryHint) -> DeliveryHint {
    let at = DeliveryHint::ALL.iter().position(|other| *other == hint).unwrap_or(0);
    DeliveryHint::ALL[(at + 1) % DeliveryHint::ALL.len()]
}

/// Where a text is after this key, if the key scrolls.
fn scrolled(scroll: usize, key: KeyEvent) -> Option<usize> {
    match key.code {
        KeyCode::Down | KeyCode::Char('j') => Some(scroll + 1),
        KeyCode::Up | KeyCode::Char('k') => Some(scroll.saturating_sub(1)),
        KeyCode::PageDown | KeyCode::Char(' ') => Some(scroll + 10),
        KeyCode::PageUp => Some(scroll.saturating_sub(10)),
        KeyCode::Home => Some(0),
        _ => None,
    }
}

fn edit(input: &mut Input, key: KeyEvent) {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('a') if control => input.home(),
        KeyCode::Char('e') if control => input.end(),
        KeyCode::Char('w') if control => input.delete_word(),
        KeyCode::Char('u') if control => input.delete_to_start(),
        KeyCode::Char('h') if control => input.delete_before(),
        KeyCode::Char(_) if control => {}
        KeyCode::Char(c) => input.insert(c.encode_utf8(&mut [0; 4])),
        KeyCode::Backspace => input.delete_before(),
        KeyCode::Delete => input.delete_after(),
        KeyCode::Left => input.left(),
        KeyCode::Right => input.right(),
        KeyCode::Home => input.home(),
        KeyCode::End => input.end(),
        _ => {}
    }
}

fn one_line(text: &str) -> String {
    without_controls(&text.split(['\r', '\n']).collect::<Vec<_>>().join(" "))
}

/// A text without what nobody types.
fn without_controls(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reminder_says_when_and_what_and_perhaps_to_whom() {
        let remind = |to: Option<&str>, in_ms, body: &str| {
            Some(Deed::Remind { to: to.map(str::to_owned), in_ms, body: body.to_owned() })
        };
        assert_eq!(reminder("10m look at it"), remind(None, 600_000, "look at it"));
        assert_eq!(reminder("@codex 30s  go on "), remind(Some("codex"), 30_000, "go on"));
        for wrong in ["", "look", "10m", "10m  ", "@codex", "@codex 10m", "soon look"] {
            assert_eq!(reminder(wrong), None, "{wrong:?}");
        }
    }
}
