//! The answer of a tool of ours, over MCP: what waits comes with it, in the middle of a turn. Confirmed once the answer was written.

use tt_proto::delivery::{Surface, WayName};

use super::{Target, Way};
use crate::delivery::plan::Reach;

#[derive(Debug)]
pub(super) struct ToolResponse;

impl Way for ToolResponse {
    fn name(&self) -> WayName {
        WayName::ToolResponse
    }

    fn reach(&self, target: &Target<'_>) -> Reach {
        match target.calls {
            Some((Surface::ToolResponse, opening)) => Reach::Calls(Some(opening)),
            _ => Reach::No,
        }
    }
}
