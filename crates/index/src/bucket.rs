//! Buckets: which rows there are whose hashes begin with the same bits.
//!
//! | bytes of the body | what |
//! | --- | --- |
//! | 0 | depth: of how many bits it is the bucket |
//! | 8 | prefix: those bits |
//! | 16… | for each row: where it is; and the first 56 bits of its hash with its size class (8 bits) |
//!
//! A bucket says itself which hashes it is for, so whoever was led to a wrong one notices.

use farside_pool::Addr;
use farside_pool::alloc::SizeClass;
use farside_txn::{Target, Version};
use zerocopy::IntoBytes;

use crate::tag::{self, Kind, tag};

/// The class of buckets, and of nodes.
pub(crate) const CLASS_BYTES: u64 = 384;

const HEAD_WORDS: usize = 2;
const ROOM_WORDS: usize = (CLASS_BYTES as usize - 48) / 8;

/// Rows that a bucket has room for.
pub(crate) const MOST_ROWS: usize = (ROOM_WORDS - HEAD_WORDS) / 2;

/// Hashes differ in these bits, or not at all.
const HASH_BITS: u32 = 56;

const _: () = assert!(MOST_ROWS == 20 && Target::bytes(ROOM_WORDS as u32) == CLASS_BYTES);

/// A row in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) addr: Addr,
    /// The hash, with the class in its last bits.
    word: u64,
}

impl Slot {
    pub(crate) fn new(addr: Addr, class: SizeClass, hash: u64) -> Self {
        Slot { addr, word: hash & !0xff | u64::from(class.number()) }
    }

    pub(crate) fn has(&self, hash: u64) -> bool {
        (self.word ^ hash) >> 8 == 0
    }

    pub(crate) fn target(&self) -> Option<Target> {
        let class = SizeClass::from_number(self.word as u8)?;
        Some(Target::of_class(self.addr, class))
    }
}

/// The first bits of a hash.
fn prefix(hash: u64, depth: u32) -> u64 {
    if depth == 0 { 0 } else { hash >> (64 - depth) }
}

/// A bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bucket {
    pub(crate) depth: u32,
    prefix: u64,
    pub(crate) slots: Vec<Slot>,
}

impl Bucket {
    /// An empty one for hashes that begin like this one.
    pub(crate) fn new(depth: u32, hash: u64) -> Self {
        Bucket { depth, prefix: prefix(hash, depth), slots: Vec::new() }
    }

    /// From an object; `None` if that is no bucket of the table.
    pub(crate) fn parse(version: &Version, table: u16) -> Option<Self> {
        if !tag::is(version, table, Kind::Bucket) {
            return None;
        }
        let (head, slots) = version.words().split_first_chunk::<HEAD_WORDS>()?;
        let slot = |words: &[u64; 2]| Slot { addr: Addr::from_word(words[0]), word: words[1] };
        let slots = slots.as_chunks().0.iter().map(slot).collect();
        let depth = u32::try_from(head[0]).ok().filter(|depth| *depth <= HASH_BITS)?;
        Some(Bucket { depth, prefix: head[1], slots })
    }

    /// Whether an object is the bucket of a hash; if so, the rows whose hashes are the same.
    pub(crate) fn matches(
        version: &Version,
        table: u16,
        hash: u64,
    ) -> Option<impl Iterator<Item = Slot> + '_> {
        if !tag::is(version, table, Kind::Bucket) {
            return None;
        }
        let (head, slots) = version.words().split_first_chunk::<HEAD_WORDS>()?;
        if head[0] > u64::from(HASH_BITS) || prefix(hash, head[0] as u32) != head[1] {
            return None;
        }
        let slot = |words: &[u64; 2]| Slot { addr: Addr::from_word(words[0]), word: words[1] };
        Some(slots.as_chunks().0.iter().map(slot).filter(move |slot| slot.has(hash)))
    }

    /// Its tag and its bytes.
    pub(crate) fn to_bytes(&self, table: u16) -> (u32, Vec<u8>) {
        let mut words = Vec::with_capacity(HEAD_WORDS + self.slots.len() * 2);
        words.extend([u64::from(self.depth), self.prefix]);
        words.extend(self.slots.iter().flat_map(|slot| [slot.addr.to_word(), slot.word]));
        (tag(table, Kind::Bucket, 0), words.as_bytes().to_vec())
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() >= MOST_ROWS
    }

    /// Splits it by the next bit: what has it set is in the second. `None` if there is no next bit.
    pub(crate) fn split(&self) -> Option<(Bucket, Bucket)> {
        let depth = self.depth + 1;
        if depth > HASH_BITS {
            return None;
        }
        let half = |bit: u64| {
            let mine = |slot: &&Slot| slot.word >> (64 - depth) & 1 == bit;
            let slots = self.slots.iter().filter(mine).copied().collect();
            Bucket { depth, prefix: self.prefix << 1 | bit, slots }
        };
        Some((half(0), half(1)))
    }

    /// A hash that it is for.
    pub(crate) fn some_hash(&self) -> u64 {
        if self.depth == 0 { 0 } else { self.prefix << (64 - self.depth) }
    }
}
