//! Addresses of rows that a thread has seen: hints, which may be stale. As many as were used lately, in as much
//! memory as they need.

use farside_pool::Addr;
use farside_pool::alloc::SizeClass;
use farside_txn::Target;

/// Where a row was.
#[derive(Clone, Copy, Debug, Default)]
struct Hint {
    /// With the table mixed in; 0: none.
    hash: u64,
    addr: u64,
    /// When that was so, in nanoseconds, with the size class in the last eight bits.
    learned: u64,
}

/// A hint that was forgotten: what is behind it is still looked at.
const FORGOTTEN: u64 = 2;

impl Hint {
    fn is_one(&self) -> bool {
        self.hash != 0 && self.hash != FORGOTTEN
    }
}

/// Where rows were seen, for threads that come later: hints, which may be stale.
///
/// A table with open addressing: a hint is among a few places from where it should be.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    hints: Vec<Hint>,
    /// Places that were ever used.
    used: usize,
}

/// The smallest and the largest number of places.
const LEAST: usize = 1 << 10;
const MOST: usize = 1 << 23;

/// A hint is noted again when it is as old as this: one that is old may not be used after a while.
const OLD_NS: u64 = 10_000_000;

/// How many places are looked at.
const REACH: usize = 16;

fn mixed(table: u16, hash: u64) -> u64 {
    (hash ^ u64::from(table).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1
}

impl Default for Addresses {
    fn default() -> Self {
        Addresses { hints: vec![Hint::default(); LEAST], used: 0 }
    }
}

impl Addresses {
    /// The places where a hint may be.
    #[inline]
    fn reach(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let (first, mask) = ((hash >> 20) as usize, self.hints.len() - 1);
        (first..first + REACH).map(move |at| at & mask)
    }

    #[inline]
    fn find(&self, hash: u64) -> Option<usize> {
        for at in self.reach(hash) {
            match self.hints[at].hash {
                known if known == hash => return Some(at),
                0 => return None,
                _ => {}
            }
        }
        None
    }

    pub(crate) const HINT_BYTES: usize = size_of::<Hint>();

    /// How many there are.
    pub(crate) fn known(&self) -> usize {
        self.hints.iter().filter(|hint| hint.is_one()).count()
    }

    /// Where a row was, and when.
    #[inline]
    pub(crate) fn get(&self, table: u16, hash: u64) -> Option<(Target, u64)> {
        let hint = self.hints[self.find(mixed(table, hash))?];
        let class = SizeClass::from_number(hint.learned as u8)?;
        Some((Target::of_class(Addr::from_word(hint.addr), class), hint.learned >> 8))
    }

    /// Looks at the place of a hint that will be asked for soon: what is not in the CPU's cache is fetched meanwhile.
    #[inline]
    pub(crate) fn expect(&self, table: u16, hash: u64) {
        let first = (mixed(table, hash) >> 20) as usize & (self.hints.len() - 1);
        std::hint::black_box(self.hints[first].hash);
    }

    /// A row was seen.
    pub(crate) fn learn(&mut self, table: u16, hash: u64, addr: Addr, class: SizeClass, now: u64) {
        let hash = mixed(table, hash);
        if let Some(at) = self.find(hash)
            && self.hints[at].addr == addr.to_word()
            && self.hints[at].learned as u8 == class.number()
            && now < (self.hints[at].learned >> 8) + OLD_NS
        {
            return;
        }
        let learned = now << 8 | u64::from(class.number());
        self.place(Hint { hash, addr: addr.to_word(), learned });
        if self.used > self.hints.len() / 2 && self.hints.len() < MOST {
            self.grow();
        }
    }

    /// In its place, in a free one, or in that of the oldest.
    fn place(&mut self, hint: Hint) {
        let free = |at: &usize| self.hints[*at].hash == 0 || self.hints[*at].hash == FORGOTTEN;
        let at = self
            .find(hint.hash)
            .or_else(|| self.reach(hint.hash).find(free))
            .or_else(|| self.reach(hint.hash).min_by_key(|at| self.hints[*at].learned >> 8))
            .expect("there are places");
        self.used += usize::from(self.hints[at].hash == 0);
        self.hints[at] = hint;
    }

    /// It is not there.
    pub(crate) fn forget(&mut self, table: u16, hash: u64) {
        if let Some(at) = self.find(mixed(table, hash)) {
            self.hints[at] = Hint { hash: FORGOTTEN, ..Hint::default() };
        }
    }

    #[cold]
    fn grow(&mut self) {
        let is_full = self.known() > self.hints.len() / 4;
        let places = if is_full { self.hints.len() * 2 } else { self.hints.len() };
        let old = std::mem::replace(&mut self.hints, vec![Hint::default(); places]);
        self.used = 0;
        old.iter().filter(|hint| hint.is_one()).for_each(|hint| self.place(*hint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_pool::RegionId;

    #[test]
    fn hints_are_kept_and_forgotten() {
        let mut addresses = Addresses::default();
        let class = SizeClass::of(100).unwrap();
        let addr = |n: u64| Addr::new(RegionId(3), n * 8).unwrap();
        let hash = |n: u64| xxhash_rust::xxh3::xxh3_64(&n.to_le_bytes());
        for n in 0..20_000 {
            addresses.learn(7, hash(n), addr(n), class, n);
        }
        let known = (0..20_000).filter(|n| {
            let hint = addresses.get(7, hash(*n));
            hint.is_some_and(|(target, at)| {
                assert_eq!((target, at), (Target::of_class(addr(*n), class), *n));
                true
            })
        });
        let known = known.count();
        assert!(known > 19_900, "{known} of 20,000");
        assert!(addresses.get(8, hash(1)).is_none());
        (0..20_000).for_each(|n| addresses.forget(7, hash(n)));
        assert!((0..20_000).all(|n| addresses.get(7, hash(n)).is_none()));
    }
}
