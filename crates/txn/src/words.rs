//! Lock words and checksums.

use farside_pool::Addr;

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
    for part in parts {
        for word in *part {
            sum = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
            sum ^= sum >> 32;
        }
    }
    sum | 1
}

/// One of so many places for an object: addresses of neighbours, and those of different regions, are spread over all of them.
#[inline]
pub(crate) fn place_of(addr: Addr, places: u64) -> u64 {
    let mixed = addr.to_word().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // What is above (the region) is to count below, and the other way round.
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = mixed ^ mixed >> 32;
    ((u128::from(mixed) * u128::from(places)) >> 64) as u64
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

    #[test]
    fn objects_of_a_few_regions_are_spread_over_all_places() {
        const PLACES: u64 = 1 << 16;
        let mut counts = vec![0; PLACES as usize];
        for region in 0..4 {
            for number in 0..PLACES / 4 {
                let addr = Addr::new(farside_pool::RegionId(region), number * 96 + 32).unwrap();
                counts[place_of(addr, PLACES) as usize] += 1;
            }
        }
        // As many as places, thrown by chance: 37 % stay empty, and nowhere are there ten.
        let empty = counts.iter().filter(|count| **count == 0).count() as f64 / PLACES as f64;
        assert!((0.35..0.39).contains(&empty), "{empty}");
        assert!(counts.iter().all(|count| *count < 10));
    }
}
