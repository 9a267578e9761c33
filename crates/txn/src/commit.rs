//! Commit: locks that are not held yet, a time, a second look at what was only read, records and bodies to all replicas, and
//! then the locks are given back.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farside_fabric::runtime::question;
use farside_pool::{Addr, within};
use smallvec::SmallVec;

use crate::install::Writes;
use crate::log::{Logged, Slots};
use crate::object::Raw;
use crate::protocol::Undo;
use crate::release::Release;
use crate::ring::Released;
use crate::txn::Txn;
use crate::versions::VersionCache;
use crate::words::Lock;
use crate::{Level, Trap, TxnError};

/// How long whoever commits waits for that, or a few leases: then it goes on without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is left to do with a transaction that is about to be written.
struct Ending {
    writes: Writes,
    logged: Option<Logged>,
    marks: Marks,
    release: Box<Release>,
    released: Released,
}

/// What a transaction is about to write, as the version cache knows it: forgotten again if it does not come to that.
struct Marks {
    cache: Option<Arc<VersionCache>>,
    transaction: u64,
    objects: SmallVec<[Addr; 4]>,
}

impl Marks {
    /// Others see what will be written.
    fn of(txn: &Txn) -> Self {
        let cache = txn.agent.session.versions.clone();
        let transaction = txn.lock.map_or(0, Lock::to_word);
        let objects = cache.as_ref().map_or_else(SmallVec::new, |_| txn.written_objects());
        if let Some(cache) = &cache {
            objects.iter().for_each(|addr| cache.mark(*addr, transaction));
        }
        Marks { cache, transaction, objects }
    }

    /// The commit time: later than those of all who took theirs before, if all share the cache.
    fn take_time(&self, least: u64) -> u64 {
        self.cache.as_ref().map_or(least, |cache| cache.take_time(least))
    }

    /// It was written, or it was not.
    fn settle(&mut self, time: Option<u64>) {
        if let Some(cache) = &self.cache {
            let objects = self.objects.drain(..);
            objects.for_each(|addr| cache.settle(addr, self.transaction, time));
        }
    }

    /// They are there until somebody says how it ended.
    fn leave(&mut self) -> SmallVec<[Addr; 4]> {
        std::mem::take(&mut self.objects)
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        self.settle(None);
    }
}

impl Txn {
    fn written_objects(&self) -> SmallVec<[Addr; 4]> {
        let written = self.entries.iter().filter(|entry| entry.new.is_some());
        written.map(|entry| entry.target.addr).collect()
    }

    /// Whether all who write take their commit times one after the other, when they have marked what they will write: then whoever is not
    /// seen by a second look at what was only read commits later than this.
    fn is_in_order(&self) -> bool {
        self.agent.session.versions.is_some() && self.agent.protocol().undo != Undo::Parallel
    }

    /// Commits; the commit time, if anything was written.
    pub async fn commit(mut self: Box<Self>) -> Result<Option<u64>, TxnError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.entries.iter().all(|entry| entry.new.is_none()) {
            // What was read is of one moment; one object always is.
            let alone = usize::from(!self.protocol().looks_twice);
            let more = self.entries.iter().filter(|it| it.is_seen() && it.counts).nth(alone);
            if !self.is_opaque() && more.is_some() && self.has_doubts() {
                self.validate().await?;
                self.check_leave()?;
            }
            return Ok(None);
        }
        if self.has_unlocked() {
            Box::pin(self.lock_the_rest()).await?;
        }
        // Before the time is taken: whatever is written there is written by nobody else.
        if !self.blobs.is_empty() {
            Box::pin(self.write_blobs()).await?;
        }
        let lock = self.lock.ok_or_else(|| TxnError::Refused("nothing is locked".into()))?;
        let marks = Marks::of(&self);
        let logged = self.logged.take();
        let time = match &logged {
            Some(logged) if logged.is_of(&self) => logged.time,
            _ if self.agent.has(Trap::TimeOfTheLock) => lock.time(),
            _ if self.agent.has(Trap::TimeBeforeLocks) => self.early,
            _ => {
                let upper = self.agent.upper().await?;
                let least = upper.max(lock.time() + 1).max(self.newest_locked() + 1);
                match self.agent.has(Trap::TimesInNoOrder) {
                    true => least,
                    false => marks.take_time(least),
                }
            }
        };
        // All bits were held on all replicas of a configuration that counts, and still are.
        self.check_leave()?;
        if self.has_doubts() {
            if self.agent.has(Trap::ValidationBeforeTheWait) {
                self.validate().await?;
            }
            if self.is_opaque() && !self.is_in_order() && !self.agent.has(Trap::NoUncertaintyWait) {
                self.agent.wait_past(time).await?;
            }
            if !self.agent.has(Trap::ValidationBeforeTheWait) {
                self.validate().await?;
            }
            self.check_leave()?;
        }
        let logged_released = logged.as_ref().map(|logged| Rc::clone(&logged.released));
        let released = logged_released.unwrap_or_default();
        let slots = Slots::new(&released);
        let writes = self.prepare(time, logged.as_ref(), &released).await?;
        slots.are_used();
        let release = self.take_locks(true).expect("what is written is locked");
        let agent = Rc::clone(&self.agent);
        let ending = Box::new(Ending { writes, logged, marks, release, released });
        let mut finish = Box::pin(self.finish(time, ending));
        // From here on it goes on to its end, whether somebody waits for that or not.
        let mut now = Context::from_waker(Waker::noop());
        if let Poll::Ready(done) = finish.as_mut().poll(&mut now) {
            return done;
        }
        let (asked, answer) = question();
        agent.beside(async move { asked.answer(finish.await) });
        let patience = PATIENCE.max(4 * agent.lease());
        let unknown = || Err(TxnError::Pending("a node does not answer".into()));
        within(&agent.worker, patience, answer).await.unwrap_or_else(unknown)
    }

    /// Installs, waits until the commit time is past, and gives the locks back.
    async fn finish(
        mut self: Box<Self>,
        time: u64,
        mut ending: Box<Ending>,
    ) -> Result<Option<u64>, TxnError> {
        let Ending { writes, logged, marks, release, released } = &mut *ending;
        // Should this end before its end, nobody knows.
        let written = marks.leave();
        logged
            .as_mut()
            .and_then(|logged| logged.unused.take())
            .into_iter()
            .for_each(Slots::are_used);
        let installed = self.install(writes, logged.as_mut(), time).await;
        if installed.as_ref().is_ok_and(|it| it.unlocked) {
            release.has_no_primaries(self.leave.config(), &self.written_objects());
            self.agent.note_held(self.held.take());
        }
        if !installed.as_ref().is_ok_and(|it| it.told) {
            // What the cache says may not be so any more: the marks stay.
            release.marks.clear();
        }
        self.entries.clear();
        self.blobs.clear();
        if let Err(error) = installed {
            self.spilled.clear();
            // The outcome is open: the locks are not ours to give back.
            release.forget();
            self.agent.unclean.set(true);
            return Err(error);
        }
        marks.objects = written;
        marks.settle(Some(time));
        let waits = self.level() != Level::Snapshot
            && self.is_opaque()
            && !self.agent.has(Trap::NoUncertaintyWait);
        if waits && let Err(fenced) = self.agent.wait_past(time).await {
            release.forget();
            self.agent.unclean.set(true);
            return Err(TxnError::Pending(fenced.to_string()));
        }
        release.released = Some(Rc::clone(released));
        release.held = self.held.take();
        release.bury(std::mem::take(&mut self.doomed), time);
        let spilled = Raw::Spilled(self.agent.owner);
        release.later.extend(self.spilled.drain(..).map(|addr| (time, addr, spilled)));
        ending.release.detach();
        Ok(Some(time))
    }
}
