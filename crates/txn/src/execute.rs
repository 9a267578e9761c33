//! Execute: lock what will be written on every replica, read behind the lock at the primary
//! (`ford.txt` §4.2), and read everything else at the snapshot; all in one round trip.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{Done, Round, Ticket, Word, Words, probe};
use farside_pool::Replica;
use smallvec::SmallVec;

use crate::agent::Agent;
use crate::object::{LOCK, TS, Target, Version};
use crate::queues::{replicas, written};
use crate::reader::{Asked, Reading};
use crate::release::Release;
use crate::txn::{Access, Mode, Txn};
use crate::words::Lock;
use crate::{EXECUTE, Trap, TxnError, Why};

/// How long to wait for the bit of a backup whose primary is ours, or a few leases: its holder has lost, and gives way, or
/// is dead and is repaired.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a transaction that has nothing to lose asks for locks that others have, before it gives up.
const MOST_TRIES: u32 = 12;

/// How often one that has something to lose asks for locks that others have, or looks at what they hold. It holds some
/// itself, and two could wait for each other: it waits longer only for those that are younger than itself.
const MOST_WAITS: u32 = 3;
const MOST_WAITS_OF_OLDER: u32 = 100;

/// How often a step is tried again because regions moved, or nodes did not answer.
const MOST_MOVES: u32 = 5;

/// As many as most steps have, in place.
type Few<T> = SmallVec<[T; 4]>;

/// A step: what is locked, what is read, what is peeked at.
struct Step {
    locks: Few<usize>,
    reads: Few<usize>,
    peeks: Vec<Target>,
    /// Nothing was seen before it.
    is_first: bool,
}

/// A lock that was asked for: its CASes, the primary's first, and the read behind that.
struct AskedLock {
    entry: usize,
    bits: SmallVec<[(Replica, Ticket<Word>); 5]>,
    object: Ticket<Words>,
}

/// What is left to do after a round.
#[derive(Default)]
struct Left {
    /// Locks that others have: the entry, and whose it is.
    lost: Vec<(usize, u64)>,
    /// Bits of backups that others have.
    missing: Vec<(usize, Replica)>,
    /// What could not be peeked at.
    torn: Vec<Target>,
    /// Something that was locked is newer than the snapshot.
    too_new: bool,
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
        let (mut locks, mut reads, mut peeks) = (Few::new(), Few::new(), Vec::new());
        for want in wants {
            if want.mode == Mode::Peek {
                if self.see(want.target).is_none() {
                    peeks.push(want.target);
                }
                continue;
            }
            let at = self.entry(want.target);
            let entry = &mut self.entries[at];
            let update = want.mode != Mode::Read;
            entry.fresh |= want.mode == Mode::Fresh;
            if update && !entry.locked {
                locks.push(at);
            } else if !update && !entry.is_seen() && entry.new.is_none() {
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

    /// Locks what is to be written and is not locked yet.
    pub(crate) async fn lock_the_rest(&mut self) -> Result<(), TxnError> {
        let is_first = self.snapshot.is_none() && self.lock.is_none();
        let late = |at: &usize| self.entries[*at].new.is_some() && !self.entries[*at].locked;
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
            (self.leave, self.queues) = self.agent.ready().await?;
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
            let tried = self.try_step(step).await;
            let lost = matches!(tried, Err(TxnError::Conflict(Why::Locked | Why::Older)));
            if !lost || !step.is_first || tries > MOST_TRIES {
                return tried;
            }
            // Nothing was seen that would not be seen again: it asks once more, a while later.
            probe!("a transaction asks for locks again");
            let start = self.agent.worker.now();
            self.start_over(step).await?;
            let cost = (self.agent.worker.now() - start).as_nanos() as u64;
            if let Some((addr, word)) = self.met.take() {
                self.meet(addr, word).await?;
            }
            // A release takes about as long as a try.
            let pause = self.agent.worker.random_below(cost.max(100) << (tries + 1).min(5));
            self.agent.worker.sleep(Duration::from_nanos(pause)).await;
        }
        Ok(())
    }

    /// Everything is as it was before the first step.
    async fn start_over(&mut self, step: &Step) -> Result<(), TxnError> {
        let fresh: Vec<usize> =
            step.locks.iter().copied().filter(|at| self.entries[*at].fresh).collect();
        fresh.iter().for_each(|at| self.entries[*at].fresh = false);
        if let Some(release) = self.take_locks(true) {
            release.run().await?;
        }
        fresh.iter().for_each(|at| self.entries[*at].fresh = true);
        for at in step.locks.iter().chain(&step.reads) {
            self.entries[*at].locked = false;
            self.entries[*at].forget();
        }
        self.lock = None;
        if let Some(snapshot) = self.snapshot.take() {
            self.agent.leave(snapshot);
        }
        Ok(())
    }

    async fn try_step(&mut self, step: &Step) -> Result<(), TxnError> {
        self.take_turns(&step.locks).await?;
        if !step.reads.is_empty() {
            self.take_snapshot().await?;
        }
        if !step.locks.is_empty() && self.lock.is_none() {
            self.agent.wait_for_room().await?;
            if self.agent.has(Trap::TimeBeforeLocks) {
                self.early = self.agent.upper().await?;
                self.agent.wait_past(self.early).await?;
            }
            self.lock = Some(self.agent.next_lock());
        }
        let random = self.agent.worker.random() as usize;
        let reading = |entry: &usize| Reading::new(*entry, random.wrapping_add(*entry));
        let mut readings: Few<Reading> = step.reads.iter().map(reading).collect();
        let mut left = self.lock_and_read(step, &mut readings).await?;
        if !left.lost.is_empty() && step.is_first {
            let (entry, word) = left.lost[0];
            self.met = Some((self.entries[entry].target.addr, word));
            return Err(TxnError::Conflict(Why::Locked));
        }
        if !left.lost.is_empty() {
            self.ask_again(&mut left).await?;
        }
        if !left.missing.is_empty() {
            self.hold_backups(left.missing).await?;
        }
        if !readings.is_empty() {
            self.finish_reads(readings.into_vec()).await?;
        }
        if !left.torn.is_empty() {
            self.finish_peeks(left.torn).await?;
        }
        if left.too_new {
            self.move_snapshot().await?;
        }
        Ok(())
    }

    /// Asks for locks that others had, a few times.
    async fn ask_again(&mut self, left: &mut Left) -> Result<(), TxnError> {
        for tries in 1.. {
            for (entry, word) in &left.lost {
                self.meet(self.entries[*entry].target.addr, *word).await?;
            }
            if left.lost.is_empty() {
                return Ok(());
            }
            if !left.lost.iter().all(|(_, word)| self.may_wait(*word, tries)) {
                break;
            }
            probe!("a transaction that holds locks asks for others again");
            let start = self.agent.worker.now();
            // Whoever has the primary needs the bits that were won elsewhere.
            let mut release = Release::new(self);
            for (at, _) in &left.lost {
                release.add(self.leave.config(), self.entries[*at].target.addr);
                self.entries[*at].posted = false;
            }
            left.missing.retain(|(entry, _)| !left.lost.iter().any(|(lost, _)| lost == entry));
            release.run().await?;
            let cost = (self.agent.worker.now() - start).as_nanos() as u64;
            let pause = self.agent.worker.random_below(cost.max(100) << tries.min(3));
            self.agent.worker.sleep(Duration::from_nanos(pause)).await;
            let locks = left.lost.drain(..).map(|(at, _)| at).collect();
            let step = Step { locks, reads: Few::new(), peeks: Vec::new(), is_first: false };
            let more = self.lock_and_read(&step, &mut Few::new()).await?;
            left.lost = more.lost;
            left.missing.extend(more.missing);
            left.too_new |= more.too_new;
        }
        Err(TxnError::Conflict(Why::Locked))
    }

    /// Whether this may wait once more for a lock, after so many times.
    pub(crate) fn may_wait(&self, word: u64, waits: u32) -> bool {
        let most = match self.lock {
            Some(lock) if lock.is_before(word) => MOST_WAITS_OF_OLDER,
            _ => MOST_WAITS,
        };
        waits <= most
    }

    /// Something that was locked is newer than the snapshot. If all that was read is still so, a newer snapshot is
    /// as good as the old one; nobody has seen what is newer so far.
    async fn move_snapshot(&mut self) -> Result<(), TxnError> {
        let Some(old) = self.snapshot else { return Ok(()) };
        // What does not count is not looked at again: it is of the old snapshot, and proves nothing in the new one.
        for entry in self.entries.iter_mut().filter(|entry| !entry.locked && !entry.counts) {
            entry.forget();
            entry.counts = true;
        }
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

    /// Waits for our turns.
    async fn take_turns(&mut self, locks: &[usize]) -> Result<(), TxnError> {
        let mut ordered: Few<usize> = Few::from_slice(locks);
        ordered.sort_unstable_by_key(|entry| self.entries[*entry].target.addr);
        let mut has_others = self.entries.iter().any(|entry| entry.turn.is_some());
        for entry in ordered {
            let addr = self.entries[entry].target.addr;
            let agent = &self.agent;
            let turn = agent.session.turns.wait(&agent.worker, addr, self.age, has_others).await;
            self.entries[entry].turn = Some(turn.ok_or(TxnError::Conflict(Why::Older))?);
            has_others = true;
        }
        Ok(())
    }

    /// The round trip. Leaves the readings that are not over.
    async fn lock_and_read(
        &mut self,
        step: &Step,
        readings: &mut Few<Reading>,
    ) -> Result<Left, TxnError> {
        let (agent, queues) = (Rc::clone(&self.agent), Rc::clone(&self.queues));
        let mut round = agent.worker.round().counted(&agent.tally, EXECUTE);
        let mut posted = Posted { locks: Few::new(), reads: Few::new(), peeks: Vec::new() };
        for entry in &step.locks {
            posted.locks.push(self.ask(*entry, &mut round, &queues)?);
        }
        for reading in readings.iter() {
            let target = self.entries[reading.entry].target;
            let config = self.leave.config();
            posted.reads.push(reading.post(&agent, &queues, config, target, &mut round)?);
        }
        for target in &step.peeks {
            let replicas = replicas(self.leave.config(), target.addr)?;
            let replica = replicas[agent.worker.random() as usize % replicas.len()];
            let at = replica.base + target.addr.offset() + TS;
            let bytes = target.bytes_from_ts();
            posted.peeks.push(round.to(queues.to(replica.node)?).read(at, bytes));
        }
        step.locks.iter().for_each(|entry| self.entries[*entry].posted = true);
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

    /// Posts the lock CASes of an object, with a read behind the primary's.
    fn ask<'q>(
        &self,
        entry: usize,
        round: &mut Round<'q>,
        queues: &'q crate::queues::Queues,
    ) -> Result<AskedLock, TxnError> {
        let word = self.lock.map_or(0, Lock::to_word);
        let target = self.entries[entry].target;
        let (mut bits, mut object) = (SmallVec::new(), None);
        for replica in written(self.leave.config(), target.addr)? {
            let mut bell = round.to(queues.to(replica.node)?);
            let at = replica.base + target.addr.offset();
            if !bits.is_empty() && self.agent.has(Trap::StolenBit) {
                bell.write(at + LOCK, &[word]);
            }
            bits.push((replica, bell.cas(at + LOCK, 0, word)));
            object.get_or_insert_with(|| bell.read(at + TS, target.bytes_from_ts()));
        }
        let object = object.expect("there is a primary");
        Ok(AskedLock { entry, bits, object })
    }

    /// Which locks are ours, and which not.
    fn take_all_locked(
        &mut self,
        agent: &Agent,
        asked: &[AskedLock],
        done: &Done<'_>,
        left: &mut Left,
    ) -> Result<(), TxnError> {
        let mut outcome = Ok(());
        for lock in asked {
            let lost = |(_, bit): &&(Replica, Ticket<Word>)| done[*bit] != 0;
            let lost = lock.bits[1..].iter().filter(lost).map(|(replica, _)| *replica);
            left.missing.extend(lost.map(|replica| (lock.entry, replica)));
            let primary = lock.bits[0].1;
            let won = done[primary] == 0 || agent.has(Trap::ReadOfALostLock);
            if !won {
                probe!("a lock is lost");
                left.lost.push((lock.entry, done[primary]));
                continue;
            }
            match self.take_locked(lock.entry, &done[lock.object]) {
                Ok(too_new) => left.too_new |= too_new,
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// An object was locked, and read behind that; whether it is newer than the snapshot.
    fn take_locked(&mut self, entry: usize, words: &[u64]) -> Result<bool, TxnError> {
        let known = &self.entries[entry].version;
        let version = match Version::from_words(words) {
            Some(version) => version,
            None if self.agent.has(Trap::ReadOfALostLock) => Version::unchecked(words),
            // Nobody writes an object without its lock.
            None => return Err(TxnError::Refused("an object is damaged".into())),
        };
        if self.entries[entry].is_seen() && known.ts != version.ts && self.entries[entry].counts {
            probe!("an object was overtaken before it was locked");
            return Err(TxnError::Conflict(Why::Overtaken));
        }
        let too_new = self.snapshot.is_some_and(|_| version.ts > self.reads_until());
        if too_new {
            probe!("a lock-read is newer than the snapshot");
        }
        let entry = &mut self.entries[entry];
        entry.version = version;
        entry.locked = true;
        Ok(too_new && !self.agent.has(Trap::NewLockRead))
    }

    /// Asks for the bits of backups until they are free: whoever has them has lost the primary, or is about
    /// to release.
    async fn hold_backups(&mut self, mut missing: Vec<(usize, Replica)>) -> Result<(), TxnError> {
        let (agent, queues) = (Rc::clone(&self.agent), Rc::clone(&self.queues));
        let word = self.lock.map_or(0, Lock::to_word);
        let start = agent.worker.now();
        if agent.has(Trap::TimeBeforeAllBits) {
            return Ok(());
        }
        for tries in 0u32.. {
            if missing.is_empty() {
                break;
            }
            probe!("a backup's bit is asked for again");
            if agent.worker.now() - start > PATIENCE.max(4 * agent.lease()) {
                return Err(TxnError::TimedOut("a backup's bit"));
            }
            agent.worker.sleep(Duration::from_nanos(200 << tries.min(8))).await;
            let mut round = agent.worker.round().counted(&agent.tally, EXECUTE);
            let mut bits = Vec::with_capacity(missing.len());
            for (entry, replica) in &missing {
                let addr = self.entries[*entry].target.addr;
                let mut bell = round.to(queues.to(replica.node)?);
                if agent.has(Trap::StolenBit) {
                    bell.write(replica.base + addr.offset() + LOCK, &[word]);
                }
                bits.push(bell.cas(replica.base + addr.offset() + LOCK, 0, word));
            }
            self.trip();
            let done = round.ring().await?;
            let stolen = agent.has(Trap::StolenBit);
            let words: Vec<u64> = bits.into_iter().map(|bit| done[bit]).collect();
            drop(done);
            for ((entry, _), word) in missing.iter().zip(&words).filter(|(_, word)| **word != 0) {
                self.meet(self.entries[*entry].target.addr, *word).await?;
            }
            let mut words = words.into_iter();
            missing.retain(|_| words.next().expect("one each") != 0 && !stolen);
        }
        Ok(())
    }
}
