//! Saying that messages were shown: what was taken and not confirmed goes back when the connection ends.

use tt_proto::AgentId;
use tt_proto::api::MessageApiClient;
use tt_proto::event::{Event, EventType};
use tt_proto::message::Skipped;

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
    let room_id = workspace.room_id.clone();
    let call = async |rpc: &_| {
        let (skipped, from) = (skipped.cloned(), from.cloned());
        MessageApiClient::confirm_messages(rpc, room_id.clone(), surface.to_owned(), event_seqs.clone(), skipped, from)
            .await
    };
    workspace.client.call(call).await?;
    Ok(())
}
