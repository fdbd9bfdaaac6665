//! `tt mcp`: an MCP server on standard input and output, one process per harness, and a thin client of the daemon like
//! every other command.

mod assumed;
mod caller;
mod inbox;
mod server;
mod shown;
mod tools;
mod transport;

use std::time::Duration;

use rmcp::ServiceExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::connect::Settings;
use crate::error::CommandError;
use crate::follow::block_on;

/// How long confirmations may take after the harness has gone.
const LAST_CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until the harness closes its end.
pub(crate) fn run(context: &Context) -> Result<(), CommandError> {
    // Calls share what is known of the session, on this one thread.
    block_on(tokio::task::LocalSet::new().run_until(serve(context)))
}

async fn serve(context: &Context) -> Result<(), CommandError> {
    let (input, output) = rmcp::transport::stdio_pipes();
    serve_on(context.settings.clone(), input, output).await
}

/// Serves on this input and output until the input ends.
pub(crate) async fn serve_on<R, W>(settings: Settings, input: R, output: W) -> Result<(), CommandError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let written = transport::WrittenAnswers::default();
    let (close, closed) = watch::channel(false);
    let (unfinished, mut finished) = mpsc::channel(1);
    let callers = caller::Callers::new(settings);
    let server = server::Server::new(callers, written.clone(), closed, unfinished);
    let failed = |e: String| CommandError::Local(Error::new(ErrorCode::InvalidInput, format!("MCP: {e}")));
    let running = match server.serve(transport::Stdio::new(input, output, written, close)).await {
        Ok(running) => running,
        // A harness may go away before it sends anything.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(e) => return Err(failed(e.to_string())),
    };
    running.waiting().await.map_err(|e| failed(e.to_string()))?;
    let _ = tokio::time::timeout(LAST_CONFIRM_TIMEOUT, finished.recv()).await;
    Ok(())
}

/// The tool of this name.
pub(crate) fn tool(name: &str) -> Option<&'static tools::ToolSpec> {
    tools::ToolSpec::named(name)
}

/// The names of all tools.
pub(crate) fn tool_names() -> Vec<&'static str> {
    tools::ALL.iter().map(|tool| tool.name).collect()
}
