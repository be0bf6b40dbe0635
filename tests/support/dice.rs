//! Random choices in a test, which are the same again with the same seed.

/// A small generator, which repeats its numbers for the same seed.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    /// With the seed in this variable, or a random one; prints it, so that it can be set.
    pub fn new(variable: &str) -> Self {
        let seed = std::env::var(variable);
        let seed = seed.map_or_else(
            |_| uuid::Uuid::new_v4().as_u64_pair().0,
            |seed| {
                seed.parse()
                    .unwrap_or_else(|_| panic!("{variable} is a number"))
            },
        );
        eprintln!("{variable}={seed}");
        Self::of(seed)
    }

    /// With this seed.
    pub fn of(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Another generator, independent of this one.
    pub fn others(&mut self) -> Self {
        Self::of(self.below(u64::MAX))
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
