//! Execute: lock what will be written on every replica, read behind the lock at the primary
//! (`ford.txt` §4.2), and read everything else at the snapshot; all in one round trip.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{Ticket, Words, probe};
use farside_pool::Replica;
use smallvec::SmallVec;

use crate::entry::Entry;
use crate::far_versions::FarVersions;
use crate::locking::AskedLock;
use crate::object::{LOCK, TS, Target, Version};
use crate::protocol::{Conflicts, Locking};
use crate::queues::replicas;
use crate::reader::{Asked, Reading};
use crate::txn::{Access, Mode, Txn};
use crate::{EXECUTE, Trap, TxnError, Why};

/// How often a transaction that has nothing to lose asks for locks that others have, before it gives up.
const MOST_TRIES: u32 = 12;
const MOST_TRIES_OF_PATIENT: u32 = 1 << 16;

/// How often a step is tried again because regions moved, or nodes did not answer.
const MOST_MOVES: u32 = 5;

/// How often whoever has seen nothing yet begins with a later snapshot, because a row is newer than the one it has.
const MOST_BEGINNINGS: u32 = 4;

/// As many as most steps have, in place.
pub(crate) type Few<T> = SmallVec<[T; 4]>;

/// A step: what is locked, what is read, what is peeked at.
pub(crate) struct Step {
    pub(crate) locks: Few<usize>,
    pub(crate) reads: Few<usize>,
    pub(crate) peeks: Vec<Target>,
    /// Nothing was seen before it.
    pub(crate) is_first: bool,
}

/// What is left to do after a round.
#[derive(Default)]
pub(crate) struct Left {
    /// Locks that others have: the entry, and whose it is.
    pub(crate) lost: Vec<(usize, u64)>,
    /// Bits of backups that others have.
    pub(crate) missing: Vec<(usize, Replica)>,
    /// What could not be peeked at.
    torn: Vec<Target>,
    /// Something that was locked is newer than the snapshot.
    pub(crate) too_new: bool,
}

/// A round of a step.
struct Posted {
    locks: Few<AskedLock>,
    reads: Few<Asked>,
    peeks: Vec<Ticket<Words>>,
}

impl Txn {
    /// Sees some objects, which do not depend on each other, in one step. After an error the transaction
    /// cannot go on.
    pub async fn access(&mut self, wants: &[Access]) -> Result<(), TxnError> {
        let is_first = self.snapshot.is_none() && self.lock.is_none();
        let hitchhiked = self.protocol().locking == Locking::Hitchhiked;
        let (mut locks, mut reads, mut peeks) = (Few::new(), Few::new(), Vec::new());
        for want in wants {
            if want.mode == Mode::Peek {
                if self.see(want.target).is_none() {
                    peeks.push(want.target);
                }
                continue;
            }
            let at = self.entry(want.target);
            let update = want.mode != Mode::Read;
            if update && hitchhiked {
                self.expect(want.target);
            }
            let entry = &mut self.entries[at];
            entry.fresh |= want.mode == Mode::Fresh;
            if update && hitchhiked {
                locks.extend((!entry.locked).then_some(at));
                continue;
            }
            // What is locked later is read first, if there is anything.
            entry.claimed |= update;
            if !entry.is_seen() && !entry.fresh && entry.new.is_none() {
                reads.push(at);
            }
        }
        locks.sort_unstable();
        locks.dedup();
        reads.retain(|entry| !locks.contains(entry));
        reads.sort_unstable();
        reads.dedup();
        self.step(Step { locks, reads, peeks, is_first }).await
    }

    /// An object will be locked soon, on all replicas.
    fn expect(&self, target: Target) {
        let Ok(replicas) = replicas(self.leave.config(), target.addr) else { return };
        for replica in replicas {
            if let Ok(queue) = self.queues.to(replica.node) {
                queue.expect(replica.base + target.addr.offset() + LOCK);
            }
        }
    }

    /// Whether something is to be written, and is not locked yet.
    pub(crate) fn has_unlocked(&self) -> bool {
        self.entries.iter().any(Entry::is_late)
    }

    /// Locks what is to be written and is not locked yet.
    pub(crate) async fn lock_the_rest(&mut self) -> Result<(), TxnError> {
        let is_first = self.snapshot.is_none() && self.lock.is_none();
        let late = |at: &usize| self.entries[*at].is_late();
        let locks: Few<usize> = (0..self.entries.len()).filter(late).collect();
        self.step(Step { locks, reads: Few::new(), peeks: Vec::new(), is_first }).await
    }

    /// A step. After one that failed there is no other: what is locked and what is not is not known for sure.
    async fn step(&mut self, step: Step) -> Result<(), TxnError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // Also if nobody waits for it any more.
        self.failed = Some(TxnError::TimedOut("a step that was not waited for"));
        let done = self.try_and_follow(step).await;
        let done = match done {
            Ok(()) => self.log_ahead().await,
            lost => lost,
        };
        self.failed = done.as_ref().err().cloned();
        if done.is_err()
            && let Some(release) = self.take_locks(false)
        {
            // Others need not wait until the caller drops it.
            release.detach();
        }
        done
    }

    /// Whoever has only read so far reads on when regions move: from the same moment, where they are now.
    async fn try_and_follow(&mut self, step: Step) -> Result<(), TxnError> {
        let may_follow = self.lock.is_none() && step.locks.is_empty();
        for tries in 1.. {
            let done = self.try_steps(&step).await.and_then(|()| self.check_leave());
            let lost = matches!(
                done,
                Err(TxnError::Moved | TxnError::Unreachable(_) | TxnError::Fabric(_))
            );
            if !lost || !may_follow || tries == MOST_MOVES {
                return done;
            }
            (self.leave, self.queues) = Box::pin(self.agent.ready()).await?;
            probe!("a reader follows its regions");
            step.reads.iter().for_each(|at| self.entries[*at].forget());
        }
        Ok(())
    }

    async fn try_steps(&mut self, step: &Step) -> Result<(), TxnError> {
        if step.locks.is_empty() && step.reads.is_empty() && step.peeks.is_empty() {
            return Ok(());
        }
        for tries in 1.. {
            // From the second time on it has its turns, and what a try takes is a round trip.
            let began = (tries > 1).then(|| self.agent.worker.now());
            let tried = self.try_step(step).await;
            let lost = matches!(tried, Err(TxnError::Conflict(Why::Locked | Why::Older)));
            let most = match self.protocol().conflicts {
                Conflicts::Queue => MOST_TRIES,
                Conflicts::Abort => 0,
                Conflicts::Wait => MOST_TRIES_OF_PATIENT,
            };
            if !lost || !step.is_first || tries > most {
                // Whoever has it may be dead.
                if most == 0
                    && let Some((addr, word)) = self.met.take()
                {
                    Box::pin(self.meet(addr, word)).await?;
                }
                self.wary = false;
                return tried;
            }
            // Nothing was seen that would not be seen again: it asks once more, a while later.
            probe!("a transaction asks for locks again");
            let start = began.unwrap_or_else(|| self.agent.worker.now());
            Box::pin(self.start_over(step)).await?;
            let cost = (self.agent.worker.now() - start).as_nanos() as u64;
            self.wary = true;
            if let Some((addr, word)) = self.met.take() {
                Box::pin(self.meet(addr, word)).await?;
            }
            // A release takes about as long as a try. It keeps its turns meanwhile: those who are next would ask at once.
            let pause = self.agent.worker.random_below(cost.max(100) << (tries + 1).min(5));
            self.agent.worker.sleep(Duration::from_nanos(pause)).await;
        }
        Ok(())
    }

    /// Everything is as it was before the first step.
    async fn start_over(&mut self, step: &Step) -> Result<(), TxnError> {
        // The turns are kept.
        if let Some(release) = self.gather_locks().if_needed() {
            release.run().await?;
        }
        for at in step.locks.iter().chain(&step.reads) {
            self.entries[*at].locked = false;
            self.entries[*at].unproved = false;
            self.entries[*at].forget();
        }
        (self.late, self.doubtful) = (None, false);
        self.lock = None;
        self.held.set(None);
        if let Some(snapshot) = self.snapshot.take() {
            self.agent.leave(snapshot);
        }
        Ok(())
    }

    async fn try_step(&mut self, step: &Step) -> Result<(), TxnError> {
        self.take_turns(&step.locks).await?;
        if !step.reads.is_empty() {
            self.begin_reading(step).await?;
        }
        if !step.locks.is_empty() && self.lock.is_none() {
            self.agent.wait_for_room().await?;
            if self.agent.has(Trap::TimeBeforeLocks) {
                self.early = self.agent.upper().await?;
                self.agent.wait_past(self.early).await?;
            }
            self.lock = Some(self.agent.next_lock());
        }
        self.beginnings = if step.is_first { MOST_BEGINNINGS } else { 0 };
        let mut readings = self.readings_of(&step.reads);
        let mut left = self.lock_and_read(step, &mut readings).await?;
        if !left.lost.is_empty() && step.is_first {
            let (entry, word) = left.lost[0];
            self.met = Some((self.entries[entry].target.addr, word));
            return Err(TxnError::Conflict(Why::Locked));
        }
        if !left.lost.is_empty() {
            Box::pin(self.ask_again(&mut left)).await?;
        }
        if !left.missing.is_empty() {
            Box::pin(self.hold_backups(left.missing)).await?;
        }
        if !readings.is_empty() {
            Box::pin(self.finish_reads(readings.into_vec())).await?;
        }
        while self.doubtful {
            self.beginnings = self.beginnings.saturating_sub(1);
            Box::pin(self.read_later(&step.reads)).await?;
            left.too_new &= self.newest_locked() > self.reads_until();
        }
        self.beginnings = 0;
        if !left.torn.is_empty() {
            Box::pin(self.finish_peeks(left.torn)).await?;
        }
        if left.too_new {
            Box::pin(self.move_snapshot()).await?;
        }
        Ok(())
    }

    /// Something that was locked is newer than the snapshot. If all that was read is still so, a newer snapshot is
    /// as good as the old one; nobody has seen what is newer so far.
    async fn move_snapshot(&mut self) -> Result<(), TxnError> {
        let Some(old) = self.snapshot else { return Ok(()) };
        // What does not count is not looked at again: it is of the old snapshot, and proves nothing in the new one.
        for entry in self.entries.iter_mut().filter(|entry| entry.proves_nothing()) {
            entry.forget();
            entry.counts = true;
        }
        self.late = None;
        self.agent.wait_past(self.newest_locked()).await?;
        if self.has_read_only() {
            let snapshot = self.agent.enter(true).await?;
            self.agent.leave(old);
            self.snapshot = Some(snapshot);
            self.agent.wait_past(snapshot).await?;
            self.validate().await?;
            probe!("a snapshot moves on");
        } else {
            // Nothing that was read counts.
            self.snapshot = None;
            self.agent.leave(old);
        }
        Ok(())
    }

    /// The round trip. Leaves the readings that are not over.
    pub(crate) async fn lock_and_read(
        &mut self,
        step: &Step,
        readings: &mut Few<Reading>,
    ) -> Result<Left, TxnError> {
        let (agent, queues) = (Rc::clone(&self.agent), Rc::clone(&self.queues));
        let mut round = agent.worker.round().counted(&agent.tally, EXECUTE);
        let mut posted = Posted { locks: Few::new(), reads: Few::new(), peeks: Vec::new() };
        let versions = FarVersions::of(self.leave.config(), &queues)?;
        for entry in &step.locks {
            posted.locks.push(self.ask(*entry, &mut round, &queues, versions)?);
        }
        for reading in readings.iter() {
            let target = self.entries[reading.entry].target;
            let config = self.leave.config();
            posted.reads.push(reading.post(&agent, &queues, config, target, &mut round)?);
        }
        for target in &step.peeks {
            let replicas = replicas(self.leave.config(), target.addr)?;
            let any = self.read_from(agent.worker.random() as usize);
            let replica = replicas[any % replicas.len()];
            let at = replica.base + target.addr.offset() + TS;
            let bytes = target.bytes_from_ts();
            posted.peeks.push(round.to(queues.to(replica.node)?).read(at, bytes));
        }
        step.locks.iter().for_each(|entry| self.entries[*entry].posted = true);
        if !step.locks.is_empty() {
            self.begins_to_hold();
        }
        self.trip();
        let done = round.ring().await?;
        let mut tickets = posted.reads.iter();
        let mut failed = Ok(());
        readings.retain_mut(|reading| {
            let look = self.judge(reading, *tickets.next().expect("one each"), &done);
            match self.take_in(reading, look) {
                Ok(over) => !over,
                Err(error) => {
                    failed = Err(error);
                    true
                }
            }
        });
        failed?;
        let mut left = Left::default();
        for (target, ticket) in step.peeks.iter().zip(&posted.peeks) {
            match Version::from_words(&done[*ticket]) {
                Some(version) => self.peeked.push((target.addr, version)),
                None => left.torn.push(*target),
            }
        }
        self.take_all_locked(&agent, &posted.locks, &done, &mut left)?;
        Ok(left)
    }
}
