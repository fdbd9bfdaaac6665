//! What is known, and what a person is doing with it. Pure: no clock, no terminal, no socket. `update` changes it by what the
//! daemon tells, `keys` by what a person does, `view` shows it.

use std::collections::{BTreeMap, BTreeSet};

use tt_client::text::names;
use tt_proto::message::DeliveryHint;
use tt_proto::note::Note;
use tt_proto::requests::RoomState;
use tt_proto::room::{Activity, Member, MemberStatus, RoomSummary};
use tt_proto::{AgentId, RoomId, WallTime};

use crate::exchange::{Deed, InboxLine, Request};
use crate::input::Input;
use crate::timeline::Timeline;

/// Something the program does for the model.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Ask(Request),
    /// Runs `tt` on the terminal with these arguments, in this directory.
    RunTt {
        args: Vec<String>,
        dir: String,
    },
    Shell {
        dir: String,
    },
    /// Puts a text into the terminal's clipboard.
    Copy(String),
    /// Rings, and tells the desktop.
    Alert(String),
    Redraw,
    Suspend,
    Quit,
}

/// The connection to the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Link {
    #[default]
    Connecting,
    Up,
    Down(String),
}

/// A room in the list.
#[derive(Debug, Clone)]
pub struct RoomEntry {
    pub summary: RoomSummary,
    pub state: Option<Box<RoomState>>,
    /// Questions to us that are not answered.
    pub questions: Vec<i64>,
    /// What needed a person when it was last said so.
    pub alerted: BTreeSet<&'static str>,
}

impl RoomEntry {
    /// What in this room needs a person, in words.
    pub fn needs(&self) -> Vec<&'static str> {
        let mut needs = Vec::new();
        if !self.questions.is_empty() {
            needs.push("a question to you");
        }
        let Some(state) = &self.state else { return needs };
        if state.members.iter().any(|member| member.activity == Activity::Asking) {
            needs.push("an agent asks for permission");
        }
        if state.takeover.available && state.members.iter().any(|member| member.status == MemberStatus::Active) {
            needs.push("the stick may be taken over");
        }
        needs
    }

    pub fn unread(&self) -> usize {
        self.summary.inbox.unread
    }

    /// The last part of the room's path.
    pub fn short_name(&self) -> &str {
        let path = self.summary.canonical_path.trim_end_matches('/');
        path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/")
    }
}

/// A part of the screen that keys go to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pane {
    #[default]
    Rooms,
    Timeline,
    Side,
}

/// What is shown above the panes.
#[derive(Debug, Clone, Default)]
pub enum Layer {
    #[default]
    None,
    Help {
        scroll: usize,
    },
    /// One message in full, with each recipient.
    Detail {
        seq: i64,
        scroll: usize,
    },
    Compose(Compose),
    Prompt(Prompt),
    /// A question that y answers.
    Confirm {
        question: String,
        deed: Deed,
    },
    List(List),
}

/// A message that is being written.
#[derive(Debug, Clone, PartialEq)]
pub struct Compose {
    pub to: Input,
    pub body: Input,
    pub hint: DeliveryHint,
    pub is_question: bool,
    /// The message that is answered. It has a sender, so there is no recipient to choose.
    pub reply_to: Option<i64>,
    pub is_in_body: bool,
    /// It is on its way, and cannot be changed.
    pub is_sending: bool,
}

/// A line that is asked for.
#[derive(Debug, Clone)]
pub struct Prompt {
    pub purpose: Purpose,
    pub label: String,
    pub input: Input,
    /// What Tab completes.
    pub candidates: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Purpose {
    Search,
    TakeOver { turn: i64, operator: bool },
    Kick,
    Pass,
    Guard,
    Note,
    Remind,
}

/// Lines of which one can be chosen.
#[derive(Debug, Clone)]
pub struct List {
    pub title: String,
    pub rows: Vec<Row>,
    pub chosen: usize,
}

#[derive(Debug, Clone)]
pub struct Row {
    pub text: String,
    pub goal: Goal,
}

/// What Enter does with a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Goal {
    Jump { room: RoomId, seq: i64 },
    ResolveNote(tt_proto::NoteId),
}

/// How a line of the status bar is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Bad,
}

/// Where things are on the screen, for the mouse, and what a person can read there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// The events on the screen.
    pub events: Vec<i64>,
    /// The row of each room: line, first and last column.
    pub rooms: Vec<(u16, u16, u16, usize)>,
    /// The lines of each event.
    pub lines: Vec<(u16, u16, u16, i64)>,
    /// The first event in memory is on the screen, or the last.
    pub reaches_first: bool,
    pub reaches_last: bool,
}

#[derive(Debug)]
pub struct Model {
    pub me: Option<AgentId>,
    pub my_name: String,
    pub now: WallTime,
    pub link: Link,
    pub rooms: Vec<RoomEntry>,
    /// Whether rooms that nobody is in are listed.
    pub shows_dormant: bool,
    /// The room that is chosen in the list, whose timeline is shown.
    pub open: Option<RoomId>,
    /// The path of the directory that the console was started in: its room is opened first.
    pub home: Option<RoomId>,
    pub timeline: Timeline,
    /// Where a jump goes once its room is open.
    pub jump: Option<(RoomId, i64)>,
    pub notes: Vec<Note>,
    /// All members of the open room, also those who left.
    pub members: Vec<Member>,
    /// How they are called.
    pub labels: BTreeMap<AgentId, String>,
    pub pane: Pane,
    pub side_scroll: usize,
    pub layer: Layer,
    /// What was written in each room and not sent.
    pub drafts: BTreeMap<RoomId, Compose>,
    pub notice: Option<(Tone, String)>,
    /// Whether to ring when a person is needed.
    pub is_silent: bool,
    pub confirmed: BTreeSet<i64>,
    pub shown: Shown,
}

impl Model {
    /// Nothing is known yet.
    pub fn new(now: WallTime) -> Self {
        Self {
            me: None,
            my_name: String::new(),
            now,
            link: Link::default(),
            rooms: Vec::new(),
            shows_dormant: false,
            open: None,
            home: None,
            timeline: Timeline::default(),
            jump: None,
            notes: Vec::new(),
            members: Vec::new(),
            labels: BTreeMap::new(),
            pane: Pane::default(),
            side_scroll: 0,
            layer: Layer::default(),
            drafts: BTreeMap::new(),
            notice: None,
            is_silent: false,
            confirmed: BTreeSet::new(),
            shown: Shown::default(),
        }
    }

    /// The rooms that are listed.
    pub fn listed(&self) -> Vec<&RoomEntry> {
        let is_listed = |entry: &&RoomEntry| {
            self.shows_dormant
                || entry.summary.members > 0
                || entry.unread() > 0
                || Some(&entry.summary.room_id) == self.open.as_ref()
        };
        self.rooms.iter().filter(is_listed).collect()
    }

    pub fn room(&self, room: &RoomId) -> Option<&RoomEntry> {
        self.rooms.iter().find(|entry| entry.summary.room_id == *room)
    }

    pub fn room_mut(&mut self, room: &RoomId) -> Option<&mut RoomEntry> {
        self.rooms.iter_mut().find(|entry| entry.summary.room_id == *room)
    }

    pub fn open_room(&self) -> Option<&RoomEntry> {
        self.room(self.open.as_ref()?)
    }

    pub fn state(&self) -> Option<&RoomState> {
        self.open_room()?.state.as_deref()
    }

    /// Whether we hold the stick of the open room.
    pub fn holds_stick(&self) -> bool {
        self.me.is_some() && self.state().is_some_and(|state| state.room.owner == self.me)
    }

    /// What a member of the open room is called.
    pub fn label(&self, agent: &AgentId) -> String {
        self.labels.get(agent).cloned().unwrap_or_else(|| names::id(agent))
    }

    /// A member of any room. The list says it where no other member has the same name.
    pub fn label_in(&self, entry: &RoomEntry, agent: &AgentId) -> String {
        match &entry.state {
            Some(state) => names::name(agent, &state.members),
            None if entry.summary.owner.as_ref().or(entry.summary.reserved_for.as_ref()) == Some(agent) => {
                names::called(agent, entry.summary.display_name.as_deref())
            }
            None => names::id(agent),
        }
    }

    /// Works out how everybody in the open room is called.
    pub fn name_members(&mut self) {
        let mut all = self.members.clone();
        for member in self.state().map_or(&[][..], |state| &state.members) {
            match all.iter_mut().find(|known| known.agent_id == member.agent_id) {
                Some(known) => *known = member.clone(),
                None => all.push(member.clone()),
            }
        }
        self.labels = all.iter().map(|member| (member.agent_id.clone(), names::name(&member.agent_id, &all))).collect();
        self.members = all;
    }

    /// The names that can be typed for a recipient: everybody else who is there, and the room.
    pub fn recipients(&self) -> Vec<String> {
        let mut names = self.member_names();
        names.push("room".to_owned());
        names
    }

    /// Everybody else who is there, as it can be typed.
    pub fn member_names(&self) -> Vec<String> {
        let members = self.state().map_or(&[][..], |state| &state.members);
        let others =
            members.iter().filter(|member| member.status.is_addressed() && Some(&member.agent_id) != self.me.as_ref());
        others.map(|member| self.typed_name(member)).collect()
    }

    /// What a person types for a member: its name if that is no one else's, else its id.
    pub fn typed_name(&self, member: &Member) -> String {
        let label = self.label(&member.agent_id);
        if label == member.display_name { label } else { member.agent_id.to_string() }
    }

    /// When something on the screen changes by itself: the age of a turn, a takeover.
    pub fn next_change(&self) -> Option<std::time::Duration> {
        let turns = self.rooms.iter().filter_map(|entry| entry.state.as_ref()?.turn_started_at);
        let minute = 60_000;
        let until_minute = |started: WallTime| {
            let age = u64::try_from((self.now.as_millis() - started.as_millis()).max(0)).unwrap_or(0);
            std::time::Duration::from_millis(minute - age % minute)
        };
        turns.map(until_minute).min()
    }

    pub fn say(&mut self, text: impl Into<String>) {
        self.notice = Some((Tone::Plain, text.into()));
    }

    pub fn complain(&mut self, text: impl Into<String>) {
        self.notice = Some((Tone::Bad, text.into()));
    }

    /// Opens a room, unless it is open.
    pub fn open_this(&mut self, room: &RoomId) -> Vec<Action> {
        if self.open.as_ref() == Some(room) {
            return Vec::new();
        }
        self.open = Some(room.clone());
        self.timeline = Timeline::default();
        (self.notes, self.members, self.side_scroll) = (Vec::new(), Vec::new(), 0);
        self.confirmed.clear();
        self.name_members();
        vec![Action::Ask(Request::Open(room.clone()))]
    }

    /// The rows of the inbox.
    pub fn inbox_list(&self, lines: &[InboxLine]) -> List {
        let rows = lines.iter().map(|line| {
            let entry = self.room(&line.room);
            let place = entry.map_or("", |entry| entry.short_name());
            let from = match (&line.from, entry) {
                (Some(from), Some(entry)) => self.label_in(entry, from),
                (Some(from), None) => names::id(from),
                (None, _) => "notice".to_owned(),
            };
            let question = if line.is_question { " [question]" } else { "" };
            let clock = tt_client::text::render::clock(line.at, self.now);
            Row {
                text: format!("{clock} {place}: {from}{question}  {}", line.excerpt),
                goal: Goal::Jump { room: line.room.clone(), seq: line.seq },
            }
        });
        List { title: "Inbox: what waits for you in all rooms".to_owned(), rows: rows.collect(), chosen: 0 }
    }
}
