//! A running hash over everything that happens.

/// Changes with every event, its time and every word that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new(seed: u64) -> Self {
        Digest(seed ^ 0x6a09_e667_f3bc_c908)
    }

    #[inline]
    pub(crate) fn mix(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    pub(crate) fn value(self) -> u64 {
        let z = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        z ^ (z >> 32)
    }
}
