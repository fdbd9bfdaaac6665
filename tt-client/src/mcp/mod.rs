//! `tt mcp`: an MCP server on standard input and output, one process per harness, and a thin client of the daemon like
//! every other command.

mod caller;
mod in_band;
mod server;
mod tools;
mod written;

use std::time::Duration;

use rmcp::ServiceExt;
use tokio::sync::{mpsc, watch};
use tt_proto::{Error, ErrorCode};

use crate::{Context, Failure};

/// How long confirmations may take after the harness has gone.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves until the harness closes its end.
pub(crate) async fn run(context: &Context) -> Result<(), Failure> {
    // Calls share what is known of the session, on this one thread.
    tokio::task::LocalSet::new().run_until(serve(context)).await
}

async fn serve(context: &Context) -> Result<(), Failure> {
    let receipts = written::Receipts::default();
    let (close, closed) = watch::channel(false);
    let (unfinished, mut finished) = mpsc::channel(1);
    let callers = caller::Callers::new(context.settings.clone());
    let server = server::Server::new(callers, receipts.clone(), closed, unfinished);
    let failed = |e: String| Failure::Other(Error::new(ErrorCode::InvalidInput, format!("MCP: {e}")));
    let running = match server.serve(written::Stdio::new(receipts, close)).await {
        Ok(running) => running,
        // A harness that goes away before it has said anything owes us no explanation.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(e) => return Err(failed(e.to_string())),
    };
    running.waiting().await.map_err(|e| failed(e.to_string()))?;
    let _ = tokio::time::timeout(LAST_WORDS, finished.recv()).await;
    Ok(())
}
