//! A chain of verbs executed by the CPU on words that others use at the same time, in the order that
//! C1 promises.
//!
//! How C1 maps to Rust's memory model: words move with relaxed atomics; an acquire fence behind each
//! READ keeps later verbs behind it, a release fence before each WRITE keeps it behind earlier ones,
//! CAS and FAA are sequentially consistent. What remains is a READ that overtakes an earlier WRITE
//! in the store buffer. A full fence prevents it, before a READ that follows a WRITE and at the end
//! of the chain: a completion means visible, and the next verb of this thread may go to another
//! node. Chains without a WRITE never pay for it (on x86; elsewhere atomics pay too).

use super::{WORD, load_words, store_words};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::verbs::{Bell, Op};

/// What a FLUSH does, and what it has to know for that.
pub trait Persist {
    /// Why it fails.
    type Error;

    /// Some words were read or changed.
    #[inline]
    fn touch(&mut self, _words: &[AtomicU64]) {}

    /// Writes words.
    #[inline]
    fn store(&mut self, from: &[u64], to: &[AtomicU64]) {
        store_words(from, to);
    }

    /// All that was read or written so far is persistent, or soon will be.
    fn flush(&mut self) -> Result<(), Self::Error>;
}

impl<E, F: FnMut() -> Result<(), E>> Persist for F {
    type Error = E;

    #[inline]
    fn flush(&mut self) -> Result<(), E> {
        self()
    }
}

/// Executes a chain whose bounds have been checked.
#[inline]
pub fn execute<P: Persist>(
    words: &[AtomicU64],
    mut bell: Bell<'_>,
    mut persist: P,
) -> Result<(), P::Error> {
    let mut settled = true;
    bell.try_each(|verb, data| {
        let at = (verb.at / WORD) as usize;
        match verb.op {
            Op::Read => {
                settle(&mut settled);
                load_words(&words[at..at + data.len()], data);
                fence(Ordering::Acquire);
                persist.touch(&words[at..at + data.len()]);
            }
            Op::Write => {
                fence(Ordering::Release);
                persist.store(data, &words[at..at + data.len()]);
                settled = false;
            }
            Op::Cas => {
                settle_before_atomic(&mut settled);
                let [expected, desired] = data else { unreachable!("as Op says") };
                *expected = cas(&words[at], *expected, *desired);
                persist.touch(&words[at..=at]);
            }
            Op::Faa => {
                settle_before_atomic(&mut settled);
                let [addend] = data else { unreachable!("as Op says") };
                *addend = words[at].fetch_add(*addend, Ordering::SeqCst);
                persist.touch(&words[at..=at]);
            }
            Op::MaskedCas => {
                // It may end as a plain load.
                settle(&mut settled);
                let [expected, desired, compare, swap] = data else { unreachable!("as Op says") };
                *expected = masked_cas(&words[at], *expected, *desired, *compare, *swap);
                persist.touch(&words[at..=at]);
            }
            Op::Flush => {
                settle(&mut settled);
                persist.flush()?;
            }
        }
        Ok(())
    })?;
    settle(&mut settled);
    Ok(())
}

#[inline]
fn settle(settled: &mut bool) {
    if !*settled {
        fence(Ordering::SeqCst);
        *settled = true;
    }
}

/// On x86 a locked instruction is a full fence, also a CAS that fails. Elsewhere it is not: an
/// atomic may overtake the WRITE before it, and what follows may overtake its store.
#[inline]
fn settle_before_atomic(settled: &mut bool) {
    if cfg!(not(target_arch = "x86_64")) {
        settle(settled);
        *settled = false;
    }
}

#[inline]
fn cas(word: &AtomicU64, expected: u64, desired: u64) -> u64 {
    word.compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst)
        .unwrap_or_else(|found| found)
}

/// Compares only the bits of `compare_mask`, and replaces only those of `swap_mask`.
fn masked_cas(word: &AtomicU64, expected: u64, desired: u64, compare: u64, swap: u64) -> u64 {
    let mut old = word.load(Ordering::SeqCst);
    loop {
        if (old ^ expected) & compare != 0 {
            return old;
        }
        let new = (old & !swap) | (desired & swap);
        match word.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(old) => return old,
            Err(found) => old = found,
        }
    }
}
