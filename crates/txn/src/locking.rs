//! Locks: on every replica of an object, in one round trip; with a look at the object behind the primary's, as the
//! protocol wants it.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{Done, Round, Ticket, Word, Words, probe};
use farside_pool::Replica;
use smallvec::SmallVec;

use crate::agent::Agent;
use crate::execute::{Few, Left, Step};
use crate::far_versions::FarVersions;
use crate::object::{LOCK, TS, Version};
use crate::protocol::{Conflicts, Locking};
use crate::queues::{Queues, written};
use crate::release::Release;
use crate::txn::Txn;
use crate::words::Lock;
use crate::{EXECUTE, Trap, TxnError, Why};

/// How long to wait for the bit of a backup whose primary is ours, or a few leases: its holder has lost, and gives way, or
/// is dead and is repaired.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often one that has something to lose asks for locks that others have, or looks at what they hold. It holds some
/// itself, and two could wait for each other: it waits longer only for those that are younger than itself.
const MOST_WAITS: u32 = 3;
const MOST_WAITS_OF_OLDER: u32 = 100;

/// How often a transaction waits for one turn without keeping others.
const MOST_ROUNDS: u32 = 4;

/// A lock that was asked for: its CASes, the primary's first, and the look behind that.
pub(crate) struct AskedLock {
    entry: usize,
    bits: SmallVec<[(Replica, Ticket<Word>); 5]>,
    behind: Behind,
    /// With a mark in the version cache of a node.
    marks: bool,
}

/// What is behind the lock of a primary.
#[derive(Clone, Copy)]
enum Behind {
    /// All of the object.
    Object(Ticket<Words>),
    /// The time of its version: the object was read before.
    Time(Ticket<Words>),
    /// Nothing: versions are looked at when all locks are held.
    Nothing,
}

impl Txn {
    /// Asks for locks that others had, a few times.
    pub(crate) async fn ask_again(&mut self, left: &mut Left) -> Result<(), TxnError> {
        let mut start = None;
        for tries in 1.. {
            for (entry, word) in &left.lost {
                self.meet(self.entries[*entry].target.addr, *word).await?;
            }
            if left.lost.is_empty() {
                self.wary = false;
                return Ok(());
            }
            if !left.lost.iter().all(|(_, word)| self.may_wait(*word, tries)) {
                break;
            }
            probe!("a transaction that holds locks asks for others again");
            let since = start.unwrap_or_else(|| self.agent.worker.now());
            // Whoever has the primary needs the bits that were won elsewhere.
            let mut release = Release::new(self);
            for (at, _) in &left.lost {
                if std::mem::take(&mut self.entries[*at].posted) {
                    release.add(self.leave.config(), self.entries[*at].target.addr);
                }
            }
            left.missing.retain(|(entry, _)| !left.lost.iter().any(|(lost, _)| lost == entry));
            release.run().await?;
            let cost = (self.agent.worker.now() - since).as_nanos() as u64;
            let pause = self.agent.worker.random_below(cost.max(100) << tries.min(3));
            self.agent.worker.sleep(Duration::from_nanos(pause)).await;
            let locks = left.lost.drain(..).map(|(at, _)| at).collect();
            let step = Step { locks, reads: Few::new(), peeks: Vec::new(), is_first: false };
            (self.wary, start) = (true, Some(self.agent.worker.now()));
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
            _ if self.protocol().conflicts == Conflicts::Abort => 0,
            Some(lock) if lock.is_before(word) => MOST_WAITS_OF_OLDER,
            _ => MOST_WAITS,
        };
        waits <= most
    }

    /// Waits for our turns.
    pub(crate) async fn take_turns(&mut self, locks: &[usize]) -> Result<(), TxnError> {
        if self.protocol().conflicts != Conflicts::Queue {
            return Ok(());
        }
        if self.entries.iter().all(|entry| entry.turn.is_none()) {
            // All or none: nobody waits for what this one has, while it waits itself.
            for _ in 0..MOST_ROUNDS {
                let Some(taken) = self.take_free_turns(locks) else { return Ok(()) };
                locks.iter().for_each(|entry| self.entries[*entry].turn = None);
                let (agent, addr) = (Rc::clone(&self.agent), self.entries[taken].target.addr);
                let turn = agent.turns.wait(&agent.worker, addr, self.age, false).await;
                self.entries[taken].turn = Some(turn.ok_or(TxnError::Conflict(Why::Older))?);
            }
        }
        let mut ordered: Few<usize> = Few::from_slice(locks);
        ordered.retain(|entry| self.entries[*entry].turn.is_none());
        ordered.sort_unstable_by_key(|entry| self.entries[*entry].target.addr);
        let mut has_others = self.entries.iter().any(|entry| entry.turn.is_some());
        for entry in ordered {
            let addr = self.entries[entry].target.addr;
            let agent = &self.agent;
            let turn = agent.turns.wait(&agent.worker, addr, self.age, has_others).await;
            self.entries[entry].turn = Some(turn.ok_or(TxnError::Conflict(Why::Older))?);
            has_others = true;
        }
        Ok(())
    }

    /// Takes turns that nobody has, until it finds one that somebody has: which.
    fn take_free_turns(&mut self, locks: &[usize]) -> Option<usize> {
        let turns = &self.agent.turns;
        locks.iter().copied().find(|at| {
            let entry = &mut self.entries[*at];
            if entry.turn.is_none() {
                entry.turn = turns.take(entry.target.addr, self.age);
            }
            entry.turn.is_none()
        })
    }

    /// Posts the lock CASes of an object, with a look behind the primary's.
    pub(crate) fn ask<'q>(
        &self,
        entry: usize,
        round: &mut Round<'q>,
        queues: &'q Queues,
        versions: Option<FarVersions<'q>>,
    ) -> Result<AskedLock, TxnError> {
        let word = self.lock.map_or(0, Lock::to_word);
        let (target, seen) = (self.entries[entry].target, self.entries[entry].is_seen());
        let (mut bits, mut behind) = (SmallVec::new(), None);
        let most = if self.wary { 1 } else { usize::MAX };
        for replica in written(self.leave.config(), target.addr)?.take(most) {
            let mut bell = round.to(queues.to(replica.node)?);
            let at = replica.base + target.addr.offset();
            if !bits.is_empty() && self.agent.has(Trap::StolenBit) {
                bell.write(at + LOCK, &[word]);
            }
            bits.push((replica, bell.cas(at + LOCK, 0, word)));
            behind.get_or_insert_with(|| match self.protocol().locking {
                Locking::WithValidation if seen => Behind::Time(bell.read(at + TS, 8)),
                Locking::BeforeValidation if seen => Behind::Nothing,
                _ => Behind::Object(bell.read(at + TS, target.bytes_from_ts())),
            });
        }
        let behind = behind.expect("there is a primary");
        let versions = versions.filter(|_| !self.entries[entry].marked);
        if let Some(versions) = &versions {
            versions.mark(target.addr, round);
        }
        Ok(AskedLock { entry, bits, behind, marks: versions.is_some() })
    }

    /// Which locks are ours, and which not.
    pub(crate) fn take_all_locked(
        &mut self,
        agent: &Agent,
        asked: &[AskedLock],
        done: &Done<'_>,
        left: &mut Left,
    ) -> Result<(), TxnError> {
        let mut outcome = Ok(());
        for lock in asked {
            self.entries[lock.entry].marked |= lock.marks;
            let lost = |(_, bit): &&(Replica, Ticket<Word>)| done[*bit] != 0;
            let lost = lock.bits[1..].iter().filter(lost).map(|(replica, _)| *replica);
            left.missing.extend(lost.map(|replica| (lock.entry, replica)));
            let primary = lock.bits[0].1;
            let won = done[primary] == 0 || agent.has(Trap::ReadOfALostLock);
            if !won {
                probe!("a lock is lost");
                left.lost.push((lock.entry, done[primary]));
                // Nothing is to be taken back where nothing else was asked for.
                self.entries[lock.entry].posted = !self.wary;
                continue;
            }
            if self.wary {
                let addr = self.entries[lock.entry].target.addr;
                let backups = written(self.leave.config(), addr)?.skip(1);
                left.missing.extend(backups.map(|replica| (lock.entry, replica)));
            }
            let taken = match lock.behind {
                Behind::Object(object) => self.take_locked(lock.entry, &done[object]),
                Behind::Time(time) => self.take_proved(lock.entry, done[time][0]).map(|()| false),
                Behind::Nothing => {
                    let entry = &mut self.entries[lock.entry];
                    (entry.locked, entry.unproved) = (true, true);
                    Ok(false)
                }
            };
            match taken {
                Ok(too_new) => left.too_new |= too_new,
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// An object was locked that was read before, and its version was looked at behind that.
    fn take_proved(&mut self, entry: usize, time: u64) -> Result<(), TxnError> {
        let entry = &mut self.entries[entry];
        if entry.version.ts != time {
            probe!("an object was overtaken before it was locked");
            return Err(TxnError::Conflict(Why::Overtaken));
        }
        entry.locked = true;
        Ok(())
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
    pub(crate) async fn hold_backups(
        &mut self,
        mut missing: Vec<(usize, Replica)>,
    ) -> Result<(), TxnError> {
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
