//! `tt wait`: the one receive loop an agent needs. `tt try`: the same, without waiting.

use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use tt_proto::api::StickApiClient;
use tt_proto::turn::{Reason, Wait, WaitStatus};

use crate::connect::DEADLINE;
use crate::output::{Style, harmless};
use crate::workspace::{PathArg, Workspace};
use crate::{Context, Failure, duration, render};

/// One call waits at most this long; the loop goes on for as long as it should.
const ONE_WAIT: Duration = Duration::from_secs(100);

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt wait --timeout 10m")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Give up after this long (500ms, 30s, 5m, 2h) [default: never]
    #[arg(long, value_name = "D", value_parser = duration)]
    timeout: Option<Duration>,
    /// Stay listed but take no turn
    #[arg(long, conflicts_with = "claim")]
    park: bool,
    /// Take an idle room even when nobody else is here
    #[arg(long)]
    claim: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt try && make release")]
pub(crate) struct TryArgs {
    #[command(flatten)]
    path: PathArg,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut workspace = Workspace::find(context, args.path).await?;
    let give_up = args.timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let left = give_up.map_or(ONE_WAIT, |at| at.saturating_duration_since(Instant::now()).min(ONE_WAIT));
        let wait = wait(&mut workspace, left, args.park, args.claim).await?;
        let timed_out = give_up.is_some_and(|at| Instant::now() >= at);
        if wait.status != WaitStatus::NotYet || timed_out {
            return show(&workspace, &wait, "timeout");
        }
    }
}

pub(crate) async fn run_try(context: &Context, args: TryArgs) -> Result<(), Failure> {
    let mut workspace = Workspace::find(context, args.path).await?;
    let wait = wait(&mut workspace, Duration::ZERO, false, true).await?;
    show(&workspace, &wait, "not_yet")
}

async fn wait(workspace: &mut Workspace, patience: Duration, park: bool, claim: bool) -> Result<Wait, Failure> {
    let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    workspace
        .call_within(patience + DEADLINE, async |rpc, room| {
            rpc.wait_for_turn(room.clone(), Some(millis), Some(park), Some(claim)).await
        })
        .await
}

/// The wait, with the end of the caller's own patience spelled out.
struct Answer<'a> {
    wait: &'a Wait,
    status: Option<&'static str>,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.status {
            // A wait that ended with nothing has nothing to tell but the turn.
            Some(status) => serde_json::json!({ "status": status, "turn_id": self.wait.turn_id }).serialize(serializer),
            None => self.wait.serialize(serializer),
        }
    }
}

fn show(workspace: &Workspace, wait: &Wait, nothing: &'static str) -> Result<(), Failure> {
    let answer = Answer { status: (wait.status == WaitStatus::NotYet).then_some(nothing), wait };
    Ok(workspace.output.answer(&answer, |_, style| text(wait, style))?)
}

fn text(wait: &Wait, style: &Style) -> String {
    let reason = match wait.reason {
        Some(Reason::Claim(reason)) => reason.as_str(),
        Some(Reason::Takeover(reason)) => reason.as_str(),
        None => "",
    }
    .replace('_', " ");
    let from = wait.from_agent_id.as_ref().map(|agent| harmless(agent.as_str())).unwrap_or_default();
    match wait.status {
        WaitStatus::YourTurn => {
            let mut text = format!("{} ({reason})\n", style.bold(&format!("your turn: {}", wait.turn_id)));
            if let Some(handoff) = &wait.handoff {
                text.push_str(&format!("{}\n{}", style.dim(&format!("from {from}")), render::handoff(handoff, style)));
            }
            text
        }
        WaitStatus::TakeoverAvailable => {
            format!("{from} has the stick but {reason}; take it over: tt take --reason \"…\"")
        }
        WaitStatus::NotYet => "not yet".into(),
        WaitStatus::Closed => "the room is closed".into(),
        WaitStatus::Removed => "you are no longer a member; join again: tt join".into(),
    }
}
