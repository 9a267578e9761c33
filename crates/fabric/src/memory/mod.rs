//! Words of memory, and verbs executed on them.
//!
//! Memory that several threads or processes reach at once is only ever touched word by word through
//! atomics, so there is no data race in the sense of Rust's memory model, whatever clients do.

mod execute;
mod lines;
mod mapping;

pub use execute::{Persist, execute};
pub use lines::Lines;
pub use mapping::Mapping;

use crate::sync::{AtomicU64, Ordering};

/// Bytes of a word, the unit of far memory.
pub const WORD: u64 = 8;

/// Words of a cache line.
const LINE: usize = 8;

/// Has the CPU fetch the line of a byte address, if it likes. Nothing is read: any address will do.
#[inline]
pub fn prefetch(words: &[AtomicU64], at: u64) {
    let _line = words.as_ptr().wrapping_add((at / WORD) as usize);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(_line.cast()) };
    }
}

/// Copies words out of shared memory; each word is read atomically, in ascending order.
#[inline]
pub fn load_words(from: &[AtomicU64], to: &mut [u64]) {
    assert_eq!(from.len(), to.len());
    let (from_lines, from_rest) = from.as_chunks::<LINE>();
    let (to_lines, to_rest) = to.as_chunks_mut::<LINE>();
    // Lines of known length need no counting per word.
    for (to, from) in to_lines.iter_mut().zip(from_lines) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.load(Ordering::Relaxed);
        }
    }
    for (to, from) in to_rest.iter_mut().zip(from_rest) {
        *to = from.load(Ordering::Relaxed);
    }
}

/// Copies words into shared memory; each word is written atomically, in ascending order.
#[inline]
pub fn store_words(from: &[u64], to: &[AtomicU64]) {
    assert_eq!(from.len(), to.len());
    let (from_lines, from_rest) = from.as_chunks::<LINE>();
    let (to_lines, to_rest) = to.as_chunks::<LINE>();
    for (to, from) in to_lines.iter().zip(from_lines) {
        for (to, from) in to.iter().zip(from) {
            to.store(*from, Ordering::Relaxed);
        }
    }
    for (to, from) in to_rest.iter().zip(from_rest) {
        to.store(*from, Ordering::Relaxed);
    }
}
