//! Addresses in the pool.

use std::fmt;

/// A region: the unit of replication.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u16);

/// A place in the pool: a region, and an offset that is the same on every replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(u64);

impl Addr {
    const OFFSET_BITS: u32 = 48;

    /// The place at `offset` in `region`; `None` if the offset has more than 48 bits.
    pub const fn new(region: RegionId, offset: u64) -> Option<Self> {
        if offset >> Self::OFFSET_BITS != 0 {
            return None;
        }
        Some(Addr((region.0 as u64) << Self::OFFSET_BITS | offset))
    }

    /// As one word, for far memory.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// From one word.
    pub const fn from_word(word: u64) -> Self {
        Addr(word)
    }

    /// Its region.
    pub const fn region(self) -> RegionId {
        RegionId((self.0 >> Self::OFFSET_BITS) as u16)
    }

    /// Where in the region.
    pub const fn offset(self) -> u64 {
        self.0 & ((1 << Self::OFFSET_BITS) - 1)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.region().0, self.offset())
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const _: () = {
    let addr = Addr::new(RegionId(0xffff), (1 << 48) - 8).unwrap();
    assert!(addr.region().0 == 0xffff && addr.offset() == (1 << 48) - 8);
    assert!(Addr::new(RegionId(0), 1 << 48).is_none());
};
