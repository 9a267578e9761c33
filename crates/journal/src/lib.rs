//! Memory that survives the power: an ordered journal of words, with checkpoints.
//!
//! Whoever owns some memory appends what changes in it, in order. [`Journal::sync`] asks for all of that to be on disk, and
//! [`Journal::durable`] tells how far it is. After a loss of power the memory is again as it was at some moment, after
//! everything that was durable: a *prefix* of what was appended.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use farside_journal::{Directory, Options, open};
//!
//! # let path = std::env::temp_dir().join(format!("farside-journal-doc-{}", std::process::id()));
//! let memory = || -> Arc<Vec<AtomicU64>> { Arc::new((0..1024).map(|_| AtomicU64::new(0)).collect()) };
//! let disk = || Arc::new(Directory::open(&path).unwrap());
//! let (words, options) = (memory(), Options::default());
//! let (mut journal, _) = open(disk(), words.clone(), &options, || 0, || {}).unwrap();
//! words[7].store(42, Ordering::Relaxed);
//! journal.append(7, &[42]);
//! journal.sync_and_wait().unwrap();
//! drop(journal);
//!
//! let words = memory();
//! let (_journal, report) = open(disk(), words.clone(), &options, || 0, || {}).unwrap();
//! assert_eq!(words[7].load(Ordering::Relaxed), 42);
//! assert_eq!(report.replayed, 1);
//! # std::fs::remove_dir_all(&path).unwrap();
//! ```
//!
//! On disk everything is sectors of 512 bytes, each with a checksum that also covers where it is and to whom it belongs. So a
//! sector that is damaged, one that was never written, and one of another store are three different things.

mod checkpoint;
mod disk;
mod entries;
mod journal;
#[cfg(feature = "lossy")]
pub mod lossy;
mod recover;
mod sector;
mod segment;
mod writer;

pub use disk::{Directory, Disk, DiskFile};
pub use journal::{Journal, Memory, Options};
pub use recover::{Report, open};
pub use sector::SECTOR;

/// Why a journal cannot be used, or not any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Something on disk is not what was written there.
    #[error(
        "{file}, byte {at}: {what}; nothing of it is served: restore it from another copy or a backup"
    )]
    Damaged {
        /// Which file.
        file: String,
        /// Where in it.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// The directory is of something else.
    #[error("{file}: {what}")]
    Foreign {
        /// Which file.
        file: String,
        /// What it is, or is not.
        what: String,
    },
    /// The disk does not do as it is told. Nothing is written any more.
    #[error("the disk fails: {0}")]
    Disk(String),
}

impl JournalError {
    fn damaged(file: &str, at: u64, what: impl Into<String>) -> Self {
        JournalError::Damaged { file: file.into(), at, what: what.into() }
    }

    fn foreign(file: &str, what: impl Into<String>) -> Self {
        JournalError::Foreign { file: file.into(), what: what.into() }
    }

    fn disk(what: &str, error: &std::io::Error) -> Self {
        JournalError::Disk(format!("{what}: {error}"))
    }
}
