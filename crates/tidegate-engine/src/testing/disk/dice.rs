/// Random numbers that are the same for the same seed.
#[derive(Clone, Debug, Default)]
pub struct Dice(u64);

impl Dice {
    /// Dice that always fall the same way for a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below another one; 0 below 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.bits() % end }
    }

    /// True once in this many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several items.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn one_of<T: Clone>(&mut self, things: &[T]) -> T {
        let index = usize::try_from(self.below(things.len() as u64)).unwrap_or(0);
        things[index].clone()
    }
}
