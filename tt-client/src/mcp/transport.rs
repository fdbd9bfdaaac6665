//! Standard input and output as the MCP transport. It reports which answers have been written.
//!
//! Messages are confirmed only after that: an answer that the harness cancelled, or that found no reader, was not shown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};

/// The tasks that wait for an answer to be written, by request.
#[derive(Debug, Clone, Default)]
pub(super) struct WrittenAnswers(Arc<Mutex<HashMap<RequestId, oneshot::Sender<()>>>>);

impl WrittenAnswers {
    /// Resolves once the answer to this request has been written; fails when it never will be.
    pub(super) fn of(&self, request: &RequestId) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(request.clone(), sender);
        receiver
    }

    /// Records that the request will not be answered.
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
pub(super) struct Stdio<R: AsyncRead, W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, R, W>,
    answers: WrittenAnswers,
    /// Set when the harness has closed its end: the answer to a wait will not be read.
    closed: watch::Sender<bool>,
}

impl<R, W> Stdio<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(input: R, output: W, answers: WrittenAnswers, closed: watch::Sender<bool>) -> Self {
        Self { inner: AsyncRwTransport::new_server(input, output), answers, closed }
    }
}

impl<R, W> Transport<RoleServer> for Stdio<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let written = match &item {
            JsonRpcMessage::Response(response) => self.answers.take(&response.id),
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
                    self.answers.forget(request);
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn response(id: i64) -> TxJsonRpcMessage<RoleServer> {
        serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}})).unwrap()
    }

    #[tokio::test]
    async fn an_answer_is_written_or_will_never_be() {
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
        let input = std::io::Cursor::new(format!("{cancelled}\n"));
        let (output, harness) = tokio::io::duplex(1 << 16);
        let (close, closed) = watch::channel(false);
        let answers = WrittenAnswers::default();
        let ids = [1, 2, 3].map(RequestId::Number);
        let [written, mut given_up, mut pending] = ids.each_ref().map(|id| answers.of(id));
        let mut stdio = Stdio::new(input, output, answers, close);
        stdio.send(response(1)).await.unwrap();
        assert_eq!(written.await, Ok(()));
        assert!(BufReader::new(harness).lines().next_line().await.unwrap().unwrap().contains("\"id\":1"));
        assert!(stdio.receive().await.is_some() && !*closed.borrow());
        assert_eq!(given_up.try_recv(), Err(TryRecvError::Closed), "cancelled: nobody will see it");
        assert!(stdio.receive().await.is_none() && *closed.borrow());
        // The reader is gone; what cannot be written was not.
        assert!(stdio.send(response(3)).await.is_err());
        assert_eq!(pending.try_recv(), Err(TryRecvError::Closed));
    }
}
