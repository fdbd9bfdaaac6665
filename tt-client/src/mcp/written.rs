//! Standard input and output, with word of which answers have truly been written.
//!
//! A message is confirmed only then: an answer that the harness cancelled, or that found no reader, was shown to nobody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{StdioReader, StdioWriter};
use tokio::sync::{oneshot, watch};

/// Who waits for which answer to be written.
#[derive(Debug, Clone, Default)]
pub(super) struct Receipts(Arc<Mutex<HashMap<RequestId, oneshot::Sender<()>>>>);

impl Receipts {
    /// Resolves once the answer to this request has been written; fails when it never will be.
    pub(super) fn of(&self, request: &RequestId) -> oneshot::Receiver<()> {
        let (written, receipt) = oneshot::channel();
        self.lock().insert(request.clone(), written);
        receipt
    }

    /// There will be no answer.
    pub(super) fn forget(&self, request: &RequestId) {
        self.take(request);
    }

    fn take(&self, request: &RequestId) -> Option<oneshot::Sender<()>> {
        self.lock().remove(request)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, oneshot::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The harness at the other end of standard input and output.
pub(super) struct Stdio {
    inner: AsyncRwTransport<RoleServer, StdioReader, StdioWriter>,
    receipts: Receipts,
    /// Told when the harness has closed its end: nobody will read the answer to a wait.
    closed: watch::Sender<bool>,
}

impl Stdio {
    pub(super) fn new(receipts: Receipts, closed: watch::Sender<bool>) -> Self {
        let (input, output) = rmcp::transport::stdio_pipes();
        Self { inner: AsyncRwTransport::new_server(input, output), receipts, closed }
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let written = match &item {
            JsonRpcMessage::Response(response) => self.receipts.take(&response.id),
            _ => None,
        };
        let sent = self.inner.send(item);
        async move {
            sent.await?;
            if let Some(written) = written {
                let _ = written.send(());
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.inner.receive().await;
        match &message {
            // The answer to a cancelled request is never written, even if it is ready.
            Some(JsonRpcMessage::Notification(note)) => {
                if let ClientNotification::CancelledNotification(cancelled) = &note.notification
                    && let Some(request) = &cancelled.params.request_id
                {
                    self.receipts.forget(request);
                }
            }
            None => {
                self.closed.send_replace(true);
            }
            _ => {}
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
