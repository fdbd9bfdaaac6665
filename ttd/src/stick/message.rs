//! What a message may be, and to whom it goes.

use tt_proto::event::EventType;
use tt_proto::handoff::RawJson;
use tt_proto::message::{DeliveryHint, MAX_MESSAGE_BYTES, MessageSent};
use tt_proto::room::MemberStatus;
use tt_proto::{AgentId, Error, ErrorCode};

use super::{EventDraft, Room};

/// Appends the one event of a message and says who is to get it: the recipient, or every other member who is there.
pub fn send(
    room: &mut Room,
    from: &AgentId,
    to: Option<&AgentId>,
    body: &str,
    hint: DeliveryHint,
) -> Result<Vec<AgentId>, Error> {
    room.open()?;
    room.active_member(from)?;
    if body.is_empty() {
        return Err(Error::new(ErrorCode::InvalidBody, "the message is empty"));
    }
    if body.len() > MAX_MESSAGE_BYTES {
        return Err(Error::new(
            ErrorCode::MessageTooLarge,
            format!("the message is {} bytes long; {MAX_MESSAGE_BYTES} is the most", body.len()),
        )
        .detail("bytes", body.len())
        .detail("max_bytes", MAX_MESSAGE_BYTES));
    }
    let recipients = match to {
        Some(to) if room.member(to).is_none() => {
            return Err(Error::new(ErrorCode::UnknownRecipient, format!("{to} has never been a member of this room"))
                .detail("agent_id", to.as_str()));
        }
        Some(to) => vec![to.clone()],
        None => {
            let others = room.members().filter(|m| m.status == MemberStatus::Active && m.agent_id != *from);
            others.map(|m| m.agent_id.clone()).collect()
        }
    };
    let payload = MessageSent { body: body.to_owned(), delivery_hint: hint };
    let mut event = EventDraft::new(EventType::MessageSent, room.turn_id, from);
    event.to = to.cloned();
    event.payload = Some(RawJson::of(&payload).map_err(|e| Error::new(ErrorCode::InvalidBody, e.to_string()))?);
    room.events.push(event);
    Ok(recipients)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{id, room};
    use super::*;

    fn send_to(room: &mut Room, to: Option<&str>, body: &str) -> Result<Vec<String>, ErrorCode> {
        let to = to.map(id);
        let sent = send(room, &id("a"), to.as_ref(), body, DeliveryHint::Normal);
        sent.map(|to| to.iter().map(ToString::to_string).collect()).map_err(|e| e.code)
    }

    #[test]
    fn a_broadcast_goes_to_the_others_who_are_there() {
        let mut room = room(&["a", "b", "c", "d"]);
        room.member_mut(&id("c")).unwrap().status = MemberStatus::Gone;
        assert_eq!(send_to(&mut room, None, "hi").unwrap(), ["b", "d"]);
        assert_eq!(send_to(&mut room, Some("c"), "hi").unwrap(), ["c"], "an absent member by its id");
        assert_eq!(send_to(&mut room, Some("a"), "note to self").unwrap(), ["a"]);
        assert_eq!(send_to(&mut room, Some("x"), "hi"), Err(ErrorCode::UnknownRecipient));
        assert_eq!(room.events.len(), 3, "one event each");
    }

    #[test]
    fn bodies_are_counted_in_bytes_and_never_trimmed() {
        let mut room = room(&["a", "b"]);
        assert_eq!(send_to(&mut room, None, ""), Err(ErrorCode::InvalidBody));
        assert!(send_to(&mut room, None, " \n ").is_ok(), "what is not empty is sent as it is");
        assert!(send_to(&mut room, None, &"ü".repeat(2048)).is_ok());
        assert_eq!(send_to(&mut room, None, &format!("{}x", "ü".repeat(2048))), Err(ErrorCode::MessageTooLarge));
        let body = "NUL \0, escape \x1b[2J, right-to-left \u{202e}";
        send_to(&mut room, None, body).unwrap();
        let payload = room.events.last().unwrap().payload.clone().unwrap();
        assert_eq!(serde_json::from_str::<MessageSent>(payload.as_str()).unwrap().body, body);
    }

    #[test]
    fn only_a_member_of_an_open_room_may_speak() {
        let mut room = room(&["b"]);
        assert_eq!(send_to(&mut room, None, "hi"), Err(ErrorCode::UnknownMember));
        let mut room = super::super::testing::room(&["a"]);
        room.state = tt_proto::room::StickState::Closed;
        assert_eq!(send_to(&mut room, None, "hi"), Err(ErrorCode::RoomClosed));
    }
}
