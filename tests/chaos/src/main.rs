//! `tt-chaos`: agents, people, followers and MCP servers on the real programs, while processes are killed and stopped, disks
//! fail, fill up and slow down, clocks jump and descriptors run out. In the end the log and what everybody was told must agree.
//!
//! A seed replays the same plan of faults. What the actors and the machine make of it differs from run to run.

mod actors;
mod control;
mod dice;
mod evidence;
mod invariants;
mod journal;
mod plan;
mod processes;
mod run;
mod stage;
mod world;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use tt_proto::paths::Environment;

use evidence::Evidence;
use journal::Fact;
use run::Run;
use stage::Stage;
use world::{Places, World};

/// Whatever went wrong with the run itself, for a person to read.
type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Lets faults loose on a world of agents and people, and checks that no promise was broken.
#[derive(Debug, Parser)]
struct Args {
    /// How long faults happen
    #[arg(long, default_value_t = 60, value_name = "S")]
    seconds: u64,
    /// Replays the plan of an earlier run [default: a new one]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Leave out a kind of actor (agent, person, follower, mcp, sandboxed, session)
    #[arg(long, value_name = "KIND")]
    without: Vec<String>,
    /// Keep the directory of the world also if everything was well
    #[arg(long)]
    keep: bool,
    /// Check what was kept of an earlier run once more, and run nothing
    #[arg(long, value_name = "DIR")]
    check: Option<PathBuf>,
    /// This process has a mount namespace of its own; for tt-chaos itself
    #[arg(long, hide = true)]
    inside: bool,
    /// What this process plays; for tt-chaos itself
    #[arg(long, hide = true, num_args = 4)]
    role: Option<Vec<String>>,
}

/// The daemon may have this many descriptors more than before anybody came, and this much more memory. Its pool of readers
/// grows from one to four connections to the database, which have two descriptors each.
const MORE_DESCRIPTORS: usize = 8;
const MORE_MEMORY_KIB: u64 = 24 * 1024;

/// How long the daemon may take to give them back.
const RETURN_LIMIT: Duration = Duration::from_secs(20);

/// How many findings of one kind are printed.
const MAX_FINDINGS: usize = 5;

/// Writes a line for the person who runs this.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn main() -> ExitCode {
    let args = Args::parse();
    actors::leave_out(&args.without);
    let done = match &args.role {
        Some(role) => play(role, args.seed.unwrap_or(0)).map(|()| true),
        None if args.check.is_some() => check_again(args.check.as_deref().unwrap_or(Path::new("."))),
        None if !args.inside => enter_namespace(),
        None => build_programs().and_then(|()| chaos(&args)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "tt-chaos: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs this program again with mounts of its own, which disappear with it, or without them where that is not allowed.
fn enter_namespace() -> Fallible<bool> {
    const UNSHARE: [&str; 4] = ["unshare", "--mount", "--propagation", "private"];
    let allowed = Command::new(UNSHARE[0]).args(&UNSHARE[1..]).arg("true").output();
    let allowed = allowed.is_ok_and(|output| output.status.success());
    let own = std::env::current_exe()?;
    let mut command = if allowed {
        let mut command = Command::new(UNSHARE[0]);
        command.args(&UNSHARE[1..]).arg(own);
        command
    } else {
        Command::new(own)
    };
    Ok(command.args(std::env::args().skip(1)).arg("--inside").status()?.success())
}

/// Brings the programs up to date when Cargo runs this one: it builds what it runs, and nothing beside.
fn build_programs() -> Fallible<()> {
    let Some(cargo) = Environment::of_this_process().get("CARGO").map(PathBuf::from) else { return Ok(()) };
    let own = std::env::current_exe()?;
    let release = own.parent().is_some_and(|dir| dir.ends_with("release"));
    let mut build = Command::new(cargo);
    build.args(["build", "--locked", "--package", "tt-client", "--bins"]).args(release.then_some("--release"));
    if build.status()?.success() { Ok(()) } else { Err("tt and ttd could not be built".into()) }
}

/// Plays an actor until the standard input ends.
fn play(role: &[String], seed: u64) -> Fallible<()> {
    let [dir, kind, number, start] = role else { return Err("a role has four words".into()) };
    let number: usize = number.parse()?;
    let actor = actors::ALL.iter().find(|actor| actor.kind() == kind).ok_or("there is no such actor")?;
    let name = format!("{kind}-{number}.{start}");
    let mut stage = Stage::new(Places::at(Path::new(dir)), name, seed, std::env::vars_os().collect())?;
    stage.members = actors::others(kind, number);
    stage.end_with_input();
    actor.play(&mut stage)
}

/// The daemon's descriptors and memory, in KiB.
fn size_of_daemon(world: &World) -> Fallible<(usize, u64)> {
    let daemons = world.daemons();
    let [pid] = daemons[..] else { return Err(format!("there is not one daemon but {daemons:?}").into()) };
    Ok((processes::descriptors(pid)?, processes::memory_kib(pid)?))
}

/// Runs a world and checks it. True when nothing was broken.
fn chaos(args: &Args) -> Fallible<bool> {
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()) ^ journal::now());
    let began = Instant::now();
    let mut world = World::create(seed, args.seconds)?;
    say(&format!("seed {seed}, {} s, in {}", args.seconds, world.places.dir().display()));
    world.open()?;
    let before = size_of_daemon(&world)?;
    let rounds = plan::rounds(seed, args.seconds);
    let mut run = Run::new(&mut world, seed);
    for (number, round) in rounds.iter().enumerate() {
        run.round(round)?;
        if (number + 1).is_multiple_of(20) {
            say(&format!("round {} of {}, {} broken", number + 1, rounds.len(), run.counts.broken.len()));
        }
    }
    run.finish()?;
    let counts = run.counts;
    let mut findings: Vec<(&str, Vec<String>)> = vec![("everything works without a fault", counts.broken.clone())];
    let after = returned_size(&world, before);
    match &after {
        Ok(_) => findings.push(("memory and descriptors return", Vec::new())),
        Err(e) => findings.push(("memory and descriptors return", vec![e.to_string()])),
    }
    let evidence = Evidence::collect(&world.places, &world.places.data())?;
    findings.extend(invariants::ALL.iter().map(|(what, check)| (*what, check(&evidence))));
    run::print(&counts);
    print_evidence(&evidence, &world, &counts);
    if let Ok(after) = after {
        say(&format!(
            "daemon: {} descriptors and {} KiB before, {} and {} after",
            before.0, before.1, after.0, after.1
        ));
    }
    let is_well = print_findings(&findings);
    let dir = world.places.dir().to_owned();
    if !is_well {
        print_log(&world.places)?;
    }
    if !is_well || args.keep {
        keep(&world)?;
        say(&format!("seed {seed}; the world is kept in {}", dir.display()));
    }
    let has_own_disk = world.has_own_disk;
    drop(world);
    if is_well && !args.keep {
        if has_own_disk {
            Command::new("umount").args(["--lazy"]).arg(dir.join("data")).status()?;
        }
        std::fs::remove_dir_all(&dir)?;
        say(&format!("nothing is broken ({} s)", began.elapsed().as_secs()));
    }
    Ok(is_well)
}

/// Prints what is broken. True when nothing is.
fn print_findings(findings: &[(&str, Vec<String>)]) -> bool {
    for (what, found) in findings.iter().filter(|(_, found)| !found.is_empty()) {
        say(&format!("BROKEN: {what} ({} times)", found.len()));
        found.iter().take(MAX_FINDINGS).for_each(|finding| say(&format!("  {finding}")));
    }
    findings.iter().all(|(_, found)| found.is_empty())
}

/// Checks what was kept of an earlier run once more.
fn check_again(dir: &Path) -> Fallible<bool> {
    let places = Places::at(dir);
    let data = if places.kept_data().exists() { places.kept_data() } else { places.data() };
    let evidence = Evidence::collect(&places, &data)?;
    let findings: Vec<_> = invariants::ALL.iter().map(|(what, check)| (*what, check(&evidence))).collect();
    Ok(print_findings(&findings))
}

/// Waits until the daemon is nearly as small as it was before.
fn returned_size(world: &World, before: (usize, u64)) -> Fallible<(usize, u64)> {
    let give_up = Instant::now() + RETURN_LIMIT;
    loop {
        let now = size_of_daemon(world)?;
        if now.0 <= before.0 + MORE_DESCRIPTORS && now.1 <= before.1 + MORE_MEMORY_KIB {
            return Ok(now);
        }
        if Instant::now() > give_up {
            return Err(format!("descriptors and KiB: {before:?} before, {now:?} after").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn print_evidence(evidence: &Evidence, world: &World, counts: &run::Counts) {
    let of_type = |kind: &str| evidence.rows.iter().filter(|row| row.event_type == kind).count();
    let facts =
        |is: fn(&Fact) -> bool| evidence.told.iter().flat_map(|told| &told.entries).filter(|e| is(&e.fact)).count();
    say(&format!(
        "messages: {} sent, {} acknowledged, {} deliveries; notes {}; turns {} ({} taken over), {} told; events {}",
        of_type("message_sent"),
        facts(|fact| matches!(fact, Fact::Sent { .. })),
        evidence.deliveries.len(),
        evidence.notes.len(),
        evidence.stick.turn_id,
        of_type("takeover"),
        facts(|fact| matches!(fact, Fact::Turn { .. })),
        evidence.rows.len(),
    ));
    let failed = world.control.as_ref().and_then(|control| control.get(control::Field::Failed).ok()).unwrap_or(0);
    say(&format!(
        "starts: {} of the daemon, {} of actors; calls that failed: {} of actors, {failed} to the disk",
        counts.daemon_starts,
        world.starts(),
        facts(|fact| matches!(fact, Fact::Failed { .. })),
    ));
}

/// The end of the daemon's log.
fn print_log(places: &Places) -> Fallible<()> {
    let log = String::from_utf8_lossy(&std::fs::read(places.data().join("ttd.log"))?).into_owned();
    let lines: Vec<&str> = log.lines().collect();
    say("the end of the daemon's log:");
    lines[lines.len().saturating_sub(30)..].iter().for_each(|line| say(&format!("  {line}")));
    Ok(())
}

/// Saves the data directory from the disk that disappears with this process.
fn keep(world: &World) -> Fallible<()> {
    if world.has_own_disk {
        let copied = Command::new("cp").arg("-a").arg(world.places.data()).arg(world.places.kept_data()).status()?;
        if !copied.success() {
            return Err("the data directory could not be kept".into());
        }
    }
    Ok(())
}
