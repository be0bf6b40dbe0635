//! Chance that a test has, and has again with the same seed.

/// Small, and the same again for the same seed.
pub struct Dice(u64);

impl Dice {
    /// With the seed that this variable holds, or any; printed, so that it can be set.
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
        Self(seed | 1)
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
