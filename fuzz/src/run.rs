//! Runs a target: makes the inputs, tries them, and makes an input that broke something as small as it can.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::targets::TargetInfo;
use crate::{Random, Target, Verdict, corpus, generate};

/// How many inputs, and which.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub inputs: u64,
    pub seed: u64,
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    pub inputs: u64,
    pub accepted: u64,
    pub time: Duration,
}

/// An input that broke something.
#[derive(Debug)]
pub struct Failure {
    /// Its number in the run; none for an example of the corpus.
    pub number: Option<u64>,
    pub reason: String,
    /// The smallest input found that breaks something.
    pub input: Vec<u8>,
}

/// How many smaller inputs are tried after a failure.
const MAX_REDUCTIONS: usize = 2000;

/// Tries the corpus and then the planned inputs, until one fails. `progress` is told the number of each input before it is tried.
pub fn run(info: &TargetInfo, plan: Plan, progress: impl Fn(u64)) -> Result<Figures, Box<Failure>> {
    let started = Instant::now();
    let mut target = (info.make)();
    let examples: Vec<Vec<u8>> =
        corpus::read(info.name).unwrap_or_default().into_iter().map(|(_, input)| input).collect();
    let mut figures = Figures::default();
    let mut count = |verdict: Verdict| {
        figures.inputs += 1;
        figures.accepted += u64::from(verdict == Verdict::Accepted);
    };
    for example in &examples {
        progress(0);
        count(tried(info, &mut target, example, None)?);
    }
    for number in 0..plan.inputs {
        progress(number);
        let input = input(target.as_ref(), info.name, plan.seed, number, &examples);
        count(tried(info, &mut target, &input, Some(number))?);
    }
    figures.time = started.elapsed();
    Ok(figures)
}

fn tried(
    info: &TargetInfo,
    target: &mut Box<dyn Target>,
    input: &[u8],
    number: Option<u64>,
) -> Result<Verdict, Box<Failure>> {
    check(target.as_mut(), input).map_err(|reason| {
        // A target that failed may be in any state.
        let (reason, input) = reduced(|| (info.make)(), input.to_owned(), reason);
        Box::new(Failure { number, reason, input })
    })
}

/// The input of this number in a run with this seed.
pub fn input(target: &dyn Target, name: &str, seed: u64, number: u64, examples: &[Vec<u8>]) -> Vec<u8> {
    let random = &mut Random::for_input(seed, name, number);
    let example = |random: &mut Random| examples.get(random.below(examples.len().max(1))).cloned().unwrap_or_default();
    match random.below(4) {
        0 => target.generate(random),
        1 => {
            let mut input = target.generate(random);
            let other = example(random);
            generate::damage(random, &mut input, &other);
            input
        }
        _ => {
            let (mut input, other) = (example(random), example(random));
            generate::damage(random, &mut input, &other);
            input
        }
    }
}

/// Tries one input. A panic is a failure: here, or on a thread of the daemon, where it would end no process.
pub fn check(target: &mut dyn Target, input: &[u8]) -> Result<Verdict, String> {
    record_panics();
    let before = ELSEWHERE.load(Ordering::SeqCst);
    CHECKING.set(true);
    let verdict = catch_unwind(AssertUnwindSafe(|| target.check(input)));
    CHECKING.set(false);
    let last = || format!("panic: {}", LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner));
    match verdict {
        Err(_) => Err(last()),
        Ok(_) if ELSEWHERE.load(Ordering::SeqCst) != before => Err(last()),
        Ok(verdict) => verdict,
    }
}

/// Removes parts of an input for as long as it still breaks something.
fn reduced(make: impl Fn() -> Box<dyn Target>, mut input: Vec<u8>, mut reason: String) -> (String, Vec<u8>) {
    let mut left = MAX_REDUCTIONS;
    let mut length = input.len() / 2;
    let give_up = Instant::now() + Duration::from_secs(60);
    while length > 0 {
        let mut at = 0;
        while at < input.len() && left > 0 && Instant::now() < give_up {
            left -= 1;
            let mut smaller = input.clone();
            smaller.drain(at..(at + length).min(input.len()));
            match check(make().as_mut(), &smaller) {
                Err(why) => (input, reason) = (smaller, why),
                Ok(_) => at += length,
            }
        }
        length /= 2;
    }
    (reason, input)
}

/// How many threads panicked that were not trying an input.
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

thread_local! {
    /// Whether this thread tries an input. Its own panic ends that and needs no count.
    static CHECKING: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics for [`check`] instead of printing them.
fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
            if !CHECKING.get() {
                ELSEWHERE.fetch_add(1, Ordering::SeqCst);
                print(panic);
            }
        }));
    });
}
