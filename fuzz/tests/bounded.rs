//! The bounded run, which is part of every `cargo test`; and the machinery itself.

use tt_fuzz::run::{self, Plan};
use tt_fuzz::targets::{self, TargetInfo};
use tt_fuzz::{Random, Target, Verdict, corpus};

/// How many inputs all targets get together.
const INPUTS: u64 = 40_000;

#[test]
fn no_input_breaks_anything() {
    let started: Vec<_> = targets::ALL
        .iter()
        .map(|info| {
            let plan = Plan { inputs: (INPUTS * info.share / 1000).max(100), seed: 1 };
            (info.name, std::thread::spawn(move || run::run(info, plan, |_| {})))
        })
        .collect();
    for (name, running) in started {
        let figures = running.join().unwrap().unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        assert!(figures.accepted > 0, "{name}: every input was refused, so little was tried");
        assert!(figures.accepted < figures.inputs, "{name}: every input was accepted, so little was tried");
    }
}

#[test]
fn every_target_has_examples_and_every_example_a_target() {
    for info in targets::ALL {
        assert!(!corpus::read(info.name).unwrap().is_empty(), "{} has no examples", info.name);
    }
    for entry in std::fs::read_dir(corpus::dir("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(targets::named(&name).is_some(), "there is no target {name}");
    }
    assert_eq!(targets::ALL.iter().map(|info| info.share).sum::<u64>(), 1000);
}

#[test]
fn equal_seeds_make_equal_inputs() {
    for info in targets::ALL {
        let examples: Vec<Vec<u8>> = corpus::read(info.name).unwrap().into_iter().map(|(_, input)| input).collect();
        let inputs = |seed| -> Vec<Vec<u8>> {
            let target = (info.make)();
            (0..20).map(|number| run::input(target.as_ref(), info.name, seed, number, &examples)).collect()
        };
        assert_eq!(inputs(1), inputs(1), "{}", info.name);
        assert_ne!(inputs(1), inputs(2), "{}", info.name);
    }
}

/// Breaks on a word that only chance brings.
struct Fragile {
    panics: bool,
}

impl Target for Fragile {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        tt_fuzz::generate::text(random).into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let breaks = input.windows(10).any(|bytes| bytes == b"human:root");
        assert!(!breaks || !self.panics, "it panics");
        if breaks { Err("it fails".into()) } else { Ok(Verdict::Accepted) }
    }
}

#[test]
fn what_breaks_is_found_and_made_small() {
    let fails = TargetInfo { name: "fragile", share: 0, make: || Box::new(Fragile { panics: false }) };
    let failure = run::run(&fails, Plan { inputs: 10_000, seed: 1 }, |_| {}).unwrap_err();
    assert_eq!((failure.reason.as_str(), &*failure.input), ("it fails", &b"human:root"[..]));
    assert!(failure.number.is_some());
}

#[test]
fn a_panic_is_a_failure() {
    let mut target = Fragile { panics: true };
    let reason = run::check(&mut target, b"human:root").unwrap_err();
    assert!(reason.contains("panic"), "{reason}");
    assert_eq!(run::check(&mut target, b"x"), Ok(Verdict::Accepted));
}
