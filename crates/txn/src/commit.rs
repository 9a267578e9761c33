//! Commit: a time, a second look at what was only read, records and bodies to all replicas at once, and then
//! the locks are given back.

use std::rc::Rc;

use farside_fabric::probe;
use farside_pool::Replica;

use crate::object::{LOCK, TS, Version};
use crate::record::{self, Record};
use crate::ring::Released;
use crate::txn::Txn;
use crate::{INSTALL, Trap, TxnError, VALIDATE, Why, horizon};

/// What goes to one replica for one object: a record, and then the object from `ts` on.
struct Write {
    replica: Replica,
    record_at: u64,
    record: Rc<[u64]>,
    object_at: u64,
    object: Rc<[u64]>,
}

impl Txn {
    /// Commits; the commit time, if anything was written.
    pub async fn commit(mut self) -> Result<Option<u64>, TxnError> {
        if self.entries.iter().all(|entry| entry.new.is_none()) {
            return Ok(None);
        }
        let written = |entry: &crate::txn::Entry| entry.new.is_some() && !entry.locked;
        let late: Vec<usize> =
            (0..self.entries.len()).filter(|at| written(&self.entries[*at])).collect();
        self.step(&late, &[]).await?;
        // All bits are held on all replicas of a configuration that counts.
        if !self.permit.is_valid(self.agent.worker.now()) {
            probe!("the regions moved before a commit");
            return Err(TxnError::Moved);
        }
        let lock = self.lock.ok_or_else(|| TxnError::Refused("nothing is locked".into()))?;
        let time = match self.agent.has(Trap::TimeOfTheLock) {
            true => lock.time(),
            false => self.agent.upper().max(lock.time() + 1),
        };
        if self.has_read_only() {
            if !self.agent.has(Trap::NoUncertaintyWait) {
                self.agent.wait_past(time).await;
            }
            self.validate().await?;
        }
        let released = Released::default();
        let prepared = self.prepare(time, &released).await;
        let writes = prepared.inspect_err(|_| released.set(true))?;
        self.install(&writes).await?;
        if !self.agent.has(Trap::NoUncertaintyWait) {
            self.agent.wait_past(time).await;
        }
        if let Some(release) = self.take_locks() {
            let release = async move {
                if release.run().await {
                    released.set(true);
                }
            };
            let worker = self.agent.worker.clone();
            worker.spawn(release).detach();
        }
        Ok(Some(time))
    }

    /// Looks again at what was only read, at any replica: not locked, and unchanged.
    async fn validate(&self) -> Result<(), TxnError> {
        let agent = &self.agent;
        let mut round = agent.worker.round().counted(&agent.tally, VALIDATE);
        let mut looks = Vec::new();
        let random = agent.worker.random() as usize;
        for (at, entry) in self.entries.iter().enumerate().filter(|(_, entry)| !entry.locked) {
            let addr = entry.target.addr;
            let replicas = agent.replicas(self.permit.config(), addr)?;
            let replica = replicas[random.wrapping_add(at) % replicas.len()];
            let mut bell = round.to(agent.queue(replica.node)?);
            let lock = bell.read(replica.base + addr.offset() + LOCK, 8);
            let ts = bell.read(replica.base + addr.offset() + TS, 8);
            looks.push((lock, ts, entry.version.ts));
        }
        let done = round.ring().await?;
        for (lock, ts, known) in looks {
            let locked = done[lock][0] != 0 && !agent.has(Trap::ValidationIgnoresLocks);
            if locked {
                probe!("an object that was only read is locked");
                return Err(TxnError::Conflict(Why::Locked));
            }
            if done[ts][0] != known {
                probe!("an object that was only read has changed");
                return Err(TxnError::Conflict(Why::Changed));
            }
        }
        Ok(())
    }

    /// Records with their places, and bodies.
    async fn prepare(&mut self, time: u64, released: &Released) -> Result<Vec<Write>, TxnError> {
        let lock = self.lock.ok_or_else(|| TxnError::Refused("nothing is locked".into()))?;
        let objects = self.entries.iter().filter(|entry| entry.new.is_some()).count() as u64;
        let mut writes = Vec::new();
        for at in 0..self.entries.len() {
            let target = self.entries[at].target;
            let Some(new) = self.entries[at].new.take() else { continue };
            let old = self.entries[at].version.clone();
            let prev = self.take_slot(at, time, released).await?;
            let record = Record { id: lock.to_word(), objects, object: target.addr, time, old };
            let record: Rc<[u64]> = record.to_words().into();
            let object: Rc<[u64]> = Version { ts: time, prev, ..new }.to_words().into();
            for replica in self.agent.replicas(self.permit.config(), target.addr)? {
                writes.push(Write {
                    replica: *replica,
                    record_at: replica.base + prev,
                    record: Rc::clone(&record),
                    object_at: replica.base + target.addr.offset() + TS,
                    object: Rc::clone(&object),
                });
            }
        }
        Ok(writes)
    }

    /// A place for a record. If there is none, the transaction gives way: whoever reads the snapshot that
    /// keeps old records may be waiting for one of its locks.
    async fn take_slot(&self, at: usize, time: u64, released: &Released) -> Result<u64, TxnError> {
        let target = self.entries[at].target;
        let (region, bytes) = (target.addr.region(), record::bytes(target.room));
        for tries in 0..2 {
            let taken = self.agent.with_ring(region, |ring| {
                ring.is_large_enough(bytes).then(|| ring.take(bytes, time, released))
            })?;
            match taken {
                None => return Err(TxnError::Refused("an object is larger than the ring".into())),
                Some(Some(place)) => return Ok(place),
                Some(None) if tries == 0 => horizon::look(&self.agent).await?,
                Some(None) => {}
            }
        }
        probe!("a transaction gives way for want of room in the record ring");
        Err(TxnError::RingFull)
    }

    /// Records and bodies to all replicas at once. After this is posted there is no way back: after an error
    /// the same bytes go to the same places.
    async fn install(&self, writes: &[Write]) -> Result<(), TxnError> {
        let agent = &self.agent;
        for _ in 0..100 {
            let mut round = agent.worker.round().counted(&agent.tally, INSTALL);
            for write in writes {
                let mut bell = round.to(agent.queue(write.replica.node)?);
                bell.write(write.record_at, &write.record);
                bell.write(write.object_at, &write.object);
                if agent.has(Trap::EarlyRelease) {
                    bell.write(write.object_at - TS + LOCK, &[0]);
                }
            }
            let Err(error) = round.ring().await else { return Ok(()) };
            probe!("an install is posted again");
            for write in writes {
                let queue = agent.queue(write.replica.node)?;
                if queue.is_broken() && queue.reconnect().await.is_err() {
                    return Err(TxnError::Pending(error.to_string()));
                }
            }
        }
        Err(TxnError::Pending("an install fails again and again".into()))
    }
}
