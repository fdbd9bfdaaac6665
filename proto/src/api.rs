//! The whole API, one trait per group of methods. Server and client both come from it; parameters travel by name.

use jsonrpsee::proc_macros::rpc;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::hello::{Hello, Welcome, Whoami};
use crate::time::Timestamp;

#[rpc(server, client)]
pub trait DaemonApi {
    /// Binds the connection to the identity derived from its process and signals. Must come first.
    #[method(name = "hello", param_kind = map, with_extensions)]
    async fn hello(&self, hello: Hello) -> Result<Welcome, Error>;

    #[method(name = "whoami", param_kind = map, with_extensions)]
    async fn whoami(&self, explain: Option<bool>) -> Result<Whoami, Error>;

    #[method(name = "daemon_status", param_kind = map, with_extensions)]
    async fn daemon_status(&self) -> Result<DaemonStatus, Error>;

    /// Answers, then drains and exits.
    #[method(name = "daemon_stop", param_kind = map, with_extensions)]
    async fn daemon_stop(&self) -> Result<Stopping, Error>;
}

/// A daemon's own account of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub status: String,
    pub pid: u32,
    pub version: String,
    pub protocol: u32,
    pub started_at: Timestamp,
    pub uptime_ms: u64,
    pub supervised: bool,
    pub data_dir: String,
    pub socket: String,
    pub log: String,
    pub connections: usize,
    pub calls: usize,
    /// The newest migration the database has.
    pub schema: i64,
    /// After this long with nothing to do the daemon exits; absent when it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_exit_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stopping {
    pub status: String,
    pub pid: u32,
}
