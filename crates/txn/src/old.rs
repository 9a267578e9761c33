//! How much memory old versions may take, and what happens when that is not enough (`farmv2.txt` §5.3).
//!
//! A thread keeps the old versions that it makes in its rings of records. Where somebody reads a snapshot for so long that
//! a ring is full, records get places of their own, as far as the bound of the session allows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_fabric::probe;
use farside_pool::{Addr, RegionId};

use crate::agent::Agent;
use crate::{TxnError, Why, horizon};

/// What becomes of those who write when old versions take all the memory that they may have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum OldVersions {
    /// Writers wait, for some seconds, until readers need less. Readers are never disturbed.
    #[default]
    Block,
    /// Writers are aborted, and try again.
    Abort,
    /// The oldest are given up: whoever still reads them is told that its snapshot is too old.
    Truncate,
    /// None are kept at all: readers are told so as soon as somebody writes what they read.
    None,
}

/// How long writers wait, or a few leases.
const PATIENCE: Duration = Duration::from_secs(5);

/// Records that are outside of rings, and how large their places are.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    places: Mutex<(HashMap<Addr, u64>, u64)>,
    /// There was no room for more, at this time.
    full_at: AtomicU64,
}

impl Outside {
    fn places(&self) -> MutexGuard<'_, (HashMap<Addr, u64>, u64)> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for so many bytes more: then they are taken.
    fn take(&self, bytes: u64, bound: u64) -> bool {
        let mut known = self.places();
        let fits = known.1 + bytes <= bound;
        if fits {
            known.1 += bytes;
        }
        fits
    }

    fn is_at(&self, addr: Addr, bytes: u64) {
        self.places().0.insert(addr, bytes);
    }

    fn give_back(&self, bytes: u64) {
        self.places().1 -= bytes;
    }

    /// A place is free again, if it was one of these.
    pub(crate) fn is_free(&self, addr: Addr) {
        let mut known = self.places();
        if let Some(bytes) = known.0.remove(&addr) {
            known.1 -= bytes;
        }
    }

    /// How many bytes they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.places().1
    }
}

fn no_room() -> TxnError {
    TxnError::TimedOut("old versions that somebody reads take all their room")
}

impl Agent {
    /// Whether there is any use in looking for an old version.
    pub(crate) fn keeps_old_versions(&self) -> bool {
        self.session.limits.old_versions != OldVersions::None
    }

    /// Old versions before this time are not kept: nobody reads them, or whoever does is told.
    pub(crate) fn reusable(&self) -> u64 {
        match self.keeps_old_versions() {
            true => self.session.horizon.load(Ordering::Acquire),
            false => u64::MAX,
        }
    }

    /// How many bytes of old versions have places of their own now.
    pub fn old_bytes(&self) -> u64 {
        self.session.outside.bytes()
    }

    /// A place for an old version of so many bytes, outside of the ring, as far as the bound allows; `None`: the ring may
    /// have room now.
    pub(crate) async fn place_outside(
        &self,
        region: RegionId,
        bytes: u64,
        waited: Duration,
    ) -> Result<Option<Addr>, TxnError> {
        let limits = self.session.limits;
        // One that is larger than all that there may be is the only one.
        if self.session.outside.take(bytes, limits.old_bytes.max(bytes)) {
            let placed = self.allocate_record(region, bytes).await;
            match &placed {
                Ok(addr) => self.session.outside.is_at(*addr, bytes),
                Err(_) => self.session.outside.give_back(bytes),
            }
            return placed.map(Some);
        }
        match limits.old_versions {
            OldVersions::Abort => {
                probe!("a writer is aborted for lack of room for old versions");
                Err(TxnError::Conflict(Why::OldVersions))
            }
            _ if waited > PATIENCE.max(4 * self.lease()) => Err(no_room()),
            OldVersions::Truncate | OldVersions::None => {
                probe!("old versions are given up");
                self.with_ring(region, |ring| ring.forget(u64::MAX));
                if !waited.is_zero() {
                    // What others need to repair this is not given up.
                    self.worker.sleep(horizon::TELLING).await;
                }
                Ok(None)
            }
            // Whoever reads may wait for what this one holds: it waits without.
            OldVersions::Block => {
                self.session.outside.full_at.fetch_max(self.latest(), Ordering::AcqRel);
                Err(TxnError::Conflict(Why::OldVersions))
            }
        }
    }

    /// Waits while old versions take all the room that they may have, for one who holds nothing yet.
    pub(crate) async fn wait_for_room(&self) -> Result<(), TxnError> {
        let session = &self.session;
        let is_full = || {
            let full_at = session.outside.full_at.load(Ordering::Acquire);
            full_at > 0 && session.horizon.load(Ordering::Acquire) <= full_at
        };
        let mut start = None;
        while is_full() {
            probe!("a writer waits for room for old versions");
            let now = self.worker.now();
            if now - *start.get_or_insert(now) > PATIENCE.max(4 * self.lease()) {
                return Err(no_room());
            }
            self.worker.sleep(horizon::TELLING).await;
        }
        Ok(())
    }
}
