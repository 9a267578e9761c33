//! Release: locks are given back, and with them what nobody needs any more.

use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use farside_fabric::probe;
use farside_pool::{Addr, Config, Replica};
use smallvec::SmallVec;

use crate::agent::Agent;
use crate::entry::Entry;
use crate::far_versions::{FarVersions, Mark};
use crate::holding::Held;
use crate::object::{IN_USE, LOCK, Raw};
use crate::queues::{Queues, written};
use crate::ring::Released;
use crate::space::is_joined;
use crate::turns::Turn;
use crate::txn::{Doomed, Txn};
use crate::words::Lock;
use crate::{RELEASE, Trap, TxnError};

/// How long whoever waits for a release does so, or a few leases.
const PATIENCE: Duration = Duration::from_secs(5);

/// Locks to be given back.
pub(crate) struct Release {
    agent: Rc<Agent>,
    queues: Rc<Queues>,
    word: u64,
    places: SmallVec<[(Replica, Addr); 9]>,
    /// Marks in the version cache of a node, taken back with the locks.
    pub(crate) marks: SmallVec<[Mark; 3]>,
    /// Handed over when the locks are free.
    pub(crate) turns: SmallVec<[Turn; 3]>,
    /// Places that were allocated and not used.
    pub(crate) unused: Vec<Addr>,
    /// Bodies that were written for nothing.
    pub(crate) blobs: Vec<Addr>,
    /// What nobody needs after a commit.
    pub(crate) doomed: Vec<Addr>,
    /// What is freed when nobody reads a snapshot of before a time.
    pub(crate) later: Vec<(u64, Addr, Raw)>,
    /// Told when the locks are free.
    pub(crate) released: Option<Released>,
    /// Since when they are held, if that is to be noted.
    pub(crate) held: Option<Held>,
    /// Nothing is left to do.
    done: bool,
    /// It was begun again: a thread that ends drops that, too, and there is an end to it.
    again: bool,
}

impl Release {
    /// In a box: it is handed on several times, and is large.
    pub(crate) fn new(txn: &Txn) -> Box<Self> {
        Box::new(Release {
            agent: Rc::clone(&txn.agent),
            queues: Rc::clone(&txn.queues),
            word: txn.lock.map_or(0, Lock::to_word),
            places: SmallVec::new(),
            marks: SmallVec::new(),
            turns: SmallVec::new(),
            unused: Vec::new(),
            blobs: Vec::new(),
            doomed: Vec::new(),
            later: Vec::new(),
            released: None,
            held: None,
            done: false,
            again: false,
        })
    }

    /// One more object, whose lock CASes were posted.
    pub(crate) fn add(&mut self, config: &Config, addr: Addr) {
        let replicas = written(config, addr).into_iter().flatten();
        self.places.extend(replicas.map(|replica| (replica, addr)));
    }

    /// Those of primaries were given back with what was written last, of these objects.
    pub(crate) fn has_no_primaries(&mut self, config: &Config, objects: &[Addr]) {
        let is_primary = |replica: &Replica, addr: Addr| {
            written(config, addr).into_iter().flatten().next().as_ref() == Some(replica)
        };
        self.places
            .retain(|(replica, addr)| !(objects.contains(addr) && is_primary(replica, *addr)));
    }

    /// Itself, if there is anything to give back.
    pub(crate) fn if_needed(mut self: Box<Self>) -> Option<Box<Self>> {
        if self.is_needed() {
            return Some(self);
        }
        self.forget();
        None
    }

    fn is_needed(&self) -> bool {
        !(self.places.is_empty()
            && self.marks.is_empty()
            && self.turns.is_empty()
            && self.unused.is_empty()
            && self.blobs.is_empty())
    }

    /// What a commit leaves behind, freed when that is in nobody's way.
    pub(crate) fn bury(&mut self, doomed: Vec<Doomed>, time: u64) {
        for doomed in doomed {
            match doomed {
                Doomed::Object(addr) => self.doomed.push(addr),
                Doomed::Blob(addr) => self.later.push((time, addr, Raw::Other)),
            }
        }
    }

    /// Gives them back while others go on.
    pub(crate) fn detach(self: Box<Self>) {
        let agent = Rc::clone(&self.agent);
        let mut run = Box::pin(self.run());
        // Where verbs take effect at once, that is all.
        let mut now = Context::from_waker(Waker::noop());
        if run.as_mut().poll(&mut now).is_pending() {
            agent.beside(async move { _ = run.await });
        }
    }

    /// Gives them back: each only if it is still ours. Again after an error, in new queues, and not where nodes were put
    /// out. Nobody waits for long: the rest is done beside.
    pub(crate) async fn run(mut self: Box<Self>) -> Result<(), TxnError> {
        let agent = Rc::clone(&self.agent);
        let patience = PATIENCE.max(4 * agent.lease());
        let mut since = None;
        for tries in 0u32.. {
            if self.ring().await.is_ok() {
                break;
            }
            probe!("a release is posted again");
            if let Err(fenced) = agent.check_fenced() {
                self.forget();
                agent.unclean.set(true);
                return Err(fenced);
            }
            let now = agent.worker.now();
            if now - *since.get_or_insert(now) > patience && !self.again {
                return Err(TxnError::TimedOut("a release"));
            }
            if tries > 0 {
                agent.worker.sleep(Duration::from_micros(1 << tries.min(12))).await;
            }
            let config = agent.seat.view().config();
            self.queues = Box::pin(agent.reach(&config)).await;
            self.places.retain(|(replica, addr)| config.has(addr.region(), replica));
        }
        let held = self.held.take();
        agent.note_held(held.map(|held| Held { phases: held.phases + 1, ..held }));
        if let Some(released) = self.released.take() {
            // A lock that came back after a loss of power would need the record, everywhere.
            match self.flush().await {
                Ok(()) => released.set(true),
                Err(_) => agent.unclean.set(true),
            }
        }
        self.places.clear();
        self.forget_places();
        if !(self.blobs.is_empty() && self.doomed.is_empty()) {
            Box::pin(self.free()).await;
        }
        self.done = true;
        Ok(())
    }

    /// Gives nothing back.
    pub(crate) fn forget(&mut self) {
        self.done = true;
    }

    /// What is left of it.
    fn take_rest(&mut self) -> Box<Self> {
        let rest = Box::new(Release {
            agent: Rc::clone(&self.agent),
            queues: Rc::clone(&self.queues),
            word: self.word,
            places: std::mem::take(&mut self.places),
            marks: std::mem::take(&mut self.marks),
            turns: std::mem::take(&mut self.turns),
            unused: std::mem::take(&mut self.unused),
            blobs: std::mem::take(&mut self.blobs),
            doomed: std::mem::take(&mut self.doomed),
            later: std::mem::take(&mut self.later),
            released: self.released.take(),
            held: self.held.take(),
            done: false,
            again: true,
        });
        self.done = true;
        rest
    }

    async fn ring(&mut self) -> Result<(), TxnError> {
        // Whoever is next asks for the locks behind this, and mostly finds them free: a round trip less.
        let turns = std::mem::take(&mut self.turns);
        let marks = std::mem::take(&mut self.marks);
        if self.places.is_empty() && marks.is_empty() {
            return Ok(());
        }
        let mut round = self.agent.worker.round().counted(&self.agent.tally, RELEASE);
        marks.into_iter().for_each(|mark| mark.take_back(&self.queues, &mut round));
        for (replica, addr) in &self.places {
            let mut bell = round.to(self.queues.to(replica.node)?);
            let at = replica.base + addr.offset() + LOCK;
            if self.agent.has(Trap::AbortClearsAll) {
                bell.write(at, &[0]);
            } else {
                bell.cas(at, self.word, 0);
            }
        }
        let posted = round.ring();
        drop(turns);
        posted.await?;
        Ok(())
    }

    async fn flush(&self) -> Result<(), TxnError> {
        let agent = &self.agent;
        let durable = agent.session.limits.durable && !agent.has(Trap::ReleaseWithoutFlush);
        if !durable || !self.queues.keep_anything() {
            return Ok(());
        }
        let mut round = agent.worker.round().counted(&agent.tally, RELEASE);
        self.queues.flush(&mut round, self.places.iter().map(|(replica, _)| replica.node));
        round.ring().await?;
        Ok(())
    }

    /// What was not used is free at once, and what others may read is later.
    fn forget_places(&mut self) {
        for addr in self.unused.drain(..) {
            self.agent.give_back(addr);
        }
        for (time, addr, raw) in self.later.drain(..) {
            self.agent.free_after(time, addr, raw);
        }
    }

    async fn free(&mut self) {
        for addr in self.blobs.drain(..) {
            // Where a copy is in the making nothing is freed.
            let joined = is_joined(&self.agent.config(), addr);
            if joined || self.agent.free(addr, IN_USE).await.is_err() {
                self.agent.free_after(0, addr, Raw::Other);
            }
        }
        for addr in std::mem::take(&mut self.doomed) {
            if self.agent.free(addr, IN_USE).await.is_err() {
                probe!("something is freed later");
                self.agent.free_after(0, addr, Raw::Other);
            }
        }
    }
}

impl Txn {
    /// All locks that were posted, to be given back; places are kept: it asks again, or ends.
    pub(crate) fn take_locks_alone(&mut self) -> Option<Box<Release>> {
        let mut release = self.gather_locks();
        self.hand_over_turns(&mut release);
        release.if_needed()
    }

    fn hand_over_turns(&mut self, release: &mut Release) {
        release.turns.extend(self.entries.iter_mut().filter_map(|entry| entry.turn.take()));
    }

    /// The same without the turns.
    pub(crate) fn gather_locks(&mut self) -> Box<Release> {
        let mut release = Release::new(self);
        let versions = FarVersions::of(self.leave.config(), &self.queues).ok().flatten();
        for entry in &mut self.entries {
            if std::mem::take(&mut entry.marked) {
                release.marks.extend(versions.map(|it| it.mark_of(entry.target.addr)));
            }
            if std::mem::take(&mut entry.posted) {
                release.add(self.leave.config(), entry.target.addr);
            }
        }
        release
    }

    /// All locks that were posted, and all places that were not used, to be given back; `None` if there are none.
    pub(crate) fn take_locks(&mut self, committed: bool) -> Option<Box<Release>> {
        let is_bare = |entry: &Entry| !entry.posted && !entry.fresh && entry.turn.is_none();
        if self.entries.iter().all(is_bare) && self.blobs.is_empty() && self.spilled.is_empty() {
            return None;
        }
        let mut release = self.gather_locks();
        self.hand_over_turns(&mut release);
        for entry in &mut self.entries {
            let unused = entry.fresh && (!committed || entry.new.is_none());
            if unused {
                entry.fresh = false;
                release.unused.push(entry.target.addr);
            }
        }
        if !committed {
            let blobs = self.blobs.drain(..).map(|blob| blob.addr);
            match self.blobs_posted.get() {
                true => release.blobs.extend(blobs),
                false => release.unused.extend(blobs),
            }
            release.unused.append(&mut self.spilled);
        }
        release.if_needed()
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if !self.done && !self.again && self.is_needed() {
            probe!("a release that nobody waits for goes on");
            let rest = self.take_rest();
            let agent = Rc::clone(&self.agent);
            agent.beside(async move { _ = rest.run().await });
        }
    }
}
