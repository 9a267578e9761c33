//! Persistent memory that is mapped (DAX, `MAP_SYNC`): what is in the caches is written back line by line, without the system.

use super::{Persist, store_words};
use crate::FabricError;
use crate::sync::AtomicU64;

/// Bytes of a line.
const LINE_BYTES: usize = 64;

/// Writes of so many words go past the caches: those of one unit of persistent memory, or more (`drtmx.txt` §2.3.4, H4).
const LARGE: usize = 32;

/// So much is remembered; more is written back at once, which is early, and does no harm.
const MOST_RANGES: usize = 1024;

/// What a queue has read or written since its last FLUSH.
#[derive(Debug, Default)]
pub struct Lines {
    /// First and last address.
    touched: Vec<(usize, usize)>,
}

impl Lines {
    fn write_back(&mut self) {
        for (first, last) in self.touched.drain(..) {
            (first / LINE_BYTES..=last / LINE_BYTES)
                .for_each(|line| cpu::write_back(line * LINE_BYTES));
        }
    }
}

impl Persist for &mut Lines {
    type Error = Box<FabricError>;

    /// Also what was only read: a FLUSH is for that, too, whoever wrote it.
    fn touch(&mut self, words: &[AtomicU64]) {
        let Some(last) = words.last() else { return };
        if self.touched.len() == MOST_RANGES {
            self.write_back();
        }
        self.touched.push((words.as_ptr().addr(), std::ptr::from_ref(last).addr()));
    }

    fn store(&mut self, from: &[u64], to: &[AtomicU64]) {
        if from.len() >= LARGE && cpu::store_past_caches(from, to) {
            return;
        }
        store_words(from, to);
        self.touch(to);
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        self.write_back();
        cpu::wait_for_stores();
        Ok(())
    }
}

/// Whether this processor can write lines back.
pub(super) const fn are_supported() -> bool {
    cfg!(target_arch = "x86_64")
}

#[cfg(all(target_arch = "x86_64", not(loom)))]
mod cpu {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicU64;

    /// From the best to what every processor has.
    #[derive(Clone, Copy)]
    enum How {
        /// The line stays in the cache.
        Clwb,
        Clflushopt,
        /// One after the other.
        Clflush,
    }

    fn how() -> How {
        static HOW: OnceLock<How> = OnceLock::new();
        // Beyond the last leaf there is something else.
        let features = || if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        *HOW.get_or_init(|| match features() {
            features if features >> 24 & 1 == 1 => How::Clwb,
            features if features >> 23 & 1 == 1 => How::Clflushopt,
            _ => How::Clflush,
        })
    }

    /// Writes a line back that is mapped.
    #[inline]
    pub(super) fn write_back(line: usize) {
        // SAFETY: these change nothing that a program can see, and the line was read or written by this process, so it is
        // mapped; the processor has the instruction.
        unsafe {
            match how() {
                How::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                How::Clflushopt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                How::Clflush => {
                    asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags))
                }
            }
        }
    }

    /// What was written back, or stored past the caches, is persistent when this returns.
    #[inline]
    pub(super) fn wait_for_stores() {
        // SAFETY: a fence.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) }
    }

    /// Stores words without reading their lines first; in order with whatever comes next.
    #[inline]
    pub(super) fn store_past_caches(from: &[u64], to: &[AtomicU64]) -> bool {
        // Such stores wait for nothing, neither for what came before nor before what comes next.
        wait_for_stores();
        for (from, to) in from.iter().zip(to) {
            // SAFETY: an atomic word is written as a whole, and others may write it meanwhile.
            unsafe {
                asm!("movnti [{}], {}", in(reg) to.as_ptr(), in(reg) *from, options(nostack, preserves_flags));
            }
        }
        wait_for_stores();
        true
    }
}

#[cfg(any(not(target_arch = "x86_64"), loom))]
mod cpu {
    use crate::sync::AtomicU64;

    pub(super) fn write_back(_: usize) {}

    pub(super) fn wait_for_stores() {}

    pub(super) fn store_past_caches(_: &[u64], _: &[AtomicU64]) -> bool {
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_are_stored_whichever_way_they_take() {
        let words: Vec<AtomicU64> = (0..2000).map(|_| AtomicU64::new(0)).collect();
        let mut lines = Lines::default();
        let mut persist = &mut lines;
        for (at, len) in [(0, 1), (1, 31), (40, 32), (100, 33), (201, 999)] {
            let data: Vec<u64> = (0..len as u64).map(|word| word * 3 + at as u64).collect();
            persist.store(&data, &words[at..at + len]);
            let stored = words[at..at + len].iter().map(|word| word.load(Ordering::Relaxed));
            assert!(stored.eq(data), "{len} words");
        }
        assert_eq!(lines.touched.len(), 2, "large ones are not in a cache");
        (&mut lines).flush().unwrap();
        assert!(lines.touched.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let mut lines = Lines::default();
        for _ in 0..10 * MOST_RANGES {
            (&mut lines).touch(&words[3..60]);
            assert!(lines.touched.len() <= MOST_RANGES);
        }
    }
}
