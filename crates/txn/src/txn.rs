//! A transaction: what it has read, what it holds, and what it will write.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use farside_fabric::probe;
use farside_pool::{Addr, Leave};

use crate::agent::Agent;
use crate::blob::NewBlob;
use crate::entry::{Entry, UNSEEN};
use crate::holding::Held;
use crate::log::Logged;
use crate::object::{Target, Version};
use crate::protocol::{Conflicts, Locking, Protocol, Undo};
use crate::queues::Queues;
use crate::words::Lock;
use crate::{Level, TxnError};

/// What a transaction wants with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// As it is in the snapshot.
    Read,
    /// Locked, for it will be written.
    Lock,
    /// Locked, and a place that was just allocated: nothing was there.
    Fresh,
    /// As it is now, and perhaps not for long: a hint, which proves nothing.
    Peek,
}

/// An object that a transaction wants to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Which.
    pub target: Target,
    /// How.
    pub mode: Mode,
}

/// What transactions took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effort {
    /// Round trips that were waited for.
    pub round_trips: u64,
    /// How often a reader found a lock that was older than its snapshot.
    pub waits: u64,
    /// How often a reader went back to an older version.
    pub hops: u64,
    /// For how many nanoseconds readers waited for locks.
    pub waited_ns: u64,
}

/// A transaction. Dropping it aborts it.
#[derive(Debug)]
pub struct Txn {
    pub(crate) agent: Rc<Agent>,
    pub(crate) leave: Leave,
    pub(crate) queues: Rc<Queues>,
    /// Its age, among the transactions of its process.
    pub(crate) age: u64,
    /// How it goes through its phases.
    protocol: Protocol,
    /// What it is promised.
    level: Level,
    /// It will probably write something.
    will_write: bool,
    /// Addresses that were learned before are not to be used.
    floor: u64,
    /// The snapshot that is read, once something is only read.
    pub(crate) snapshot: Option<u64>,
    /// That is an early one: whatever is later than this was not committed before it began.
    pub(crate) late: Option<u64>,
    /// Something was found that may be of between.
    pub(crate) doubtful: bool,
    /// How often it may still begin to read with a later snapshot: nothing was seen before this step.
    pub(crate) beginnings: u32,
    /// The early snapshot, until there is a later one.
    pub(crate) leaving: Option<u64>,
    /// When it had no locks yet, if that rule is left out.
    pub(crate) early: u64,
    /// Others had what it asked for: primaries first now, so that whoever loses one is not in the winner's way at the backups.
    pub(crate) wary: bool,
    /// Its name, once it has locked something.
    pub(crate) lock: Option<Lock>,
    pub(crate) entries: Vec<Entry>,
    /// Where objects are among the entries, once there are many.
    index: Option<HashMap<Addr, u32>>,
    /// What was only peeked at.
    pub(crate) peeked: Vec<(Addr, Version)>,
    pub(crate) blobs: Vec<NewBlob>,
    /// They were posted, and may be in far memory.
    pub(crate) blobs_posted: Cell<bool>,
    /// Places for records outside of the ring.
    pub(crate) spilled: Vec<Addr>,
    /// Records that were written ahead of time.
    pub(crate) logged: Option<Logged>,
    /// Since when it has locks, or asks for some.
    pub(crate) held: Cell<Option<Held>>,
    /// Why it cannot go on.
    pub(crate) failed: Option<TxnError>,
    /// A lock that was in the way.
    pub(crate) met: Option<(Addr, u64)>,
    /// Counts what it takes.
    effort: Option<Rc<Cell<Effort>>>,
    /// To be freed when this has committed: at once, or when nobody reads older snapshots.
    pub(crate) doomed: Vec<Doomed>,
}

/// Something that nobody needs after a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Doomed {
    /// An object that was deleted: its chain of versions goes on, whatever comes there next.
    Object(Addr),
    /// A body that only old versions name.
    Blob(Addr),
}

/// Entries up to which looking at all of them is fastest.
const FEW: usize = 16;

impl Txn {
    pub(crate) fn new(agent: Rc<Agent>, leave: Leave, queues: Rc<Queues>, age: u64) -> Box<Self> {
        let floor = agent.enter_floor();
        let protocol = *agent.protocol();
        Box::new(Txn {
            agent,
            leave,
            queues,
            age,
            protocol,
            level: Level::default(),
            will_write: false,
            floor,
            snapshot: None,
            late: None,
            doubtful: false,
            beginnings: 0,
            wary: false,
            leaving: None,
            early: 0,
            lock: None,
            entries: Vec::with_capacity(4),
            index: None,
            peeked: Vec::new(),
            blobs: Vec::new(),
            blobs_posted: Cell::new(false),
            spilled: Vec::new(),
            logged: None,
            held: Cell::new(None),
            failed: None,
            met: None,
            effort: None,
            doomed: Vec::new(),
        })
    }

    /// Counts what this takes from now on.
    pub fn count_effort(&mut self, effort: &Rc<Cell<Effort>>) {
        self.effort = Some(Rc::clone(effort));
    }

    /// A round trip is waited for.
    #[inline]
    pub(crate) fn trip(&self) {
        self.count(|effort| effort.round_trips += 1);
        if let Some(held) = self.held.get() {
            self.held.set(Some(Held { phases: held.phases + 1, ..held }));
        }
    }

    /// It asks for locks.
    pub(crate) fn begins_to_hold(&self) {
        // Clocks are read only where somebody counts.
        if self.agent.holding.get().is_some() && self.held.get().is_none() {
            self.held.set(Some(Held { since: self.agent.worker.now(), phases: 0 }));
        }
    }

    /// Which copy is read, of those that one who does not care would take by this number.
    #[inline]
    pub(crate) fn read_from(&self, any: usize) -> usize {
        if self.protocol().backup_reads { any } else { 0 }
    }

    #[inline]
    pub(crate) fn count(&self, change: impl FnOnce(&mut Effort)) {
        if let Some(effort) = &self.effort {
            let mut sum = effort.get();
            change(&mut sum);
            effort.set(sum);
        }
    }

    /// The thread's part that this is of.
    pub fn agent(&self) -> &Rc<Agent> {
        &self.agent
    }

    /// The time as of which it reads: its snapshot, or where it has only locked, now, when it has all its
    /// locks. `None` if it has read nothing.
    pub fn read_time(&self) -> Option<u64> {
        let snapshot = self.snapshot.filter(|_| self.is_opaque());
        snapshot.or_else(|| self.lock.and_then(|_| self.agent.try_upper()))
    }

    /// Its age: one that begins again keeps it, so that its turn comes some day.
    pub fn age(&self) -> u64 {
        self.age
    }

    /// Since when the addresses are that this may use.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Whether an address may be used that was learned at a time.
    #[inline]
    pub fn may_use(&self, learned_at: u64) -> bool {
        learned_at >= self.floor
    }

    pub(crate) fn find(&self, addr: Addr) -> Option<usize> {
        if self.entries.len() <= FEW {
            return self.entries.iter().position(|entry| entry.target.addr == addr);
        }
        self.index.as_ref()?.get(&addr).map(|at| *at as usize)
    }

    /// The entry of an object, new if there was none.
    pub(crate) fn entry(&mut self, target: Target) -> usize {
        if let Some(known) = self.find(target.addr) {
            return known;
        }
        let at = self.entries.len();
        self.entries.push(Entry::new(target));
        if at == FEW {
            let all = self.entries.iter().zip(0..).map(|(entry, at)| (entry.target.addr, at));
            self.index = Some(all.collect());
        } else if let Some(index) = self.index.as_mut().filter(|_| at > FEW) {
            index.insert(target.addr, at as u32);
        }
        at
    }

    /// What is in an object that was accessed, own writes included; `None` if it was not accessed.
    pub fn see(&self, target: Target) -> Option<&Version> {
        let entry = self.find(target.addr).map(|at| &self.entries[at]);
        if let Some(entry) = entry.filter(|entry| entry.new.is_some() || entry.is_seen()) {
            return Some(entry.new.as_ref().unwrap_or(&entry.version));
        }
        let peeked = self.peeked.iter().rev().find(|(addr, _)| *addr == target.addr);
        peeked.map(|(_, version)| version)
    }

    /// The version that was read, own writes aside.
    pub fn read_version(&self, target: Target) -> Option<&Version> {
        let entry = &self.entries[self.find(target.addr)?];
        entry.is_seen().then_some(&entry.version)
    }

    /// Whether an object is locked, or will be.
    pub fn is_locked(&self, target: Target) -> bool {
        let entry = self.find(target.addr).map(|at| &self.entries[at]);
        entry.is_some_and(|entry| entry.locked || entry.claimed)
    }

    /// What was read from an object must still be so at the commit: that is what counts, whatever is said later.
    pub fn need(&mut self, target: Target) {
        if let Some(at) = self.find(target.addr) {
            self.entries[at].counts = true;
            self.entries[at].needed = true;
        }
    }

    /// Nothing depends on what was read from an object, unless it is needed.
    pub fn disregard(&mut self, target: Target) {
        if let Some(at) = self.find(target.addr) {
            self.entries[at].counts = self.entries[at].needed;
        }
    }

    /// Promises something else than usual, from the first step on.
    pub fn set_level(&mut self, level: Level) {
        if self.snapshot.is_none() && self.lock.is_none() {
            self.level = level;
        }
    }

    /// What it is promised.
    pub fn level(&self) -> Level {
        self.level
    }

    /// It will probably write something: then there is no use in reading what is not the newest.
    pub fn expect_writes(&mut self) {
        self.will_write = true;
    }

    /// Whether it is of no use to read an old version: it would not be the same any more at the commit
    /// (`farmv2.txt` §4.7, eager validation).
    pub(crate) fn needs_the_newest(&self) -> bool {
        self.level.validates()
            && (self.will_write
                || self.lock.is_some()
                || self.entries.iter().any(|entry| entry.new.is_some()))
    }

    /// Reads from one moment, which is now, or a little earlier if that is enough.
    pub async fn take_snapshot(&mut self) -> Result<(), TxnError> {
        if self.late.is_some() {
            Box::pin(self.read_later(&[])).await?;
        }
        if self.snapshot.is_none() {
            // Not of before what was locked and read already, which may even be of the future.
            let locked = self.newest_locked();
            if locked > 0 && self.is_opaque() {
                self.agent.wait_past(locked).await?;
            }
            let strict = self.is_opaque() && (self.level.is_strict() || locked > 0);
            let snapshot = self.agent.enter(strict).await?;
            self.snapshot = Some(snapshot);
            self.agent.wait_past(snapshot).await?;
        }
        Ok(())
    }

    /// How it goes through its phases.
    #[inline]
    pub(crate) fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// Whatever is wanted for writing is locked at once, by any protocol: for one that needs the locks alone.
    pub(crate) fn lock_at_once(&mut self) {
        self.protocol.locking = Locking::Hitchhiked;
        self.protocol.conflicts = Conflicts::Queue;
        self.protocol.undo = Undo::Combined;
    }

    /// Whether all that it reads is of one moment.
    pub(crate) fn is_opaque(&self) -> bool {
        self.protocol().opacity
    }

    /// The latest version that may be read: that of the snapshot, or without opacity the newest.
    pub(crate) fn reads_until(&self) -> u64 {
        let snapshot = self.snapshot.expect("who reads has a snapshot");
        if self.is_opaque() { snapshot } else { UNSEEN - 1 }
    }

    /// Reads from a moment that may be long past, as long as old versions of that time are kept.
    pub async fn take_snapshot_of(&mut self, time: u64) -> Result<(), TxnError> {
        if self.snapshot.is_some() || self.lock.is_some() {
            return Err(TxnError::Refused("it has begun to read already".into()));
        }
        self.agent.enter_past(time)?;
        self.snapshot = Some(time);
        self.agent.wait_past(time).await
    }

    /// The moment that it reads from, if it has read anything.
    pub fn snapshot(&self) -> Option<u64> {
        self.snapshot
    }

    /// Forgets what was only read. What is read next is of the same snapshot; but this cannot write any more. What an early snapshot
    /// has shown is still needed: whoever reads much takes one that is not.
    pub fn forget_reads(&mut self) {
        if self.late.is_none()
            && self.lock.is_none()
            && self.entries.iter().all(|entry| entry.new.is_none())
        {
            self.entries.clear();
            self.index = None;
            self.peeked.clear();
        }
    }

    /// Writes an object when this commits: some bytes one after the other, and a tag. One that was not locked is
    /// locked then.
    pub fn write(&mut self, target: Target, tag: u32, parts: &[&[u8]]) -> Result<(), TxnError> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        if bytes > target.room as usize * 8 {
            let room = target.room * 8;
            return Err(TxnError::Refused(format!(
                "{bytes} bytes, where there is room for {room}"
            )));
        }
        let entry = self.entry(target);
        self.entries[entry].new = Some(Version::of(tag, parts));
        Ok(())
    }

    /// Leaves nothing there when this commits, and frees the place then.
    pub fn erase(&mut self, target: Target) {
        let entry = self.entry(target);
        self.entries[entry].new = Some(Version::default());
        self.doomed.push(Doomed::Object(target.addr));
    }

    /// This cannot go on: something was done by half. It will not commit.
    pub fn fail(&mut self, error: TxnError) {
        self.failed.get_or_insert(error);
    }

    /// What was only peeked at is to be looked at again.
    pub fn forget_peeks(&mut self) {
        self.peeked.clear();
    }

    /// When the newest version was committed among those that are locked. One that was committed without waiting for its time
    /// may be of the future.
    pub(crate) fn newest_locked(&self) -> u64 {
        let locked = self.entries.iter().filter(|entry| entry.locked);
        locked.map(|entry| entry.version.ts).max().unwrap_or(0)
    }

    /// Whether something was only read, and counts.
    pub(crate) fn has_read_only(&self) -> bool {
        self.entries.iter().any(Entry::is_only_read)
    }

    pub(crate) fn holds_locks(&self) -> bool {
        self.entries.iter().any(|entry| entry.posted)
    }

    /// An error if what nodes have answered may not be believed: the regions moved, or there is no lease.
    #[inline]
    pub(crate) fn check_leave(&self) -> Result<(), TxnError> {
        if self.leave.is_valid(|| self.agent.worker.now()) {
            return Ok(());
        }
        probe!("the regions moved under a transaction");
        self.agent.check_fenced().and(Err(TxnError::Moved))
    }

    /// Ends it without a trace.
    pub async fn abort(mut self: Box<Self>) {
        if let Some(release) = self.take_locks(false) {
            let _ = release.run().await;
        }
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        for snapshot in [self.snapshot.take(), self.leaving.take()].into_iter().flatten() {
            self.agent.leave(snapshot);
        }
        if let Some(release) = self.take_locks(false) {
            probe!("a transaction is dropped with locks");
            release.detach();
        }
        self.agent.leave_floor(self.floor);
    }
}
