//! The reader at a snapshot: any replica, the lock first, then the object; older versions through `prev`.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{Done, Round, Ticket, Words, probe};
use farside_pool::Config;

use crate::agent::Agent;
use crate::object::{LOCK, TS, Target, Version};
use crate::queues::{Queues, replicas};
use crate::record::{self, Record};
use crate::txn::Txn;
use crate::words::Lock;
use crate::{EXECUTE, Trap, TxnError, Why};

/// Where a read is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) entry: usize,
    /// Which replica is asked.
    pub(crate) replica: usize,
    pub(crate) stage: Stage,
    /// Records that were not what they should be.
    mismatches: u32,
    /// How often it had to wait, and for whom.
    waits: u32,
    lock: u64,
    /// How many versions it went back.
    hops: u32,
    /// How often it was torn.
    torn: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// The object itself.
    Head,
    /// The record at an offset, which should have been left by this time.
    Old { offset: u64, left: u64 },
}

/// What one look says.
pub(crate) enum Look {
    Found(Version),
    /// Somebody is about to commit before the snapshot.
    Wait(u64),
    /// It was torn; perhaps somebody has the lock.
    Again(u64),
    Follow {
        offset: u64,
        left: u64,
    },
    /// It may have been committed before this began, and after its early snapshot.
    Doubtful,
    /// The record is another one by now.
    Mismatch,
}

/// How long a reader waits for a lock, or a few leases. Whoever held it that long is dead, and was repaired.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often in a row an object is found torn, at most; from some times on with pauses.
const MOST_TORN: u32 = 5000;
const TORN_AT_ONCE: u32 = 16;

/// How often somebody peeks at an object that is torn.
const MOST_PEEKS: u32 = 100;

/// No chain of versions is longer.
const MOST_HOPS: u32 = 1 << 16;

impl Reading {
    pub(crate) fn new(entry: usize, replica: usize) -> Self {
        Reading {
            entry,
            replica,
            stage: Stage::Head,
            mismatches: 0,
            waits: 0,
            lock: 0,
            hops: 0,
            torn: 0,
        }
    }

    /// Asks for what is to be read next: the lock before the object, or a record.
    pub(crate) fn post<'w>(
        &self,
        agent: &Agent,
        queues: &'w Queues,
        config: &Config,
        target: Target,
        round: &mut Round<'w>,
    ) -> Result<Asked, TxnError> {
        let replicas = replicas(config, target.addr)?;
        let replica = replicas[self.replica % replicas.len()];
        let queue = queues.to(replica.node)?;
        let mut bell = round.to(queue);
        let at = replica.base + target.addr.offset();
        Ok(match self.stage {
            Stage::Head if agent.has(Trap::LockReadLast) => {
                let object = bell.read(at + TS, target.bytes_from_ts());
                Asked::Apart { lock: bell.read(at + LOCK, 8), object }
            }
            Stage::Head if agent.sees_whole_heads(queue, at) => {
                Asked::Whole(bell.read(at + LOCK, target.bytes_from_lock()))
            }
            Stage::Head => {
                let lock = bell.read(at + LOCK, 8);
                Asked::Apart { lock, object: bell.read(at + TS, target.bytes_from_ts()) }
            }
            Stage::Old { offset, .. } => {
                let bytes = record::bytes(target.room) as usize;
                Asked::Record(bell.read(replica.base + offset, bytes))
            }
        })
    }
}

/// What was asked for.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    /// A lock, and behind it its object from `ts` on.
    Apart {
        lock: Ticket<Words>,
        object: Ticket<Words>,
    },
    /// An object from its lock on: both are of one moment, where lines are.
    Whole(Ticket<Words>),
    Record(Ticket<Words>),
}

impl Txn {
    /// Peeks again at what was torn: somebody was writing.
    pub(crate) async fn finish_peeks(&mut self, mut torn: Vec<Target>) -> Result<(), TxnError> {
        let (agent, queues) = (Rc::clone(&self.agent), Rc::clone(&self.queues));
        for tries in 0..MOST_PEEKS {
            if torn.is_empty() {
                return Ok(());
            }
            agent.worker.sleep(Duration::from_nanos(200 << tries.min(8))).await;
            let mut round = agent.worker.round().counted(&agent.tally, EXECUTE);
            let mut tickets = Vec::with_capacity(torn.len());
            for target in &torn {
                let replicas = replicas(self.leave.config(), target.addr)?;
                // One that is damaged may be whole elsewhere.
                let replica =
                    replicas[tries.saturating_sub(TORN_AT_ONCE) as usize % replicas.len()];
                let at = replica.base + target.addr.offset() + TS;
                let bell = &mut round.to(queues.to(replica.node)?);
                tickets.push(bell.read(at, target.bytes_from_ts()));
            }
            self.trip();
            let done = round.ring().await?;
            let mut tickets = tickets.into_iter();
            torn.retain(|target| {
                let version = Version::from_words(&done[tickets.next().expect("one each")]);
                let is_torn = version.is_none();
                self.peeked.extend(version.map(|version| (target.addr, version)));
                is_torn
            });
        }
        // Whoever was writing there may be dead: it is repaired some time.
        Err(TxnError::Conflict(Why::Locked))
    }

    /// Reads on until all are found.
    pub(crate) async fn finish_reads(
        &mut self,
        mut readings: Vec<Reading>,
    ) -> Result<(), TxnError> {
        let start = self.agent.worker.now();
        while !readings.is_empty() && !self.doubtful {
            let began = self.agent.worker.now();
            let waits = readings.iter().map(|reading| reading.waits).max().unwrap_or(0);
            if waits > 0 {
                let mut held = readings.iter().filter(|reading| reading.waits > 0);
                let may_wait = held.all(|reading| self.may_wait(reading.lock, reading.waits));
                if self.holds_locks() && !may_wait {
                    probe!("a reader that holds locks gives way");
                    if waits == 1 {
                        self.meet_all(&readings).await?;
                    }
                    return Err(TxnError::Conflict(Why::Locked));
                }
                if self.agent.worker.now() - start > PATIENCE.max(4 * self.agent.lease()) {
                    return Err(TxnError::TimedOut("a lock that is older than the snapshot"));
                }
                self.meet_all(&readings).await?;
                let pause = Duration::from_nanos(500 << waits.min(6));
                self.agent.worker.sleep(pause).await;
            }
            if readings.iter().any(|reading| reading.torn > TORN_AT_ONCE) {
                self.agent.worker.sleep(Duration::from_micros(10)).await;
            }
            let looks = self.look(&readings).await?;
            if waits > 0 {
                let waited_ns = (self.agent.worker.now() - began).as_nanos() as u64;
                self.count(|effort| effort.waited_ns += waited_ns);
            }
            let mut left = Vec::new();
            for (mut reading, look) in readings.into_iter().zip(looks) {
                if !self.take_in(&mut reading, look)? {
                    left.push(reading);
                }
            }
            readings = left;
        }
        Ok(())
    }

    /// Those who have what is waited for may be dead.
    async fn meet_all(&mut self, readings: &[Reading]) -> Result<(), TxnError> {
        for reading in readings.iter().filter(|reading| reading.waits > 0) {
            self.meet(self.entries[reading.entry].target.addr, reading.lock).await?;
        }
        Ok(())
    }

    /// One round for all that is still to be read.
    async fn look(&self, readings: &[Reading]) -> Result<Vec<Look>, TxnError> {
        let agent = &self.agent;
        let mut round = agent.worker.round().counted(&agent.tally, EXECUTE);
        let mut tickets = Vec::with_capacity(readings.len());
        for reading in readings {
            let target = self.entries[reading.entry].target;
            let config = self.leave.config();
            tickets.push(reading.post(agent, &self.queues, config, target, &mut round)?);
        }
        self.trip();
        let done = round.ring().await?;
        let looks =
            readings.iter().zip(tickets).map(|(reading, asked)| self.judge(reading, asked, &done));
        Ok(looks.collect())
    }

    /// What a look that was asked for says.
    pub(crate) fn judge(&self, reading: &Reading, asked: Asked, done: &Done<'_>) -> Look {
        match asked {
            Asked::Record(record) => self.judge_record(reading, &done[record]),
            Asked::Apart { lock, object } => self.judge_head(done[lock][0], &done[object]),
            Asked::Whole(object) => self.judge_head(done[object][0], &done[object][1..]),
        }
    }

    fn judge_head(&self, lock: u64, words: &[u64]) -> Look {
        let snapshot = self.reads_until();
        let version = match Version::from_words(words) {
            Some(version) => version,
            None if self.agent.has(Trap::TornIsFine) => Version::unchecked(words),
            None => {
                probe!("a reader finds a torn object");
                return Look::Again(lock);
            }
        };
        if self.is_doubtful(&version, lock) {
            return Look::Doubtful;
        }
        let may_commit_before = lock != 0 && Lock::time_of(lock) < snapshot;
        if may_commit_before && version.ts <= snapshot && !self.agent.has(Trap::LockedIsReadable) {
            probe!("a reader waits for a lock that is older than its snapshot");
            return Look::Wait(lock);
        }
        if version.ts <= snapshot {
            return Look::Found(version);
        }
        if version.prev == 0 {
            return Look::Mismatch;
        }
        Look::Follow { offset: version.prev, left: version.ts }
    }

    fn judge_record(&self, reading: &Reading, words: &[u64]) -> Look {
        let snapshot = self.reads_until();
        let object = self.entries[reading.entry].target.addr;
        let Stage::Old { offset, left } = reading.stage else { return Look::Again(0) };
        let found = Record::from_words(offset, words);
        let trusting = self.agent.has(Trap::EarlyReuse);
        let named = |record: &Record| record.object == object && record.time == left || trusting;
        match found.filter(|(record, _)| named(record)) {
            None => Look::Mismatch,
            Some((_, old)) if self.is_doubtful(&old, 0) => Look::Doubtful,
            Some((_, old)) if old.ts <= snapshot => Look::Found(old),
            Some((_, old)) if old.prev == 0 => Look::Mismatch,
            Some((_, old)) => Look::Follow { offset: old.prev, left: old.ts },
        }
    }

    /// Whether a row that is newer than the snapshot is a reason for a later one: who writes has no use for what was there before, and
    /// nothing was seen that has to be of the same moment.
    fn may_begin_later(&self) -> bool {
        self.beginnings > 0 && self.is_opaque() && self.needs_the_newest()
    }

    /// Whether a reading is over.
    pub(crate) fn take_in(&mut self, reading: &mut Reading, look: Look) -> Result<bool, TxnError> {
        match look {
            Look::Found(version) => {
                self.entries[reading.entry].version = version;
                return Ok(true);
            }
            Look::Doubtful => self.doubtful = true,
            Look::Wait(lock) => {
                self.count(|effort| effort.waits += 1);
                reading.waits += 1;
                reading.lock = lock;
                reading.stage = Stage::Head;
            }
            Look::Again(lock) => {
                reading.stage = Stage::Head;
                reading.torn += 1;
                if lock != 0 && reading.torn > TORN_AT_ONCE {
                    // Whoever writes there takes long, or is dead.
                    reading.waits += 1;
                    reading.lock = lock;
                } else if reading.torn > MOST_TORN {
                    // Nobody writes for so long: there is no object any more.
                    return Err(TxnError::TooOld);
                } else if reading.torn > TORN_AT_ONCE {
                    probe!("a reader looks elsewhere for an object that is damaged");
                    reading.replica += 1;
                }
            }
            Look::Follow { left, .. } if self.may_begin_later() => {
                probe!("a writer that has seen nothing yet begins with a later snapshot");
                (self.late, self.doubtful) = (self.late.max(Some(left)), true);
            }
            Look::Follow { .. } if self.needs_the_newest() => {
                probe!("a writer does not follow to an older version");
                return Err(TxnError::Conflict(Why::Changed));
            }
            // What was left for undo may still be there, or not.
            Look::Follow { .. } if !self.agent.keeps_old_versions() => {
                return Err(TxnError::TooOld);
            }
            Look::Follow { offset, left } => {
                probe!("a reader follows to an older version");
                self.count(|effort| effort.hops += 1);
                reading.hops += 1;
                if reading.hops > MOST_HOPS {
                    return Err(TxnError::TooOld);
                }
                reading.stage = Stage::Old { offset, left };
            }
            Look::Mismatch => {
                probe!("a reader finds another record than it looked for");
                reading.mismatches += 1;
                reading.stage = Stage::Head;
                // Once more where it was, and then elsewhere.
                if reading.mismatches > 1 {
                    reading.replica += 1;
                }
                let target = self.entries[reading.entry].target.addr;
                let replicas = replicas(self.leave.config(), target)?.len() as u32;
                if reading.mismatches > replicas + 1 {
                    return Err(TxnError::TooOld);
                }
            }
        }
        Ok(false)
    }
}
