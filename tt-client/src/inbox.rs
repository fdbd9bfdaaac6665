//! Saying that messages were shown: what was taken and not confirmed goes back when the connection ends.

use tt_proto::AgentId;
use tt_proto::event::{Event, EventType};
use tt_proto::requests::{ConfirmMessages, Skipped};

use crate::Failure;
use crate::workspace::Workspace;

/// Confirms the messages among these events. Repeating it after a lost connection is safe.
pub(crate) async fn confirm(
    workspace: &mut Workspace,
    surface: &str,
    shown: &[&Event],
    skipped: Option<&Skipped>,
    from: Option<&AgentId>,
) -> Result<(), Failure> {
    let messages = shown.iter().filter(|event| event.event_type == EventType::MessageSent);
    let event_seqs: Vec<i64> = messages.map(|event| event.event_seq).collect();
    if event_seqs.is_empty() && skipped.is_none() {
        return Ok(());
    }
    let request = ConfirmMessages {
        room_id: workspace.room_id.clone(),
        surface: surface.to_owned(),
        event_seqs,
        skipped: skipped.cloned(),
        from_agent_id: from.cloned(),
    };
    workspace.client.call(request).await?;
    Ok(())
}
