//! What is to be done with a message now: hand it over, or wait for something. Pure; it knows the recipient by what evidence says.

use tt_proto::delivery::{Surface, WaitReason};
use tt_proto::message::DeliveryHint;

/// What a recipient does at this moment, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// A surface of it waits for messages.
    Listening(Surface),
    Busy,
    /// It has finished its turn.
    Idle,
    /// A question to its user is open.
    Asking,
    Unknown,
    /// A person whose terminals are closed.
    Away,
    /// Its process ended.
    Gone,
    /// It left the room, or was removed.
    Removed,
}

/// A recipient, as far as a plan depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipient {
    pub doing: Doing,
    /// It does not want to be disturbed.
    pub is_quiet: bool,
}

/// What is to be done with one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This surface takes it.
    HandOver(Surface),
    Wait(WaitReason),
}

/// Decides about one message. `is_taken`: a surface has it already.
pub fn step(hint: DeliveryHint, recipient: Recipient, is_taken: bool) -> Step {
    if is_taken {
        return Step::Wait(WaitReason::OnItsWay);
    }
    Step::Wait(match recipient.doing {
        Doing::Listening(surface) => return Step::HandOver(surface),
        Doing::Busy if hint == DeliveryHint::Idle => WaitReason::UntilTurnEnds,
        Doing::Busy => WaitReason::Working,
        Doing::Asking => WaitReason::Asking,
        Doing::Idle if recipient.is_quiet => WaitReason::Quiet,
        Doing::Idle => WaitReason::Idle,
        Doing::Unknown => WaitReason::Unknown,
        Doing::Away => WaitReason::Away,
        Doing::Gone => WaitReason::Gone,
        Doing::Removed => WaitReason::Removed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Doing; 8] = [
        Doing::Listening(Surface::Wait),
        Doing::Busy,
        Doing::Idle,
        Doing::Asking,
        Doing::Unknown,
        Doing::Away,
        Doing::Gone,
        Doing::Removed,
    ];

    #[test]
    fn every_hint_has_its_step_whatever_the_recipient_does() {
        use Step::{HandOver, Wait};
        use WaitReason as R;
        let now = HandOver(Surface::Wait);
        let same = [
            now,
            Wait(R::Working),
            Wait(R::Idle),
            Wait(R::Asking),
            Wait(R::Unknown),
            Wait(R::Away),
            Wait(R::Gone),
            Wait(R::Removed),
        ];
        let later = [
            now,
            Wait(R::UntilTurnEnds),
            Wait(R::Idle),
            Wait(R::Asking),
            Wait(R::Unknown),
            Wait(R::Away),
            Wait(R::Gone),
            Wait(R::Removed),
        ];
        for hint in DeliveryHint::ALL {
            let expected = if *hint == DeliveryHint::Idle { later } else { same };
            let steps = ALL.map(|doing| step(*hint, Recipient { doing, is_quiet: false }, false));
            assert_eq!(steps, expected, "{hint:?}");
        }
    }

    #[test]
    fn quiet_keeps_an_idle_recipient_from_being_woken_and_nothing_else() {
        for doing in ALL {
            let quiet = step(DeliveryHint::Interrupt, Recipient { doing, is_quiet: true }, false);
            let other = step(DeliveryHint::Interrupt, Recipient { doing, is_quiet: false }, false);
            match doing {
                Doing::Idle => assert_eq!(quiet, Step::Wait(WaitReason::Quiet)),
                _ => assert_eq!(quiet, other, "{doing:?}"),
            }
        }
    }

    #[test]
    fn what_a_surface_has_taken_is_on_its_way() {
        for doing in ALL {
            let taken = step(DeliveryHint::Normal, Recipient { doing, is_quiet: true }, true);
            assert_eq!(taken, Step::Wait(WaitReason::OnItsWay), "{doing:?}");
        }
    }
}
