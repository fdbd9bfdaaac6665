//! `ttbench`: the figures that matter to users, each beside what the machine itself can do, measured in the same run.
//!
//! Users are separate processes, so the other side of every measurement is this program started again in a role
//! (`roles`), or the real `tt` and `ttd`. A limit and the figure it belongs to are sampled in turns, so that whatever
//! else the machine does falls on both.

mod deadlines;
mod limits;
mod memory;
mod messages;
mod processes;
mod roles;
mod rpc;
mod samples;
mod scratch;
mod sizes;
mod soak;
mod table;
mod turns;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use table::{Row, Table};

/// Whatever went wrong, for a person to read.
type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measures Talking Stick against the limits of this machine.
#[derive(Debug, Parser)]
struct Args {
    /// Under a minute, fewer samples; exit 1 where a target is missed by more than the documented slack
    #[arg(long)]
    quick: bool,
    /// Only rows whose name begins with this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Where to write the table as JSON [default: ttbench.json in the target directory]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Thirty agents that send and follow for a minute, instead of the table
    #[arg(long)]
    soak: bool,
    /// How long the soak lasts, in seconds
    #[arg(long, default_value_t = 60, value_name = "S")]
    soak_seconds: u64,
    /// What this process plays in a measurement; for ttbench itself
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    role: Option<Vec<String>>,
}

/// How often a quick run measures again what it found wanting.
const LOOK_AGAIN: usize = 2;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub quick: bool,
}

impl Effort {
    /// A number of samples: `full`, or what is enough for a quick look.
    fn of(self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return table::complain(&format!("no runtime: {e}")),
    };
    let done = runtime.block_on(async {
        match &args.role {
            Some(role) => roles::play(role).await.map(|()| true),
            None => {
                scratch::build_programs()?;
                if args.soak { soak::run(args.soak_seconds).await } else { measure(&args).await }
            }
        }
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => table::complain(&e.to_string()),
    }
}

/// Runs every row that was asked for. True when all targets are met, within the slack of a quick run.
async fn measure(args: &Args) -> Fallible<bool> {
    let effort = Effort { quick: args.quick };
    let mut table = Table::new(args.quick);
    let wanted = |names: &[&str]| args.only.as_ref().is_none_or(|only| names.iter().any(|n| n.starts_with(only)));
    macro_rules! group {
        ($names:expr, $rows:expr) => {
            if wanted(&$names) {
                let mut rows: Vec<Row> = $rows.await?;
                // Whatever else a machine does can only make a figure worse: a quick run looks again before it says no.
                for _ in 0..if args.quick { LOOK_AGAIN } else { 0 } {
                    if rows.iter().all(|row| table.passes(row)) {
                        break;
                    }
                    let again: Vec<Row> = $rows.await?;
                    rows = rows.into_iter().zip(again).map(|(one, two)| one.better(two)).collect();
                }
                for row in rows {
                    if wanted(&[row.name.as_str()]) {
                        table.push(row);
                    }
                }
            }
        };
    }
    let one = |row: Fallible<Row>| row.map(|row| vec![row]);
    table::head();
    group!(["rpc"], async { one(rpc::round_trip(effort).await) });
    group!(["send", "subscriber"], messages::send_and_subscriber(effort));
    group!(["writers", "writers-calls", "writer-cpu"], messages::writers(effort));
    group!(["fanout"], async { one(messages::fanout(effort).await) });
    group!(["turn"], async { one(turns::release_to_turn(effort).await) });
    group!(["killed"], async { one(turns::holder_killed(effort).await) });
    group!(["tt-send"], processes::whole_send(effort));
    group!(["hook-message", "hook-edit", "hook-edit-mute", "guard-check-mute"], processes::speaking_hook(effort));
    group!(["hook", "hook-mute", "hook-full", "hook-killed", "hook-absent"], processes::hook(effort));
    group!(["tt-line"], async { one(processes::line(effort).await) });
    group!(["ask"], async { one(processes::ask(effort).await) });
    group!(["deadline", "deadline-killed"], deadlines::run(effort));
    group!(["prompt-mute"], async { one(processes::mute_prompt(effort).await) });
    group!(["cold"], async { one(processes::cold(effort).await) });
    group!(["install-json", "install-toml"], processes::install(effort));
    group!(["idle"], memory::idle(effort));
    group!(["memory"], memory::resident(effort));
    group!(["sizes"], sizes::run(effort));
    let json = args.json.clone().unwrap_or(scratch::target_dir()?.join("ttbench.json"));
    table.write_json(&json)?;
    Ok(table.finish(&json))
}
