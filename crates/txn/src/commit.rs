//! Commit: a time, a second look at what was only read, records and bodies to all replicas at once, and then
//! the locks are given back.

use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farside_fabric::probe;
use farside_fabric::runtime::question;
use farside_pool::{Addr, Config, Replica, within};
use smallvec::SmallVec;

use crate::object::{HEADER, IN_USE, LOCK, Raw, TS, Target};
use crate::queues::{Queues, replicas, written};
use crate::record::{self, Record};
use crate::release::Release;
use crate::ring::{Released, Ring};
use crate::txn::Txn;
use crate::words::Lock;
use crate::{INSTALL, Level, Trap, TxnError, VALIDATE, Why, horizon};

/// How long whoever commits waits for that, or a few leases: then it goes on without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The heap's word, before a record that is outside of the ring.
const RECORD_HEAD: u64 = 8;

/// What goes to every replica for one object: a record, and then the object from `ts` on. Made once: after an
/// error the same bytes are written again.
#[derive(Clone, Copy)]
struct Write {
    entry: usize,
    /// Where in the region the record goes.
    record_at: u64,
    /// That is outside of the ring.
    spilled: bool,
    /// Where its words are among those of all: from here the record, from there the object.
    record: usize,
    object: usize,
    end: usize,
}

/// What of it is posted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Records,
    Bodies,
}

/// All that a transaction writes.
#[derive(Default)]
struct Writes {
    writes: SmallVec<[Write; 4]>,
    words: Vec<u64>,
}

/// Slots for records that nobody may need: they are free again unless they are used.
struct Slots(Option<Released>);

impl Slots {
    fn are_used(mut self) {
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

impl Txn {
    /// Commits; the commit time, if anything was written.
    pub async fn commit(mut self: Box<Self>) -> Result<Option<u64>, TxnError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.entries.iter().all(|entry| entry.new.is_none()) {
            // What was read is of one moment; one object always is.
            let several = self.entries.iter().filter(|entry| entry.is_only_read()).nth(1);
            if !self.is_opaque() && several.is_some() {
                self.validate().await?;
                self.check_leave()?;
            }
            return Ok(None);
        }
        self.lock_the_rest().await?;
        // Before the time is taken: whatever is written there is written by nobody else.
        self.write_blobs().await?;
        let lock = self.lock.ok_or_else(|| TxnError::Refused("nothing is locked".into()))?;
        let time = match () {
            () if self.agent.has(Trap::TimeOfTheLock) => lock.time(),
            () if self.agent.has(Trap::TimeBeforeLocks) => self.early,
            () => self.agent.upper().await?.max(lock.time() + 1).max(self.newest_locked() + 1),
        };
        // All bits were held on all replicas of a configuration that counts, and still are.
        self.check_leave()?;
        if self.level().validates() && self.has_read_only() {
            if self.agent.has(Trap::ValidationBeforeTheWait) {
                self.validate().await?;
            }
            if self.is_opaque() && !self.agent.has(Trap::NoUncertaintyWait) {
                self.agent.wait_past(time).await?;
            }
            if !self.agent.has(Trap::ValidationBeforeTheWait) {
                self.validate().await?;
            }
            self.check_leave()?;
        }
        let released = Released::default();
        let slots = Slots(Some(Rc::clone(&released)));
        let writes = self.prepare(time, &released).await?;
        slots.are_used();
        let release = self.take_locks(true).expect("what is written is locked");
        let agent = Rc::clone(&self.agent);
        let mut finish = Box::pin(self.finish(time, writes, release, released));
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
        writes: Writes,
        mut release: Release,
        released: Released,
    ) -> Result<Option<u64>, TxnError> {
        let installed = self.install(&writes, time).await;
        self.entries.clear();
        self.blobs.clear();
        if let Err(error) = installed {
            self.spilled.clear();
            // The outcome is open: the locks are not ours to give back.
            release.forget();
            self.agent.unclean.set(true);
            return Err(error);
        }
        let waits = self.level() != Level::Snapshot
            && self.is_opaque()
            && !self.agent.has(Trap::NoUncertaintyWait);
        if waits && let Err(fenced) = self.agent.wait_past(time).await {
            release.forget();
            self.agent.unclean.set(true);
            return Err(TxnError::Pending(fenced.to_string()));
        }
        release.released = Some(released);
        release.bury(std::mem::take(&mut self.doomed), time);
        let spilled = Raw::Spilled(self.agent.owner);
        release.later.extend(self.spilled.drain(..).map(|addr| (time, addr, spilled)));
        release.detach();
        Ok(Some(time))
    }

    /// Looks again at what was only read, at any replica: not locked, and unchanged. Whoever holds it may give it back
    /// as it was: that is waited for, if nobody can wait for this one.
    pub(crate) async fn validate(&mut self) -> Result<(), TxnError> {
        for waits in 1.. {
            match self.look_again().await? {
                None => break,
                Some((_, word)) if !self.may_wait(word, waits) => {
                    probe!("an object that was only read is locked");
                    return Err(TxnError::Conflict(Why::Locked));
                }
                Some((addr, word)) => {
                    self.meet(addr, word).await?;
                    let pause = Duration::from_nanos(500 << waits.min(5));
                    self.agent.worker.sleep(pause).await;
                }
            }
        }
        Ok(())
    }

    /// One look; which lock is in the way, if there is one.
    async fn look_again(&self) -> Result<Option<(Addr, u64)>, TxnError> {
        let agent = &self.agent;
        let mut round = agent.worker.round().counted(&agent.tally, VALIDATE);
        let mut looks = Vec::new();
        let random = agent.worker.random() as usize;
        let only_read = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_only_read());
        for (at, entry) in only_read {
            let addr = entry.target.addr;
            let replicas = replicas(self.leave.config(), addr)?;
            let replica = replicas[random.wrapping_add(at) % replicas.len()];
            let mut bell = round.to(self.queues.to(replica.node)?);
            let lock = bell.read(replica.base + addr.offset() + LOCK, 8);
            let ts = bell.read(replica.base + addr.offset() + TS, 8);
            looks.push((lock, ts, entry.version.ts, addr));
        }
        self.trip();
        let done = round.ring().await?;
        let mut locked = None;
        for (lock, ts, known, addr) in looks {
            if done[ts][0] != known {
                probe!("an object that was only read has changed");
                return Err(TxnError::Conflict(Why::Changed));
            }
            if done[lock][0] != 0 && !agent.has(Trap::ValidationIgnoresLocks) {
                locked = Some((addr, done[lock][0]));
            }
        }
        Ok(locked)
    }

    /// Records with their places, and bodies.
    async fn prepare(&mut self, time: u64, released: &Released) -> Result<Writes, TxnError> {
        let lock = self.lock.ok_or_else(|| TxnError::Refused("nothing is locked".into()))?;
        let objects = self.entries.iter().filter(|entry| entry.new.is_some()).count() as u64;
        if objects > record::MOST_OBJECTS {
            return Err(TxnError::Refused(format!("a transaction that writes {objects} objects")));
        }
        let mut all = Writes::default();
        all.words.reserve(objects as usize * 20);
        for at in 0..self.entries.len() {
            if self.entries[at].new.is_none() {
                continue;
            }
            let (prev, spilled) = self.take_slot(at, time, released).await?;
            let entry = &self.entries[at];
            let new = entry.new.as_ref().expect("seen above");
            let Target { addr: object, room } = entry.target;
            let (fresh, erased) = (entry.fresh, !new.is_present());
            let id = lock.to_word();
            let record = Record { id, objects, object, room, fresh, erased, time };
            let begin = all.words.len();
            record.extend(prev, &entry.version, &mut all.words);
            let object = all.words.len();
            new.extend(time, prev, &mut all.words);
            let end = all.words.len();
            let write = Write { entry: at, record_at: prev, spilled, record: begin, object, end };
            all.writes.push(write);
        }
        Ok(all)
    }

    /// A place for a record, and whether that is outside of the ring: where there is no room in it, because somebody
    /// reads an old snapshot, or this writes much, a record has a place of its own.
    async fn take_slot(
        &mut self,
        at: usize,
        time: u64,
        released: &Released,
    ) -> Result<(u64, bool), TxnError> {
        let target = self.entries[at].target;
        let words = self.entries[at].version.words.len() as u32;
        let (region, bytes) = (target.addr.region(), record::bytes(words));
        // Readers do not know how long the old version is.
        let reach = record::bytes(target.room);
        self.agent.need_ring(region).await?;
        let start = self.agent.worker.now();
        loop {
            let take = |ring: &mut Ring| ring.take(bytes, reach, time, released);
            if let Some(place) = self.agent.with_ring(region, take)? {
                return Ok((place, false));
            }
            horizon::look(&self.agent).await?;
            if let Some(place) = self.agent.with_ring(region, take)? {
                return Ok((place, false));
            }
            let waited = self.agent.worker.now() - start;
            let outside = self.agent.place_outside(region, reach + RECORD_HEAD, waited).await?;
            if let Some(addr) = outside {
                probe!("a record is outside of the ring");
                self.spilled.push(addr);
                return Ok((addr.offset() + RECORD_HEAD, true));
            }
        }
    }

    /// Records and bodies to all replicas at once. After this is posted there is no way back.
    async fn install(&self, all: &Writes, time: u64) -> Result<(), TxnError> {
        let installed = self.post(all, self.leave.config(), &self.queues).await;
        match installed {
            // Acknowledged by all replicas of a configuration that counts.
            Ok(()) if self.leave.is_valid(self.agent.worker.now()) => Ok(()),
            _ => self.install_again(all, time).await,
        }
    }

    /// After an error, or when the regions moved: the same bytes to the same places, on all replicas that hold the lock
    /// and are there by a configuration that counts; and then a look at each of them. Until that succeeds, or others have
    /// taken this process for dead: then they decide.
    async fn install_again(&self, all: &Writes, time: u64) -> Result<(), TxnError> {
        let agent = &self.agent;
        for tries in 0u32.. {
            probe!("an install is posted again");
            if let Err(fenced) = agent.check_fenced() {
                return Err(TxnError::Pending(fenced.to_string()));
            }
            agent.worker.sleep(Duration::from_micros(1 << tries.min(10))).await;
            let Ok((permit, queues)) = agent.act().await else { continue };
            let is_lost = |write: &Write| {
                let held = self.held(permit.config(), self.entries[write.entry].target.addr);
                held.is_ok_and(|mut held| held.next().is_none())
            };
            if all.writes.iter().all(is_lost) {
                return Err(TxnError::Pending("all copies are lost".into()));
            }
            if self.post(all, permit.config(), &queues).await.is_err() {
                continue;
            }
            match self.is_installed(all, time, permit.config(), &queues).await {
                Err(_) => continue,
                _ if !permit.is_valid(agent.worker.now()) => continue,
                Ok(true) => return Ok(()),
                Ok(false) => break,
            }
        }
        probe!("an install was taken back by others");
        Err(TxnError::Pending("others have decided".into()))
    }

    /// The replicas of an object that hold the lock, as far as they are there by a configuration.
    /// None, where the whole region is lost: the others have not to wait for that.
    fn held(&self, config: &Config, addr: Addr) -> Result<impl Iterator<Item = Replica>, TxnError> {
        let locked = written(self.leave.config(), addr)?;
        let same = config.epoch == self.leave.config().epoch;
        Ok(locked.filter(move |replica| same || config.has(addr.region(), replica)))
    }

    /// One round. Two, where what comes later may survive the power without what came before: then a body is posted only when all
    /// records are durable, and the locks with them.
    async fn post(&self, all: &Writes, config: &Config, queues: &Queues) -> Result<(), TxnError> {
        let durable = self.agent.session.limits.durable && queues.keep_anything();
        let first = durable && queues.keep_in_any_order();
        if first && !self.agent.has(Trap::BodyBeforeRecords) {
            self.post_part(all, config, queues, Part::Records, durable).await?;
            return self.post_part(all, config, queues, Part::Bodies, durable).await;
        }
        self.post_part(all, config, queues, Part::All, durable).await
    }

    async fn post_part(
        &self,
        all: &Writes,
        config: &Config,
        queues: &Queues,
        part: Part,
        durable: bool,
    ) -> Result<(), TxnError> {
        let agent = &self.agent;
        let (records, bodies) = (part != Part::Bodies, part != Part::Records);
        let mut round = agent.worker.round().counted(&agent.tally, INSTALL);
        let mut nodes = SmallVec::<[u16; 8]>::new();
        for write in &all.writes {
            let entry = &self.entries[write.entry];
            let addr = entry.target.addr;
            let record = &all.words[write.record..write.object];
            let object = &all.words[write.object..write.end];
            for replica in self.held(config, addr)? {
                let mut bell = round.to(queues.to(replica.node)?);
                let at = replica.base + addr.offset();
                let record_at = replica.base + write.record_at;
                if records && write.spilled {
                    bell.write(record_at - RECORD_HEAD, &[Raw::Spilled(agent.owner).to_word()]);
                }
                if records {
                    bell.write(record_at, record);
                }
                if part == Part::Records {
                    // It may have been taken by another connection: what was read is flushed, too.
                    bell.read(at + LOCK, 8);
                }
                if bodies && entry.fresh {
                    bell.write(at + HEADER, &[IN_USE]);
                }
                if bodies {
                    bell.write(at + TS, object);
                }
                if agent.has(Trap::EarlyRelease) {
                    bell.write(at + LOCK, &[0]);
                }
                if durable {
                    nodes.push(replica.node);
                }
            }
        }
        if durable && !(bodies && agent.has(Trap::CommitWithoutFlush)) {
            queues.flush(&mut round, nodes.into_iter());
        }
        self.trip();
        round.ring().await?;
        Ok(())
    }

    /// Whether all that was written is there, and locked.
    async fn is_installed(
        &self,
        all: &Writes,
        time: u64,
        config: &Config,
        queues: &Queues,
    ) -> Result<bool, TxnError> {
        let agent = &self.agent;
        let word = self.lock.map_or(0, Lock::to_word);
        let mut round = agent.worker.round().counted(&agent.tally, INSTALL);
        let mut looks = Vec::new();
        for write in &all.writes {
            let addr = self.entries[write.entry].target.addr;
            for replica in self.held(config, addr)? {
                let mut bell = round.to(queues.to(replica.node)?);
                let at = replica.base + addr.offset();
                looks.push((bell.read(at + LOCK, 8), bell.read(at + TS, 8)));
            }
        }
        let done = round.ring().await?;
        Ok(looks.into_iter().all(|(lock, ts)| (done[lock][0], done[ts][0]) == (word, time)))
    }
}
