//! Parallel undo logging (`ford.txt` §4.3.1): records are written as soon as the old versions are known, while the
//! transaction goes on.
//!
//! When it commits, records and bodies are in the same queues, one behind the other. Should the transaction turn out to write something else
//! than it has locked so far, the records are written again, in the same places, and those that are not needed are
//! erased: a repairer must not find records of two minds. That is for protocols without old versions, for a place counts as
//! needed until the commit time that was taken here.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use crate::object::LOCK;
use crate::protocol::Undo;
use crate::queues::written;
use crate::record::Record;
use crate::ring::{RecordPlace, Released};
use crate::txn::Txn;
use crate::{INSTALL, LOG, TxnError};

/// Slots for records that nobody may need: they are free again unless they are used.
pub(crate) struct Slots(Option<Released>);

impl Slots {
    pub(crate) fn new(released: &Released) -> Self {
        Slots(Some(Rc::clone(released)))
    }

    pub(crate) fn are_used(mut self) {
        self.0 = None;
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if let Some(released) = &self.0 {
            released.set(true);
        }
    }
}

type Posted = Pin<Box<dyn Future<Output = Result<(), TxnError>>>>;

/// Records that were posted.
pub(crate) struct Logged {
    /// The commit time.
    pub(crate) time: u64,
    /// For which entries, and where.
    pub(crate) slots: SmallVec<[(usize, RecordPlace); 4]>,
    pub(crate) released: Released,
    /// Frees the places, if this does not commit.
    pub(crate) unused: Option<Slots>,
    /// Until they are acknowledged.
    posted: Option<Posted>,
}

impl fmt::Debug for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logged").field("time", &self.time).field("slots", &self.slots).finish()
    }
}

impl Logged {
    /// Whether these are the records that a transaction needs.
    pub(crate) fn is_of(&self, txn: &Txn) -> bool {
        let written = txn.entries.iter().filter(|entry| entry.new.is_some());
        let present = |at: usize| {
            let new = txn.entries[at].new.as_ref();
            new.is_some_and(crate::Version::is_present)
        };
        self.time > txn.newest_locked()
            && self.slots.iter().all(|(at, _)| present(*at))
            && written.count() == self.slots.len()
    }

    pub(crate) fn slot(&self, entry: usize) -> Option<RecordPlace> {
        self.slots.iter().find(|(at, _)| *at == entry).map(|(_, slot)| *slot)
    }

    /// Whether they are acknowledged.
    pub(crate) fn is_written(&mut self) -> Result<bool, TxnError> {
        let now = &mut Context::from_waker(Waker::noop());
        match self.posted.as_mut().map(|posted| posted.as_mut().poll(now)) {
            Some(Poll::Pending) => return Ok(false),
            Some(Poll::Ready(done)) => {
                self.posted = None;
                done?;
            }
            None => {}
        }
        Ok(true)
    }

    /// Waits until they are acknowledged.
    pub(crate) async fn written(&mut self) -> Result<(), TxnError> {
        match self.posted.take() {
            Some(posted) => posted.await,
            None => Ok(()),
        }
    }
}

impl Txn {
    /// Posts the records of all that is locked, if that is the protocol, and goes on.
    pub(crate) async fn log_ahead(&mut self) -> Result<(), TxnError> {
        let is_first = self.protocol().undo == Undo::Parallel && self.logged.is_none();
        let Some(lock) = self.lock.filter(|_| is_first) else { return Ok(()) };
        let is_locked = |at: &usize| self.entries[*at].locked;
        let locked: SmallVec<[usize; 4]> = (0..self.entries.len()).filter(is_locked).collect();
        if locked.is_empty() {
            return Ok(());
        }
        let time = self.agent.upper().await?.max(lock.time() + 1).max(self.newest_locked() + 1);
        let released = Released::default();
        let unused = Some(Slots::new(&released));
        let (id, objects) = (lock.to_word(), locked.len() as u64);
        let (mut slots, mut words, mut writes) = (SmallVec::new(), Vec::new(), Vec::new());
        for at in locked {
            self.agent.need_ring(self.entries[at].target.addr.region()).await?;
            // Where there is no room in the ring there is time for that when it commits.
            let Some(record_at) = self.ring_slot(at, time, &released) else { return Ok(()) };
            slots.push((at, (record_at, false)));
            let entry = &self.entries[at];
            let (object, room) = (entry.target.addr, entry.target.room);
            let (fresh, erased) = (entry.fresh, false);
            let record = Record { id, objects, object, room, fresh, erased, time };
            let begin = words.len();
            record.extend(record_at, &entry.version, &mut words);
            for copy in written(self.leave.config(), object)? {
                let lock_at = copy.base + object.offset() + LOCK;
                let record_at = copy.base + record_at;
                writes.push((copy.node, record_at, begin..words.len(), lock_at));
            }
        }
        let (agent, queues) = (Rc::clone(&self.agent), Rc::clone(&self.queues));
        let flushes = self.keeps_in_any_order(&queues);
        let posted: Posted = Box::pin(async move {
            let phase = if flushes { INSTALL } else { LOG };
            let mut round = agent.worker.round().counted(&agent.tally, phase);
            for (node, at, range, lock_at) in &writes {
                let mut bell = round.to(queues.to(*node)?);
                bell.write(*at, &words[range.clone()]);
                if flushes {
                    // As where records are posted when all is known.
                    bell.read(*lock_at, 8);
                }
            }
            if flushes {
                queues.flush(&mut round, writes.iter().map(|(node, ..)| *node));
            }
            round.ring().await?;
            Ok(())
        });
        let mut logged = Logged { time, slots, released, unused, posted: Some(posted) };
        // They are in the queues before anything else is.
        logged.is_written()?;
        self.logged = Some(logged);
        Ok(())
    }
}
