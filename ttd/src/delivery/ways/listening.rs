//! Somebody asked for messages and waits for them: `tt wait`, `tt msg recv`, a follower. Confirmed once written to its reader.

use tt_proto::delivery::WayName;

use super::{Target, Way};
use crate::delivery::plan::Reach;

#[derive(Debug)]
pub(super) struct Listening;

impl Way for Listening {
    fn name(&self) -> WayName {
        WayName::Listening
    }

    fn reach(&self, target: &Target<'_>) -> Reach {
        let calls = target.calls.is_some_and(|(surface, _)| WayName::of(surface) == Some(WayName::Listening));
        let listens = || {
            let inbox = target.room_id.map(|room_id| (room_id.clone(), target.agent_id.clone()));
            inbox.is_some_and(|inbox| target.listeners.listening(&inbox).is_some())
        };
        if calls || listens() { Reach::Listens } else { Reach::No }
    }
}
