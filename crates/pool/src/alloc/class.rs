//! Size classes: two per doubling, from 8 bytes to 1.5 MiB. There are two sorts of each: slabs have objects of one
//! sort only, so that what is expected of the words of one is never found broken by the other.

use super::bitmap::MAX_BITS;
use super::slab::{CHUNK_BYTES, HEAD_BYTES};

/// The largest object.
pub const MAX_OBJECT_BYTES: u64 = 3 << 19;

/// A size of objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SizeClass(u8);

/// How many there are of each sort: 8, 16, 24, 32, 48, 64, 96, … 1 Mi, 1.5 Mi.
const CLASSES: u8 = 35;

impl SizeClass {
    /// All of them, from small to large.
    pub fn all() -> impl Iterator<Item = SizeClass> {
        (0..CLASSES).map(SizeClass)
    }

    /// How many classes there are, of both sorts.
    pub const COUNT: usize = 2 * CLASSES as usize;

    /// The class of the other sort: for bytes in which nobody expects anything.
    #[must_use]
    pub fn raw(self) -> Self {
        SizeClass(self.0 % CLASSES + CLASSES)
    }

    /// The smallest class for objects of so many bytes; `None` if there is none.
    #[inline]
    pub fn of(bytes: u64) -> Option<Self> {
        match bytes {
            0 => None,
            1..=8 => Some(SizeClass(0)),
            9..=16 => Some(SizeClass(1)),
            17..=MAX_OBJECT_BYTES => {
                // Between 2^k and 2^(k+1) there is 1.5 · 2^k.
                let k = 63 - (bytes - 1).leading_zeros();
                let half = u8::from(bytes > 3 << (k - 1));
                Some(SizeClass(2 * (k as u8 - 4) + 2 + half))
            }
            _ => None,
        }
    }

    /// From its number, as far memory has it.
    pub fn from_number(number: u8) -> Option<Self> {
        ((number as usize) < Self::COUNT).then_some(SizeClass(number))
    }

    /// Its number, for far memory.
    #[inline]
    pub fn number(self) -> u8 {
        self.0
    }

    /// The bytes of its objects.
    #[inline]
    pub fn bytes(self) -> u64 {
        match self.0 % CLASSES {
            0 => 8,
            1 => 16,
            n => {
                let (k, half) = ((n - 2) / 2 + 4, (n - 2) % 2);
                if half == 1 { 2 << k } else { 3 << (k - 1) }
            }
        }
    }

    /// Whether an object of this class may begin there, in a region.
    pub(crate) fn may_begin_at(self, offset: u64) -> bool {
        let within = (offset % CHUNK_BYTES).checked_sub(HEAD_BYTES);
        let is_place = |at: u64| {
            at.is_multiple_of(self.bytes()) && ((at / self.bytes()) as usize) < self.objects()
        };
        offset >= super::REGION_HEAD_BYTES && within.is_some_and(is_place)
    }

    /// How many chunks a slab has.
    pub(super) fn chunks(self) -> u64 {
        (self.bytes() + HEAD_BYTES).div_ceil(CHUNK_BYTES)
    }

    /// How many objects a slab has.
    pub(super) fn objects(self) -> usize {
        let room = self.chunks() * CHUNK_BYTES - HEAD_BYTES;
        ((room / self.bytes()) as usize).min(MAX_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_small_steps_up() {
        let sizes: Vec<u64> = SizeClass::all().map(SizeClass::bytes).collect();
        assert_eq!(sizes[..8], [8, 16, 24, 32, 48, 64, 96, 128]);
        assert_eq!(sizes.last(), Some(&MAX_OBJECT_BYTES));
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= 2 * pair[0]));
        assert!(sizes.iter().all(|size| size % 8 == 0));
        for bytes in 1..=5000u64 {
            let class = SizeClass::of(bytes).unwrap();
            assert!(class.bytes() >= bytes, "{bytes}");
            let smaller = class.number().checked_sub(1).map(|n| SizeClass(n).bytes());
            assert!(smaller.is_none_or(|smaller| smaller < bytes), "{bytes}");
        }
        assert_eq!(SizeClass::of(0), None);
        assert_eq!(SizeClass::of(MAX_OBJECT_BYTES).unwrap().bytes(), MAX_OBJECT_BYTES);
        assert_eq!(SizeClass::of(MAX_OBJECT_BYTES + 1), None);
    }

    #[test]
    fn slabs_have_room_for_their_objects() {
        for class in SizeClass::all().chain(SizeClass::all().map(SizeClass::raw)) {
            assert_eq!(SizeClass::from_number(class.number()), Some(class));
            let used = HEAD_BYTES + class.objects() as u64 * class.bytes();
            assert!(class.objects() > 0 && used <= class.chunks() * CHUNK_BYTES, "{class:?}");
        }
    }
}
