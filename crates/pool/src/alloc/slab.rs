//! A slab as its owner knows it.

use super::{Bitmap, SizeClass};

/// The unit in which regions are handed out.
pub(super) const CHUNK_BYTES: u64 = 64 << 10;

/// The head of a slab: a bit for each object that others have freed.
pub(super) const HEAD_BYTES: u64 = 1 << 10;

const _: () = assert!(HEAD_BYTES * 8 >= super::bitmap::MAX_BITS as u64);

/// A slab of ours.
#[derive(Debug)]
pub(super) struct Slab {
    /// Its region, by its place in the heap, and its first chunk there.
    pub(super) region: usize,
    pub(super) chunk: u64,
    pub(super) class: SizeClass,
    pub(super) free: Bitmap,
    /// Since when nothing of it is in use, and nothing was.
    pub(super) empty_since: Option<u64>,
}

impl Slab {
    /// Where an object is, in the region.
    #[inline]
    pub(super) fn offset(&self, number: usize) -> u64 {
        self.chunk * CHUNK_BYTES + HEAD_BYTES + number as u64 * self.class.bytes()
    }

    /// Which object is at an offset of the region; `None` if none begins there.
    #[inline]
    pub(super) fn number(&self, offset: u64) -> Option<usize> {
        let within = offset.checked_sub(self.chunk * CHUNK_BYTES + HEAD_BYTES)?;
        let number = (within / self.class.bytes()) as usize;
        (within.is_multiple_of(self.class.bytes()) && number < self.class.objects())
            .then_some(number)
    }
}
