//! Random numbers that are the same for the same seed, on every machine and for ever.

/// The generator xoshiro256++, seeded through splitmix64 (both by Blackman and Vigna, public domain).
/// Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Random { state }
    }

    /// The next number, uniform over all of `u64`.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// The next number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.draw(), bound)
    }
}

/// Scales a random `u64` to a number below `bound`; the bias is below 2⁻⁶⁴ times `bound`.
pub(super) fn below(random: u64, bound: u64) -> u64 {
    assert!(bound > 0, "no number is below zero");
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_never_changes() {
        // The reference implementation, with its state filled by splitmix64 from 0.
        let mut random = Random::new(0);
        let first: [u64; 3] = std::array::from_fn(|_| random.draw());
        assert_eq!(first, [0x5317_5d61_490b_23df, 0x61da_6f3d_c380_d507, 0x5c0f_df91_ec9a_7bfc]);
    }

    #[test]
    fn below_covers_its_range() {
        let mut random = Random::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }
}
