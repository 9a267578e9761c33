//! Contesting an office before taking it over.
//!
//! A new manager waits until no lease of the old one can be left, and the old one may have read the store, as evidence of its
//! office, until the very moment of the takeover. So whoever misses the manager says so in the store first, while it still has a
//! lease itself: a configuration that is *contested* is evidence for nobody. A manager that lives takes the mark away, by a swap that
//! is evidence again. If nobody has, the last evidence is from before the mark, and by the time of the takeover most of the wait is
//! over.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::{Time, Worker, probe};

use crate::config::Config;
use crate::store::{ConfigStore, StoreError};

/// What one session knows of a contest.
#[derive(Default)]
pub(crate) struct Contest {
    /// The store's revision that is contested, and when that was first seen.
    seen: Cell<Option<(u64, Time)>>,
    /// The end of the lease that made this session worry: it does so once for each.
    worried_for: Cell<Time>,
}

impl Contest {
    /// A session whose lease ends then misses the manager of a configuration.
    pub(crate) fn begin(
        self: &Rc<Self>,
        worker: &Worker,
        store: &Rc<dyn ConfigStore>,
        config: &Config,
        lease_end: Time,
    ) {
        if self.worried_for.replace(lease_end) == lease_end {
            return;
        }
        let (contest, store, watch) = (Rc::clone(self), Rc::clone(store), worker.clone());
        let epoch = config.epoch;
        let contesting = async move { _ = contest.mark(&watch, &*store, epoch).await };
        worker.spawn(contesting).detach();
    }

    /// Marks the configuration of an epoch, or finds it marked.
    async fn mark(
        &self,
        worker: &Worker,
        store: &dyn ConfigStore,
        epoch: u64,
    ) -> Result<(), StoreError> {
        let stored = store.read(0).await?;
        if let Some(newest) = stored.newest()
            && newest.epoch == epoch
            && !newest.contested
        {
            probe!("a session contests the office of the manager");
            let marked = Config { contested: true, ..newest };
            // However that goes, the next look tells.
            _ = store.swap(stored.revision, &marked.encode()).await;
        }
        let stored = store.read(0).await?;
        if stored.newest().is_some_and(|newest| newest.epoch == epoch && newest.contested) {
            self.note(stored.revision, worker.now());
        }
        Ok(())
    }

    fn note(&self, revision: u64, now: Time) {
        if self.seen.get().is_none_or(|(known, _)| known != revision) {
            self.seen.set(Some((revision, now)));
        }
    }

    /// Since when the store is no evidence for the manager whose office was taken over from that revision; `None` if only since
    /// then.
    pub(crate) fn since(&self, revision: u64) -> Option<Time> {
        self.seen.get().filter(|(known, _)| *known == revision).map(|(_, since)| since)
    }
}
