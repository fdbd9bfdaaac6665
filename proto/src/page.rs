//! How much fits one answer. Every text has a limit, and every list that can grow is cut before its answer becomes too big
//! to send.

use crate::event::Event;
use crate::message::InboxRoom;
use crate::note::Note;
use crate::reminder::Reminder;
use crate::room::RoomSummary;
use crate::session::Session;
use crate::{Error, ErrorCode};

/// The longest text of a request, in bytes: a path, a name, a reason. Bodies and handoffs have limits of their own.
pub const MAX_TEXT_BYTES: usize = 4096;

/// The longest id of a request, in bytes.
pub const MAX_ID_BYTES: usize = 256;

/// The most members of a room that one answer lists.
pub const MAX_MEMBERS: usize = 500;

/// A page ends once its items come to this much. One item more still fits an answer.
const MAX_PAGE_BYTES: usize = 256 * 1024;

/// What an item needs for the names of its fields, its numbers and its times.
const FRAME_BYTES: usize = 512;

/// Refuses a text that is longer than `max` bytes.
pub fn check_length(field: &str, text: &str, max: usize) -> Result<(), Error> {
    if text.len() <= max {
        return Ok(());
    }
    let message = format!("{field} has {} bytes; at most {max} are allowed", text.len());
    Err(Error::new(ErrorCode::InvalidInput, message)
        .hint(format!("shorten {field}"))
        .detail("field", field)
        .detail("max_bytes", max))
}

/// Counts the items of a page.
#[derive(Debug, Clone, Default)]
pub struct PageSize {
    bytes: usize,
}

impl PageSize {
    /// Whether the page has room for another item.
    pub fn has_room(&self) -> bool {
        self.bytes < MAX_PAGE_BYTES
    }

    /// Adds an item.
    pub fn add(&mut self, item: &impl JsonSize) {
        self.bytes += item.json_size();
    }
}

/// About how long an item is as JSON, and never less than that.
pub trait JsonSize {
    fn json_size(&self) -> usize;
}

/// The length of a text as JSON.
fn text_size(text: &str) -> usize {
    let size = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(size).sum()
}

impl JsonSize for Event {
    fn json_size(&self) -> usize {
        let agents = [&self.from_agent_id, &self.to_agent_id].into_iter().flatten().map(|id| id.as_str());
        let ids = [self.event_id.as_str(), self.room_id.as_str()];
        let texts = agents.chain(ids).chain(self.reason.as_deref()).map(text_size);
        let json = [&self.handoff, &self.payload].into_iter().flatten().map(|json| json.as_str().len());
        FRAME_BYTES + texts.chain(json).sum::<usize>()
    }
}

impl JsonSize for Note {
    fn json_size(&self) -> usize {
        let agents = [Some(&self.author_agent_id), self.resolved_by_agent_id.as_ref()];
        let agents = agents.into_iter().flatten().map(|id| id.as_str());
        let texts = [self.note_id.as_str(), self.room_id.as_str(), self.body.as_str()];
        FRAME_BYTES + texts.into_iter().chain(agents).map(text_size).sum::<usize>()
    }
}

impl JsonSize for Reminder {
    fn json_size(&self) -> usize {
        let agents = [Some(&self.from_agent_id), self.to_agent_id.as_ref()];
        let agents = agents.into_iter().flatten().map(|id| id.as_str());
        let texts = [self.reminder_id.as_str(), self.room_id.as_str(), self.body.as_str()];
        FRAME_BYTES + texts.into_iter().chain(agents).map(text_size).sum::<usize>()
    }
}

impl JsonSize for RoomSummary {
    fn json_size(&self) -> usize {
        let agents = [&self.owner, &self.reserved_for].into_iter().flatten().map(|id| id.as_str());
        let texts = [self.room_id.as_str(), self.canonical_path.as_str()];
        let texts = texts.into_iter().chain(agents).chain(self.display_name.as_deref());
        FRAME_BYTES + texts.map(text_size).sum::<usize>()
    }
}

impl JsonSize for InboxRoom {
    fn json_size(&self) -> usize {
        FRAME_BYTES + text_size(self.room_id.as_str())
    }
}

impl JsonSize for Session {
    fn json_size(&self) -> usize {
        let texts = [self.harness.as_str(), self.session_id.as_str(), self.agent_id.as_str(), self.because.as_str()];
        let evidence = self.evidence.iter().map(|evidence| FRAME_BYTES / 4 + text_size(&evidence.says));
        let texts = texts.into_iter().chain(self.cwd.as_deref()).map(text_size);
        let ways = self.ways.iter().map(|way| way.as_str().len() + 3);
        FRAME_BYTES + texts.chain(evidence).chain(ways).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::WayName;
    use crate::event::EventType;
    use crate::handoff::RawJson;
    use crate::room::{Liveness, StickState};
    use crate::session::{Evidence, EvidenceSource, SessionStatus};
    use crate::{AgentId, EventId, NoteId, WallTime};

    const HOSTILE: &str = "\u{1}\"\\ü\u{7f}\n";

    /// The real length, and what was reckoned.
    fn sizes<T: serde::Serialize + JsonSize>(item: &T) -> (usize, usize) {
        (serde_json::to_string(item).unwrap().len(), item.json_size())
    }

    #[test]
    fn no_item_is_longer_than_it_is_reckoned() {
        let (text, time) = (HOSTILE.repeat(1000), WallTime::from_millis(1_790_000_000_000));
        let agent = || Some(AgentId::trusted(HOSTILE));
        let event = Event {
            event_seq: i64::MIN,
            event_id: EventId::fresh(),
            room_id: text.as_str().into(),
            turn_id: Some(i64::MIN),
            event_type: EventType::ReservationExpired,
            from_agent_id: agent(),
            to_agent_id: agent(),
            handoff: RawJson::of(&text).ok(),
            reason: Some(text.clone()),
            created_at: time,
            payload: RawJson::of(&text).ok(),
        };
        let note = Note {
            note_id: NoteId::fresh(),
            room_id: text.as_str().into(),
            turn_id: Some(i64::MIN),
            author_agent_id: AgentId::trusted(HOSTILE),
            body: text.clone(),
            created_at: time,
            resolved_at: Some(time),
            resolved_by_agent_id: agent(),
        };
        let room = RoomSummary {
            size: None,
            inbox: Default::default(),
            room_id: text.as_str().into(),
            canonical_path: text.clone(),
            state: StickState::Reserved,
            owner: agent(),
            reserved_for: agent(),
            display_name: Some(text.clone()),
            turn_id: i64::MIN,
            members: u32::MAX,
            updated_at: time,
        };
        let source = EvidenceSource::HarnessDaemon;
        let session = Session {
            harness: text.clone(),
            session_id: text.clone(),
            agent_id: AgentId::trusted(HOSTILE),
            status: SessionStatus::Unknown,
            since: Some(time),
            doubted: true,
            liveness: Liveness::Unknown,
            because: text.clone(),
            pid: Some(u32::MAX),
            cwd: Some(text.clone()),
            ways: WayName::ALL.to_vec(),
            evidence: vec![Evidence { source, says: text.clone(), at: time }],
        };
        for (real, reckoned) in [sizes(&event), sizes(&note), sizes(&room), sizes(&session)] {
            assert!((real..real + FRAME_BYTES).contains(&reckoned), "{real} bytes were reckoned as {reckoned}");
        }
    }

    #[test]
    fn a_page_with_its_last_item_fits_an_answer() {
        let mut page = PageSize::default();
        let mut real = 0;
        let reason = Some("\u{1}".repeat(1024 * 1024));
        let mut item = Event {
            event_seq: 1,
            event_id: EventId::fresh(),
            room_id: "r".into(),
            turn_id: None,
            event_type: EventType::Kick,
            from_agent_id: None,
            to_agent_id: None,
            handoff: None,
            reason: Some("\u{1}".repeat(MAX_TEXT_BYTES)),
            created_at: WallTime::from_millis(0),
            payload: None,
        };
        let small = sizes(&item).0;
        while page.has_room() {
            page.add(&item);
            real += small;
        }
        // Earlier versions accepted texts as long as a request.
        item.reason = reason;
        assert!(real + sizes(&item).0 < crate::MAX_RESPONSE_BYTES as usize);
    }
}
