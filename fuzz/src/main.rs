//! `tt-fuzz`: the long run, the replay of one input, and the figures.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for people")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use tt_fuzz::run::{self, Failure, Figures, Plan};
use tt_fuzz::targets::{self, TargetInfo};

/// An input that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(120);

/// Gives every target inputs that follow from the seed, and stops a target at the first that breaks something
#[derive(Debug, Parser)]
struct Args {
    /// How many inputs, for all targets together or for the one that is named
    #[arg(long, default_value_t = 100_000)]
    inputs: u64,
    /// Only this target
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(targets::ALL.iter().map(|target| target.name)))]
    target: Option<String>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many targets run at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Try one file instead, with the target that is named
    #[arg(long, requires = "target")]
    replay: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let chosen = args.target.as_deref().and_then(targets::named);
    if let (Some(file), Some(info)) = (&args.replay, chosen) {
        return replay(file, info);
    }
    let plans: Vec<(&TargetInfo, Plan)> = match chosen {
        Some(info) => vec![(info, Plan { inputs: args.inputs, seed: args.seed })],
        None => targets::ALL
            .iter()
            .map(|info| (info, Plan { inputs: args.inputs * info.share / 1000, seed: args.seed }))
            .collect(),
    };
    let started = Instant::now();
    let results = run_all(plans, args.jobs);
    println!("{:<16} {:>10} {:>10} {:>9} {:>10}", "target", "inputs", "accepted", "seconds", "per second");
    let mut total = Figures::default();
    let mut failed = false;
    for (info, result) in &results {
        match result {
            Ok(figures) => {
                total.inputs += figures.inputs;
                total.accepted += figures.accepted;
                print_row(info.name, figures);
            }
            Err(failure) => {
                failed = true;
                report(info, failure, args.seed);
            }
        }
    }
    total.time = started.elapsed();
    print_row("all", &total);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

type Outcome = Result<Figures, Box<Failure>>;

/// Runs the targets, a few at a time. The slow ones start first.
fn run_all(plans: Vec<(&'static TargetInfo, Plan)>, jobs: usize) -> Vec<(&'static TargetInfo, Outcome)> {
    let (waiting, done) = (Mutex::new(plans), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some((info, plan)) = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop() {
                    let progress = watch(info.name);
                    let result = run::run(info, plan, |number| progress.store(number, Ordering::Relaxed));
                    progress.store(u64::MAX, Ordering::Relaxed);
                    eprintln!("{} ended", info.name);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((info, result));
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program with the number of the input when a target makes no progress.
fn watch(name: &'static str) -> Arc<AtomicU64> {
    let progress = Arc::new(AtomicU64::new(0));
    let watched = progress.clone();
    std::thread::spawn(move || {
        let mut last = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let number = watched.load(Ordering::Relaxed);
            match number {
                u64::MAX => return,
                number if number != last.0 => last = (number, Instant::now()),
                number if last.1.elapsed() > HANG => {
                    eprintln!("{name}: input {number} takes longer than {} s", HANG.as_secs());
                    std::process::exit(1);
                }
                _ => {}
            }
        }
    });
    progress
}

fn print_row(name: &str, figures: &Figures) {
    let seconds = figures.time.as_secs_f64();
    let rate = figures.inputs as f64 / seconds.max(0.001);
    println!("{name:<16} {:>10} {:>10} {seconds:>9.1} {rate:>10.0}", figures.inputs, figures.accepted);
}

fn report(info: &TargetInfo, failure: &Failure, seed: u64) {
    let dir = PathBuf::from("target/fuzz");
    let file = dir.join(format!("{}-{seed}-{}", info.name, failure.number.unwrap_or(0)));
    let kept = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&file, &failure.input));
    println!("{:<16} FAILED: {}", info.name, failure.reason);
    println!("  input {:?} of seed {seed}: {:?}", failure.number, String::from_utf8_lossy(&failure.input));
    match kept {
        Ok(()) => println!("  again: cargo run -p tt-fuzz -- --target {} --replay {}", info.name, file.display()),
        Err(e) => println!("  it could not be written to {}: {e}", file.display()),
    }
}

fn replay(file: &PathBuf, info: &TargetInfo) -> ExitCode {
    let input = match std::fs::read(file) {
        Ok(input) => input,
        Err(e) => {
            eprintln!("{}: {e}", file.display());
            return ExitCode::FAILURE;
        }
    };
    match run::check((info.make)().as_mut(), &input) {
        Ok(verdict) => {
            println!("{verdict:?}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            println!("FAILED: {reason}");
            ExitCode::FAILURE
        }
    }
}
