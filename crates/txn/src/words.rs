//! Lock words and checksums.

/// Nanoseconds of a tick of lock words.
const TICK_NS: u64 = 128;

const TICK_BITS: u32 = 50;

/// Owners are numbered from 1 below this.
pub(crate) const OWNERS: u16 = 1 << 14;

/// Who holds an object, and since when: the name of a transaction. It promises a commit time after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lock {
    owner: u16,
    tick: u64,
}

impl Lock {
    pub(crate) fn new(owner: u16, tick: u64) -> Self {
        assert!(0 < owner && owner < OWNERS && tick < 1 << TICK_BITS, "fits into a word");
        Lock { owner, tick }
    }

    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.owner) << TICK_BITS | self.tick
    }

    /// Who has a lock word that is not 0.
    pub(crate) fn owner_of(word: u64) -> u16 {
        (word >> TICK_BITS) as u16
    }

    /// The time of a lock word that is not 0.
    pub(crate) fn time_of(word: u64) -> u64 {
        (word & ((1 << TICK_BITS) - 1)) * TICK_NS
    }

    /// Whether it is older than the lock that a word names: the one may wait for the other, which must give way to
    /// it, so that no two wait for each other.
    pub(crate) fn is_before(self, word: u64) -> bool {
        (self.tick, self.owner) < (word & ((1 << TICK_BITS) - 1), Self::owner_of(word))
    }

    /// Before its commit time.
    pub(crate) fn time(self) -> u64 {
        self.tick * TICK_NS
    }

    /// The time of a tick.
    pub(crate) fn time_at(tick: u64) -> u64 {
        tick * TICK_NS
    }

    /// The tick of a time, rounded down.
    pub(crate) fn tick_at(time: u64) -> u64 {
        time / TICK_NS
    }
}

/// Tells a torn copy from a whole one. Never 0.
pub(crate) fn checksum(parts: &[&[u64]]) -> u64 {
    let mut sum = 0x9e37_79b9_7f4a_7c15u64;
    for word in parts.iter().flat_map(|part| part.iter()) {
        sum = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^= sum >> 32;
    }
    sum | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_word_has_owner_and_time() {
        let lock = Lock::new(OWNERS - 1, (1 << TICK_BITS) - 1);
        assert_eq!(Lock::time_of(lock.to_word()), lock.time());
        assert_eq!(lock.to_word() >> TICK_BITS, u64::from(OWNERS) - 1);
        assert!(Lock::tick_at(1_000_000) * TICK_NS <= 1_000_000);
    }
}
