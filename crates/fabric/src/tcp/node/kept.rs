//! A journal of what a node executes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_journal::{Disk, Journal, Memory, Options, Report, open};
use rustix::event::{EventfdFlags, eventfd};

use crate::memory::Mapping;
use crate::runtime::Time;
use crate::{FabricError, Result};

/// Times that were given out are not further ahead of what a journal knows: longer than anybody is uncertain of the time, or a
/// batch gathers.
const MARGIN_NS: u64 = 5_000_000_000;

impl Memory for Mapping {
    #[cfg(not(loom))]
    fn words(&self) -> &[AtomicU64] {
        self.words()
    }

    #[cfg(loom)]
    fn words(&self) -> &[AtomicU64] {
        unreachable!("no model has a disk")
    }
}

/// The journal, and what wakes the node when it is further.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) journal: Journal,
    pub(super) report: Report,
    pub(super) wake: Arc<OwnedFd>,
    ahead: u64,
    /// A flush was asked for in this turn.
    pub(super) wants_sync: bool,
    /// What was changed last.
    pub(super) words: Vec<u64>,
    /// It was told that the disk fails.
    pub(super) told: bool,
}

impl Kept {
    /// Reads what is there into the memory, and goes on.
    pub(super) fn open(disk: &Arc<dyn Disk>, memory: &Arc<Mapping>) -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|error| FabricError::setup("making an eventfd", error))?);
        let waker = Arc::clone(&wake);
        let tell = move || _ = rustix::io::write(&*waker, &1u64.to_ne_bytes());
        let ahead = Arc::new(AtomicU64::new(0));
        let known = Arc::clone(&ahead);
        let clock = move || Time::of_host().0 + known.load(Ordering::Relaxed);
        let memory: Arc<dyn Memory> = Arc::<Mapping>::clone(memory);
        let (journal, report) = open(Arc::clone(disk), memory, &Options::default(), clock, tell)
            .map_err(|error| FabricError::setup(format!("the data in {}", disk.place()), error))?;
        let behind: u64 = match report.time {
            0 => 0,
            time => (time + MARGIN_NS).saturating_sub(Time::of_host().0),
        };
        ahead.store(behind, Ordering::Relaxed);
        let (words, wants_sync, told) = (Vec::new(), false, false);
        Ok(Kept { journal, report, wake, ahead: behind, wants_sync, words, told })
    }

    /// How far the clock of this node is ahead of its host's: no time is given out twice.
    pub(super) fn ahead(&self) -> u64 {
        self.ahead
    }
}
