//! Chance that repeats.

/// Numbers that look random and are the same for the same seed: splitmix64
/// (<https://prng.di.unimi.it/splitmix64.c>, public domain).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The numbers of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// A number of this range.
    pub fn within(&mut self, range: std::ops::Range<i64>) -> i64 {
        let width = usize::try_from(range.end - range.start).unwrap_or(1);
        range.start + i64::try_from(self.below(width)).unwrap_or(0)
    }

    /// Yes, in so many of a hundred cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}
