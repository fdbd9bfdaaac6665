//! Random choices that follow from a seed.

/// A generator of random choices. Equal seeds make equal choices, on every machine.
#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// The choices for one input of a run.
    pub fn for_input(seed: u64, target: &str, number: u64) -> Self {
        // FNV-1a, which is the same in every version.
        let fold = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let bytes = target.bytes().chain(seed.to_le_bytes()).chain(number.to_le_bytes());
        Self::new(bytes.fold(0xcbf2_9ce4_8422_2325, fold))
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub fn byte(&mut self) -> u8 {
        self.0.u8(..)
    }

    /// One of these, of which there must be at least one.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A length: mostly short, seldom up to `limit`.
    pub fn length(&mut self, limit: usize) -> usize {
        let bound = self.pick(&[2, 4, 8, 8, 16, 64, limit]);
        self.below(bound.min(limit) + 1)
    }
}
