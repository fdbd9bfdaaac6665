//! A hook of ours in the harness: it speaks when a session is opened, at a prompt, around every tool and at the end of a turn.
//! Confirmed once its output was written.

use tt_proto::delivery::{Surface, WayName};

use super::{Target, Way};
use crate::delivery::plan::Reach;

#[derive(Debug)]
pub(super) struct Hook;

impl Way for Hook {
    fn name(&self) -> WayName {
        WayName::Hook
    }

    fn reach(&self, target: &Target<'_>) -> Reach {
        match target.calls {
            Some((Surface::Hook, opening)) => Reach::Calls(Some(opening)),
            _ if target.has_hooks() => Reach::Calls(None),
            _ => Reach::No,
        }
    }
}
