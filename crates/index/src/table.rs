//! A table, as those know it who use it.

use farside_pool::Addr;
use farside_pool::alloc::SizeClass;
use farside_txn::{Blob, Target, system};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{TableOptions, node};

/// A table: where it is, and how its keys are hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Table {
    pub(crate) id: u16,
    pub(crate) root: Addr,
    pub(crate) seed: u64,
    /// Rows have room for values of so many bytes, without a place of their own for them.
    pub(crate) value_bytes: u32,
}

/// Longer values have places of their own, whatever a table says: a record must have room for them.
pub(crate) const MOST_INLINE: u32 = 1 << 10;

impl Table {
    /// What was known of its rows when it was created.
    pub fn options(&self) -> TableOptions {
        TableOptions { value_bytes: self.value_bytes }
    }

    /// The catalog, which is a table, too.
    pub(crate) fn catalog() -> Self {
        Table { id: 0, root: system::catalog_root(), seed: 0xfa25_1de0, value_bytes: 32 }
    }

    pub(crate) fn is_catalog(&self) -> bool {
        self.id == 0
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    pub(crate) fn root(&self) -> Target {
        node::target(self.root)
    }

    /// The class of a row for a key and a value.
    pub(crate) fn class_for(&self, key: usize, value: usize) -> SizeClass {
        let inline = (value as u32).min(MOST_INLINE).max(self.value_bytes) as usize;
        let bytes = (key + inline.max(Blob::BYTES)).next_multiple_of(8);
        let class = SizeClass::of(Target::bytes((bytes / 8) as u32));
        class.expect("a key and a short value fit")
    }
}
