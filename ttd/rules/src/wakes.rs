//! On whose account a message may wake a session that is idle.

use tt_proto::message::MessageSent;

/// Whether a message may go to a session that is idle, and on whose account. The best is the greatest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wakes {
    /// It comes with the next thing that the session does.
    #[default]
    Never,
    ByAgent,
    ByPerson,
    /// The answer to a question of its own.
    Answer,
}

impl Wakes {
    /// Every account on which a session may be woken.
    pub const ACCOUNTS: &[Wakes] = &[Self::ByAgent, Self::ByPerson, Self::Answer];

    /// Whether a message wakes its recipient. What an agent tells everybody, and what became of something, does not.
    /// `is_named`: it is addressed to the recipient. `answers`: it answers a question of the recipient.
    pub fn of(payload: &MessageSent, is_named: bool, answers: bool) -> Self {
        match payload {
            MessageSent { notice: Some(_), .. } => Self::Never,
            _ if answers => Self::Answer,
            MessageSent { from_person: true, .. } => Self::ByPerson,
            _ if is_named => Self::ByAgent,
            _ => Self::Never,
        }
    }

    /// As it is stored; none for a message that wakes nobody.
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Never => None,
            Self::ByAgent => Some("agent"),
            Self::ByPerson => Some("person"),
            Self::Answer => Some("answer"),
        }
    }

    /// What is stored as this. What a newer version wrote wakes nobody.
    pub fn parse(stored: Option<&str>) -> Self {
        let found = Self::ACCOUNTS.iter().copied().find(|wakes| wakes.as_str() == stored);
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use tt_proto::message::Notice;

    use super::*;

    #[test]
    fn a_broadcast_of_an_agent_and_a_notice_wake_nobody() {
        let plain = MessageSent::default;
        let person = || MessageSent { from_person: true, ..plain() };
        let notice = || MessageSent { notice: Some(Notice::Expired), ..plain() };
        let reminder = || MessageSent { reminder_id: Some("r".into()), ..plain() };
        let reply = || MessageSent { reply_to: Some(1), ..plain() };
        let table = [
            ("an agent, by name", plain(), true, false, Wakes::ByAgent),
            ("an agent, to everybody", plain(), false, false, Wakes::Never),
            ("a person, by name", person(), true, false, Wakes::ByPerson),
            ("a person, to everybody", person(), false, false, Wakes::ByPerson),
            ("a notice", notice(), true, false, Wakes::Never),
            ("a reminder", reminder(), true, false, Wakes::ByAgent),
            ("a reply to what was no question", reply(), true, false, Wakes::ByAgent),
            ("an answer", reply(), true, true, Wakes::Answer),
        ];
        for (case, payload, is_named, answers, expected) in table {
            assert_eq!(Wakes::of(&payload, is_named, answers), expected, "{case}");
        }
    }

    #[test]
    fn what_is_stored_is_read_back_and_what_a_newer_version_wrote_wakes_nobody() {
        for wakes in Wakes::ACCOUNTS {
            assert_eq!(Wakes::parse(wakes.as_str()), *wakes);
        }
        assert_eq!((Wakes::parse(None), Wakes::parse(Some("telepathy"))), (Wakes::Never, Wakes::Never));
    }
}
