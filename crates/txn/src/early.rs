//! Early snapshots: whoever begins to read need not wait until now is past for sure.
//!
//! It reads from a moment that is past, and looks at what is newer. What was committed before it began is in place, on every copy,
//! with a time that is not later than `late`, the latest that it may have been then. So if nothing that it finds is of
//! between, and nothing is locked by somebody who may commit there, it has missed nothing. Otherwise it goes on with `late`, which
//! it waits for, and looks again at what it has read.
//!
//! What changed meanwhile is no reason to abort a transaction that only reads: it was not locked when it was read, so it
//! was changed after this began, and so is whatever was committed since. The moment before that change is as good as `late`.

use farside_fabric::probe;
use smallvec::SmallVec;

use crate::execute::{Few, Step};
use crate::object::Version;
use crate::reader::Reading;
use crate::txn::Txn;
use crate::words::Lock;
use crate::{Trap, TxnError};

impl Txn {
    /// Chooses the snapshot, if there is none: an early one for whoever has no locks, and can go back to older versions.
    pub(crate) async fn begin_reading(&mut self, step: &Step) -> Result<(), TxnError> {
        if self.snapshot.is_some() {
            return Ok(());
        }
        let is_early = self.is_opaque()
            && self.protocol().early_snapshots
            && self.level().is_strict()
            && (step.is_first || step.locks.is_empty() && self.lock.is_none())
            && self.agent.keeps_old_versions();
        if !is_early {
            return self.take_snapshot().await;
        }
        let (early, late) = self.agent.enter_early().await?;
        (self.snapshot, self.late) = (Some(early), Some(late));
        Ok(())
    }

    /// Whether a version, or what the holder of a lock is about to write, may have been committed before this began, and after its
    /// snapshot.
    #[inline]
    pub(crate) fn is_doubtful(&self, version: &Version, lock: u64) -> bool {
        let Some(late) = self.late else { return false };
        let may_come = lock != 0 && Lock::time_of(lock) < late;
        version.ts <= late
            && (may_come || version.ts > self.reads_until())
            && !self.agent.has(Trap::EarlyIsEnough)
    }

    /// The early snapshot does not do. What was read in this step is read again; what was seen before must be so in the later one, too.
    pub(crate) async fn read_later(&mut self, step: &[usize]) -> Result<(), TxnError> {
        self.doubtful = false;
        let Some(late) = self.late.take() else { return Ok(()) };
        probe!("an early snapshot is too early");
        // What does not count is of the early snapshot, and proves nothing in another.
        for entry in self.entries.iter_mut().filter(|entry| entry.proves_nothing()) {
            entry.forget();
            entry.counts = true;
        }
        step.iter().for_each(|at| self.entries[*at].forget());
        let entries = self.entries.iter_mut().enumerate();
        let seen: Vec<(usize, Version)> = entries
            .filter(|(_, entry)| entry.is_seen() && !entry.locked)
            .map(|(at, entry)| (at, entry.version.clone()))
            .collect();
        // The early one is kept until there is another, and with it all versions since then.
        self.leaving = self.snapshot.take();
        let found = self.find_later(late, &seen).await;
        // Whoever goes on elsewhere, because regions moved, goes on with what it had.
        seen.into_iter().for_each(|(at, version)| self.entries[at].version = version);
        if let Err(error) = found {
            let other = self.snapshot.take();
            other.into_iter().for_each(|other| self.agent.leave(other));
            (self.snapshot, self.late) = (self.leaving.take(), Some(late));
            return Err(error);
        }
        self.leaving.take().into_iter().for_each(|early| self.agent.leave(early));
        let readings = self.readings_of(step);
        self.finish_reads(readings.into_vec()).await
    }

    /// The latest snapshot until then in which all is as it was seen.
    async fn find_later(&mut self, late: u64, seen: &[(usize, Version)]) -> Result<(), TxnError> {
        let mut snapshot = late;
        loop {
            self.agent.enter_at(snapshot)?;
            if let Some(other) = self.snapshot.replace(snapshot) {
                self.agent.leave(other);
            }
            self.agent.wait_past(snapshot).await?;
            if seen.is_empty() || self.agent.has(Trap::EarlyIsNotLookedAtAgain) {
                return Ok(());
            }
            let entries: SmallVec<[usize; 8]> = seen.iter().map(|(at, _)| *at).collect();
            let readings = self.readings_of(&entries);
            self.finish_reads(readings.into_vec()).await?;
            let now = |(at, seen): &(usize, Version)| {
                Some(self.entries[*at].version.ts).filter(|now| *now != seen.ts)
            };
            match seen.iter().filter_map(now).min() {
                None => return Ok(()),
                Some(changed) => {
                    probe!("a snapshot is of before a change");
                    snapshot = changed - 1;
                }
            }
        }
    }

    /// Looks at some entries, each at any copy.
    pub(crate) fn readings_of(&self, entries: &[usize]) -> Few<Reading> {
        let random = self.agent.worker.random() as usize;
        let reading =
            |entry: &usize| Reading::new(*entry, self.read_from(random.wrapping_add(*entry)));
        entries.iter().map(reading).collect()
    }
}
