//! Structured fuzzing of everything that Talking Stick reads from others, on stable Rust.
//!
//! A [`Target`] is one kind of input with the properties that must hold for every input. Each is a file in `targets/`, with
//! examples in `corpus/<name>/`. A run gives every target inputs that are made from scratch by its own generator, taken from
//! its corpus, or either of them damaged. All of it follows from a seed and a number, so every input can be made again.
//!
//! `cargo test -p tt-fuzz` is a bounded run; `cargo run --release -p tt-fuzz -- --inputs 10000000` is a long one.

pub mod corpus;
pub mod daemon;
pub mod generate;
pub mod random;
pub mod run;
pub mod targets;

pub use random::Random;
pub use run::{Failure, Figures, Plan};

/// What became of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was understood.
    Accepted,
    /// It was refused in an orderly way.
    Refused,
}

/// One kind of input, and what must hold for every one of them. A panic in any thread breaks it too.
pub trait Target {
    /// Makes an input from scratch: one that is meant to get past the first checks.
    fn generate(&self, random: &mut Random) -> Vec<u8>;

    /// Tries an input. The error says which property does not hold.
    fn check(&mut self, input: &[u8]) -> Result<Verdict, String>;
}

/// Fails a check unless a property holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
