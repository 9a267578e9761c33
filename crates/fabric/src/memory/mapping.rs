//! A mapping of memory: anonymous, or shared between processes through a file.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::slice;

use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, msync, munmap,
};

use super::WORD;
use crate::sync::AtomicU64;
use crate::{FabricError, Result};

/// Bytes of a huge page, where nothing else was asked for.
const HUGE_PAGE: u64 = 2 << 20;

/// Zeroed words, mapped page by page as they are touched, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<AtomicU64>,
    bytes: NonZeroUsize,
}

// SAFETY: a mapping is plain memory that is only handed out as shared atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of this process alone.
    pub fn anonymous(bytes: u64) -> Result<Self> {
        let bytes = checked_len(bytes)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the place, so no mapping in use is replaced.
        let base = unsafe { mmap_anonymous(null_mut(), bytes.get(), prot, flags) };
        let mapping = Self::of(base, bytes)?;
        mapping.wish_for_huge_pages();
        Ok(mapping)
    }

    /// Objects are read here and there: with small pages most of them are not in the TLB. Where the system does not want to, nothing
    /// is lost.
    fn wish_for_huge_pages(&self) {
        if self.bytes.get() as u64 >= HUGE_PAGE {
            // SAFETY: the mapping is ours, and what is in it stays as it is.
            let _ = unsafe {
                madvise(self.base.as_ptr().cast(), self.bytes.get(), Advice::LinuxHugepage)
            };
        }
    }

    /// Memory of this process alone, of huge pages that the machine has reserved.
    pub fn huge(bytes: u64) -> Result<Self> {
        if !bytes.is_multiple_of(HUGE_PAGE) {
            let why = "give a multiple of 2 MiB, or do without huge pages";
            return Err(FabricError::setup(format!("huge pages for {bytes} bytes"), why));
        }
        let bytes = checked_len(bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB;
        // SAFETY: the kernel chooses the place, so no mapping in use is replaced.
        let base = unsafe {
            mmap_anonymous(null_mut(), bytes.get(), ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        if let Err(error) = base {
            let pages = bytes.get() as u64 / HUGE_PAGE;
            let why = format!("{error}; reserve them first: sysctl vm.nr_hugepages={pages}");
            return Err(FabricError::setup(format!("mapping {pages} huge pages"), why));
        }
        Self::of(base, bytes)
    }

    /// `bytes` of an open file from `offset` on (a multiple of the page size), shared with whoever
    /// else maps it. The file must be that long and stay so, or touching it raises SIGBUS.
    pub fn shared(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<Self> {
        let bytes = checked_len(bytes)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the place, so no mapping in use is replaced.
        let base = unsafe { mmap(null_mut(), bytes.get(), prot, flags, file, offset) };
        Self::of(base, bytes)
    }

    /// The same of a file on persistent memory, such that no write of the file system has to come between a store and what keeps it
    /// (`MAP_SYNC`); `None` if it is on something else.
    pub fn persistent(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<Option<Self>> {
        if !super::lines::are_supported() {
            return Ok(None);
        }
        let bytes = checked_len(bytes)?;
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
        // SAFETY: the kernel chooses the place, so no mapping in use is replaced.
        match unsafe { mmap(null_mut(), bytes.get(), prot, flags, file, offset) } {
            // Old kernels do not know it at all.
            Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(None),
            base => Self::of(base, bytes).map(Some),
        }
    }

    fn of(base: rustix::io::Result<*mut std::ffi::c_void>, bytes: NonZeroUsize) -> Result<Self> {
        let base = base.map_err(|e| FabricError::setup(format!("mapping {bytes} bytes"), e))?;
        Ok(Mapping {
            base: NonNull::new(base.cast()).expect("mmap never returns the null page"),
            bytes,
        })
    }

    /// All the words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: base is page-aligned and valid for `bytes` until drop; other threads and
        // processes change the words, which is what atomics permit.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes.get() / WORD as usize) }
    }

    /// Writes changed pages of a mapped file to its device, and waits for it.
    pub fn sync(&self) -> std::io::Result<()> {
        // SAFETY: the range is exactly this mapping.
        unsafe { msync(self.base.as_ptr().cast(), self.bytes.get(), MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly this mapping, and no borrow of it outlives self.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes.get()) };
        debug_assert!(unmapped.is_ok());
    }
}

fn checked_len(bytes: u64) -> Result<NonZeroUsize> {
    match usize::try_from(bytes).ok().and_then(NonZeroUsize::new) {
        Some(len) if bytes.is_multiple_of(WORD) => Ok(len),
        _ => Err(FabricError::setup(
            format!("memory of {bytes} bytes"),
            "give a size that is positive and a multiple of 8",
        )),
    }
}
