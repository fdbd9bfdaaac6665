//! An agent in a pid namespace and with a `/proc` of its own, as in a container. The daemon may be outside of it, or inside,
//! when the agent was the one who started it.

use super::{Actor, agent};
use crate::Fallible;
use crate::stage::Stage;

const UNSHARE: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];

#[derive(Debug)]
pub(crate) struct Sandboxed;

impl Actor for Sandboxed {
    fn kind(&self) -> &'static str {
        "sandboxed"
    }

    /// None where this user may not make namespaces.
    fn count(&self) -> usize {
        static POSSIBLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        let tried = || std::process::Command::new(UNSHARE[0]).args(&UNSHARE[1..]).arg("true").output();
        usize::from(*POSSIBLE.get_or_init(|| tried().is_ok_and(|output| output.status.success())))
    }

    fn launcher(&self) -> &'static [&'static str] {
        UNSHARE
    }

    fn play(&self, stage: &mut Stage) -> Fallible<()> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(agent::play(stage))
    }
}
