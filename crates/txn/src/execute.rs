//! Execute: lock what will be written on every replica, read behind the lock at the primary
//! (`ford.txt` §4.2), and read everything else at the snapshot; all in one round trip.

use std::time::Duration;

use farside_fabric::{Ticket, Word, Words, probe};

use crate::object::{LOCK, TS, Version};
use crate::reader::Reading;
use crate::txn::{Access, Entry, Txn, UNSEEN};
use crate::{EXECUTE, Trap, TxnError, Why};

/// How long to wait for the bit of a backup whose primary is ours: its holder has lost, and gives way.
const PATIENCE: Duration = Duration::from_secs(5);

/// A lock that was asked for: its CASes, the primary's first, and the read behind that.
struct AskedLock {
    entry: usize,
    bits: Vec<Ticket<Word>>,
    object: Ticket<Words>,
}

impl Txn {
    /// Sees some objects, which do not depend on each other, in one step. After an error the transaction
    /// cannot go on.
    pub async fn access(&mut self, wants: &[Access]) -> Result<(), TxnError> {
        let (mut locks, mut reads) = (Vec::new(), Vec::new());
        for want in wants {
            let known = self.find(want.target);
            let entry = known.unwrap_or_else(|| {
                self.entries.push(Entry::new(want.target));
                self.entries.len() - 1
            });
            let is_seen = self.entries[entry].version.ts != UNSEEN;
            if want.update && !self.entries[entry].locked {
                locks.push(entry);
            } else if !want.update && !is_seen {
                reads.push(entry);
            }
        }
        locks.sort_unstable();
        locks.dedup();
        reads.retain(|entry| !locks.contains(entry));
        reads.sort_unstable();
        reads.dedup();
        self.step(&locks, &reads).await
    }

    /// Locks some entries, and reads others.
    pub(crate) async fn step(&mut self, locks: &[usize], reads: &[usize]) -> Result<(), TxnError> {
        if locks.is_empty() && reads.is_empty() {
            return Ok(());
        }
        self.take_turns(locks).await?;
        if !reads.is_empty() && self.snapshot.is_none() {
            let snapshot = self.agent.enter().await?;
            self.snapshot = Some(snapshot);
            self.agent.wait_past(snapshot).await;
        }
        if !locks.is_empty() && self.lock.is_none() {
            self.lock = Some(self.agent.next_lock());
        }
        let random = self.agent.worker.random() as usize;
        let readings: Vec<Reading> =
            reads.iter().map(|entry| Reading::new(*entry, random.wrapping_add(*entry))).collect();
        let (missing, unread) = self.lock_and_read(locks, &readings).await?;
        self.hold_backups(missing).await?;
        self.finish_reads(unread).await
    }

    /// Waits for our turns, in the order of addresses: so no two wait for each other within a step.
    async fn take_turns(&mut self, locks: &[usize]) -> Result<(), TxnError> {
        let mut ordered: Vec<usize> = locks.to_vec();
        ordered.sort_unstable_by_key(|entry| self.entries[*entry].target.addr);
        let has_others = self.entries.iter().any(|entry| entry.turn.is_some());
        for entry in ordered {
            let addr = self.entries[entry].target.addr;
            let agent = &self.agent;
            let turn = agent.turns.wait(&agent.worker, addr, has_others).await;
            self.entries[entry].turn = Some(turn.ok_or(TxnError::Conflict(Why::Locked))?);
        }
        Ok(())
    }

    /// The round trip. Returns the bits of backups that others have, and what is not read yet.
    async fn lock_and_read(
        &mut self,
        locks: &[usize],
        readings: &[Reading],
    ) -> Result<(Vec<(usize, usize)>, Vec<Reading>), TxnError> {
        let agent = std::rc::Rc::clone(&self.agent);
        let word = self.lock.map_or(0, crate::words::Lock::to_word);
        let mut round = agent.worker.round().counted(&agent.tally, EXECUTE);
        let mut asked = Vec::with_capacity(locks.len());
        for entry in locks {
            let target = self.entries[*entry].target;
            let replicas = agent.replicas(self.permit.config(), target.addr)?;
            let (mut bits, mut object) = (Vec::with_capacity(replicas.len()), None);
            for replica in replicas {
                let mut bell = round.to(agent.queue(replica.node)?);
                let at = replica.base + target.addr.offset();
                bits.push(bell.cas(at + LOCK, 0, word));
                object.get_or_insert_with(|| bell.read(at + TS, target.bytes_from_ts()));
            }
            let object = object.expect("there is a primary");
            asked.push(AskedLock { entry: *entry, bits, object });
        }
        let mut tickets = Vec::with_capacity(readings.len());
        for reading in readings {
            let target = self.entries[reading.entry].target;
            tickets.push(reading.post(&agent, self.permit.config(), target, &mut round)?);
        }
        locks.iter().for_each(|entry| self.entries[*entry].posted = true);
        let done = round.ring().await?;
        let mut unread = Vec::new();
        for (mut reading, asked) in readings.iter().copied().zip(tickets) {
            let look = self.judge(&reading, asked, &done);
            if !self.take_in(&mut reading, look)? {
                unread.push(reading);
            }
        }
        let mut missing = Vec::new();
        let mut outcome = Ok(());
        for lock in asked {
            let lost = |(_, bit): &(usize, &Ticket<Word>)| done[**bit] != 0;
            missing.extend(
                lock.bits.iter().enumerate().skip(1).filter(lost).map(|(at, _)| (lock.entry, at)),
            );
            let won = done[lock.bits[0]] == 0 || agent.has(Trap::ReadOfALostLock);
            let locked = match won {
                true => self.take_locked(lock.entry, &done[lock.object]),
                false => {
                    probe!("a lock is lost");
                    Err(TxnError::Conflict(Why::Locked))
                }
            };
            outcome = outcome.and(locked);
        }
        outcome.map(|()| (missing, unread))
    }

    /// An object was locked, and read behind that.
    fn take_locked(&mut self, entry: usize, words: &[u64]) -> Result<(), TxnError> {
        let known = &self.entries[entry].version;
        let version = match Version::from_words(words) {
            Some(version) => version,
            None if self.agent.has(Trap::ReadOfALostLock) => Version::unchecked(words),
            // Nobody writes an object without its lock.
            None => return Err(TxnError::Refused("an object is damaged".into())),
        };
        if known.ts != UNSEEN && known.ts != version.ts {
            probe!("an object was overtaken before it was locked");
            return Err(TxnError::Conflict(Why::Overtaken));
        }
        let too_new = self.snapshot.is_some_and(|snapshot| version.ts > snapshot);
        if too_new && !self.agent.has(Trap::NewLockRead) {
            probe!("a lock-read is newer than the snapshot");
            return Err(TxnError::Conflict(Why::TooNew));
        }
        let entry = &mut self.entries[entry];
        entry.version = version;
        entry.locked = true;
        Ok(())
    }

    /// Asks for the bits of backups until they are free: whoever has them has lost the primary, or is about
    /// to release.
    async fn hold_backups(&mut self, mut missing: Vec<(usize, usize)>) -> Result<(), TxnError> {
        let agent = std::rc::Rc::clone(&self.agent);
        let word = self.lock.map_or(0, crate::words::Lock::to_word);
        let start = agent.worker.now();
        if agent.has(Trap::TimeBeforeAllBits) {
            return Ok(());
        }
        for tries in 0u32.. {
            if missing.is_empty() {
                break;
            }
            probe!("a backup's bit is asked for again");
            if agent.worker.now() - start > PATIENCE {
                return Err(TxnError::TimedOut("a backup's bit"));
            }
            agent.worker.sleep(Duration::from_nanos(200 << tries.min(8))).await;
            let mut round = agent.worker.round().counted(&agent.tally, EXECUTE);
            let mut bits = Vec::with_capacity(missing.len());
            for (entry, at) in &missing {
                let addr = self.entries[*entry].target.addr;
                let replica = agent.replicas(self.permit.config(), addr)?[*at];
                let mut bell = round.to(agent.queue(replica.node)?);
                if agent.has(Trap::StolenBit) {
                    bell.write(replica.base + addr.offset() + LOCK, &[word]);
                }
                bits.push(bell.cas(replica.base + addr.offset() + LOCK, 0, word));
            }
            let done = round.ring().await?;
            let stolen = agent.has(Trap::StolenBit);
            let mut bits = bits.into_iter();
            missing.retain(|_| done[bits.next().expect("one each")] != 0 && !stolen);
        }
        Ok(())
    }
}
