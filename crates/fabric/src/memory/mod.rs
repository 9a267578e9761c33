//! Words of memory, and verbs executed on them.
//!
//! Memory that several threads or processes reach at once is only ever touched word by word through
//! atomics, so there is no data race in the sense of Rust's memory model, whatever clients do.

mod execute;
mod mapping;

pub use execute::execute;
pub use mapping::Mapping;

use crate::sync::{AtomicU64, Ordering};

/// Bytes of a word, the unit of far memory.
pub const WORD: u64 = 8;

/// Copies words out of shared memory; each word is read atomically, in ascending order.
#[inline]
pub fn load_words(from: &[AtomicU64], to: &mut [u64]) {
    debug_assert_eq!(from.len(), to.len());
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.load(Ordering::Relaxed);
    }
}

/// Copies words into shared memory; each word is written atomically, in ascending order.
#[inline]
pub fn store_words(from: &[u64], to: &[AtomicU64]) {
    debug_assert_eq!(from.len(), to.len());
    for (to, from) in to.iter().zip(from) {
        to.store(*from, Ordering::Relaxed);
    }
}
