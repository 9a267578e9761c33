//! A transaction: what it has read, what it holds, and what it will write.

use std::rc::Rc;

use farside_fabric::{Worker, probe};
use farside_pool::{Permit, Replica};

use crate::agent::Agent;
use crate::object::{LOCK, Target, Version};
use crate::turns::Turn;
use crate::words::Lock;
use crate::{RELEASE, Trap, TxnError};

/// An object that a transaction wants to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Which.
    pub target: Target,
    /// It will be written: lock it on the way.
    pub update: bool,
}

/// What a transaction knows of an object.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) target: Target,
    /// As it was read.
    pub(crate) version: Version,
    /// It is locked, on all replicas.
    pub(crate) locked: bool,
    /// Lock CASes were posted: to be taken back.
    pub(crate) posted: bool,
    /// Our turn among those of this process who want to lock it.
    pub(crate) turn: Option<Turn>,
    /// What will be written.
    pub(crate) new: Option<Version>,
}

impl Entry {
    /// Not seen yet.
    pub(crate) fn new(target: Target) -> Self {
        let version = Version { ts: UNSEEN, ..Version::default() };
        Entry { target, version, locked: false, posted: false, turn: None, new: None }
    }
}

/// A transaction. Dropping it aborts it.
#[derive(Debug)]
pub struct Txn {
    pub(crate) agent: Rc<Agent>,
    pub(crate) permit: Permit,
    /// The snapshot that is read, once something is only read.
    pub(crate) snapshot: Option<u64>,
    /// Its name, once it has locked something.
    pub(crate) lock: Option<Lock>,
    pub(crate) entries: Vec<Entry>,
}

impl Txn {
    pub(crate) fn new(agent: Rc<Agent>, permit: Permit) -> Self {
        Txn { agent, permit, snapshot: None, lock: None, entries: Vec::new() }
    }

    pub(crate) fn find(&self, target: Target) -> Option<usize> {
        self.entries.iter().position(|entry| entry.target.addr == target.addr)
    }

    /// What is in an object that was accessed, own writes included; `None` if it was not accessed.
    pub fn see(&self, target: Target) -> Option<&Version> {
        let entry = &self.entries[self.find(target)?];
        Some(entry.new.as_ref().unwrap_or(&entry.version))
    }

    /// The version that was read, own writes aside.
    pub fn read_version(&self, target: Target) -> Option<&Version> {
        Some(&self.entries[self.find(target)?].version)
    }

    /// Writes an object, or with `None` leaves nothing there, when this commits. One that was not accessed for
    /// update is locked then.
    pub fn write(&mut self, target: Target, body: Option<&[u8]>) -> Result<(), TxnError> {
        let bytes = body.map_or(0, <[u8]>::len);
        if bytes > target.room as usize * 8 {
            let room = target.room * 8;
            return Err(TxnError::Refused(format!(
                "{bytes} bytes, where there is room for {room}"
            )));
        }
        let new = Some(Version::of(body));
        match self.find(target) {
            Some(known) => self.entries[known].new = new,
            None => self.entries.push(Entry { new, ..Entry::new(target) }),
        }
        Ok(())
    }

    /// Whether something was only read.
    pub(crate) fn has_read_only(&self) -> bool {
        self.entries.iter().any(|entry| !entry.locked && entry.version.ts != UNSEEN)
    }

    pub(crate) fn holds_locks(&self) -> bool {
        self.entries.iter().any(|entry| entry.posted)
    }

    /// Ends it without a trace.
    pub async fn abort(mut self) {
        if let Some(release) = self.take_locks() {
            release.run().await;
        }
    }

    /// All locks that were posted, to be given back; `None` if there are none.
    pub(crate) fn take_locks(&mut self) -> Option<Release> {
        let posted: Vec<_> = self.entries.iter_mut().filter(|entry| entry.posted).collect();
        if posted.is_empty() {
            return None;
        }
        let config = self.permit.config();
        let (mut places, mut turns) = (Vec::new(), Vec::new());
        for entry in posted {
            entry.posted = false;
            turns.extend(entry.turn.take());
            let addr = entry.target.addr;
            let replicas = self.agent.replicas(config, addr).unwrap_or_default();
            places.extend(replicas.iter().map(|replica| (*replica, addr.offset())));
        }
        Some(Release {
            agent: Rc::clone(&self.agent),
            word: self.lock.map_or(0, Lock::to_word),
            places,
            _turns: turns,
        })
    }
}

/// The time of an object that was not read.
pub(crate) const UNSEEN: u64 = u64::MAX;

impl Drop for Txn {
    fn drop(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.agent.leave(snapshot);
        }
        if let Some(release) = self.take_locks() {
            probe!("a transaction is dropped with locks");
            let worker: Worker = self.agent.worker.clone();
            worker.spawn(release.run_detached()).detach();
        }
    }
}

/// Locks to be given back.
pub(crate) struct Release {
    agent: Rc<Agent>,
    word: u64,
    places: Vec<(Replica, u64)>,
    /// Handed over when the locks are free.
    _turns: Vec<Turn>,
}

impl Release {
    async fn run_detached(self) {
        self.run().await;
    }

    /// Gives them back: each only if it is still ours. Again after an error, in new queues.
    pub(crate) async fn run(&self) -> bool {
        for _ in 0..100 {
            match self.ring().await {
                Ok(()) => return true,
                Err(TxnError::Fabric(_)) => {
                    probe!("a release is posted again");
                    for (replica, _) in &self.places {
                        let Ok(queue) = self.agent.queue(replica.node) else { continue };
                        if queue.is_broken() {
                            let _ = queue.reconnect().await;
                        }
                    }
                }
                Err(_) => return false,
            }
        }
        false
    }

    async fn ring(&self) -> Result<(), TxnError> {
        let mut round = self.agent.worker.round().counted(&self.agent.tally, RELEASE);
        for (replica, offset) in &self.places {
            let mut bell = round.to(self.agent.queue(replica.node)?);
            let at = replica.base + offset + LOCK;
            if self.agent.has(Trap::AbortClearsAll) {
                bell.write(at, &[0]);
            } else {
                bell.cas(at, self.word, 0);
            }
        }
        round.ring().await?;
        Ok(())
    }
}
