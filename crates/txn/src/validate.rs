//! Validate: what was only read is still so, when all locks are held. Also what was locked without a look at it.

use std::time::Duration;

use farside_fabric::{Ticket, Words, probe};
use farside_pool::Addr;
use smallvec::SmallVec;

use crate::object::{LOCK, TS};
use crate::queues::replicas;
use crate::txn::Txn;
use crate::versions::Answer;
use crate::{Trap, TxnError, VALIDATE, Why};

/// An object to be looked at again.
#[derive(Clone, Copy)]
pub(crate) struct Doubt {
    pub(crate) entry: usize,
    /// What the version cache has to know, to take in what the copies say.
    marks: Option<u32>,
    /// Its place in the version cache of a node, which nobody had marked when that was asked.
    pub(crate) unmarked: Option<u64>,
}

impl Doubt {
    fn of(entry: usize, marks: Option<u32>) -> Self {
        Doubt { entry, marks, unmarked: None }
    }
}

/// What was asked for: the time of what is locked by this transaction, or a lock and the time behind it.
#[derive(Clone, Copy)]
enum Look {
    Time(Ticket<Words>),
    Both(Ticket<Words>),
    Apart(Ticket<Words>, Ticket<Words>),
}

impl Txn {
    /// Whether something is to be looked at again before this commits.
    pub(crate) fn has_doubts(&self) -> bool {
        let unproved = || self.entries.iter().any(|entry| entry.unproved);
        // Without opacity what was read is of one moment only if it is still so.
        let validates = self.level().validates() || !self.is_opaque();
        validates && self.has_read_only() || unproved()
    }

    /// Looks again at what was only read, at any replica: not locked, and unchanged. Whoever holds it may give it back
    /// as it was: that is waited for, if nobody can wait for this one.
    pub(crate) async fn validate(&mut self) -> Result<(), TxnError> {
        let mut doubts = self.doubts()?;
        self.ask_far_versions(&mut doubts).await?;
        if doubts.is_empty() {
            return Ok(());
        }
        for waits in 1.. {
            match self.look_again(&doubts).await? {
                None => break,
                Some((addr, word)) if !self.may_wait(word, waits) => {
                    probe!("an object that was only read is locked");
                    // Whoever has it may be dead.
                    if waits == 1 {
                        Box::pin(self.meet(addr, word)).await?;
                    }
                    return Err(TxnError::Conflict(Why::Locked));
                }
                Some((addr, word)) => {
                    Box::pin(self.meet(addr, word)).await?;
                    let pause = Duration::from_nanos(500 << waits.min(5));
                    self.agent.worker.sleep(pause).await;
                }
            }
        }
        self.entries.iter_mut().for_each(|entry| entry.unproved = false);
        Ok(())
    }

    /// What has to be looked at, as far as the version cache does not know.
    fn doubts(&self) -> Result<SmallVec<[Doubt; 4]>, TxnError> {
        let mut doubts = SmallVec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.unproved {
                doubts.push(Doubt::of(at, None));
            }
            if !entry.is_only_read() {
                continue;
            }
            let versions = self.agent.session.versions.as_ref();
            match versions.map(|known| known.ask(entry.target.addr, entry.version.ts)) {
                None => doubts.push(Doubt::of(at, None)),
                Some(Answer::Same) => probe!("a version is found in the cache"),
                Some(Answer::Changed) => return Err(TxnError::Conflict(Why::Changed)),
                Some(Answer::Unknown(marks)) => {
                    probe!("a version is not found in the cache");
                    doubts.push(Doubt::of(at, Some(marks)));
                }
            }
        }
        Ok(doubts)
    }

    /// One look; which lock is in the way, if there is one.
    async fn look_again(&self, doubts: &[Doubt]) -> Result<Option<(Addr, u64)>, TxnError> {
        let agent = &self.agent;
        let mut round = agent.worker.round().counted(&agent.tally, VALIDATE);
        let mut looks = Vec::with_capacity(doubts.len());
        let random = agent.worker.random() as usize;
        for Doubt { entry: at, .. } in doubts {
            let entry = &self.entries[*at];
            let addr = entry.target.addr;
            let replicas = replicas(self.leave.config(), addr)?;
            let any = if entry.locked { 0 } else { self.read_from(random.wrapping_add(*at)) };
            let replica = replicas[any % replicas.len()];
            let queue = self.queues.to(replica.node)?;
            let mut bell = round.to(queue);
            let place = replica.base + addr.offset();
            looks.push(match entry.locked {
                true => Look::Time(bell.read(place + TS, 8)),
                false if agent.sees_whole_heads(queue, place) => {
                    Look::Both(bell.read(place + LOCK, 16))
                }
                false => Look::Apart(bell.read(place + LOCK, 8), bell.read(place + TS, 8)),
            });
        }
        self.trip();
        let done = round.ring().await?;
        let mut locked = None;
        for (doubt, look) in doubts.iter().zip(looks) {
            let entry = &self.entries[doubt.entry];
            let (addr, known) = (entry.target.addr, entry.version.ts);
            let (lock, ts) = match look {
                Look::Time(ts) => (0, done[ts][0]),
                Look::Both(both) => (done[both][0], done[both][1]),
                Look::Apart(lock, ts) => (done[lock][0], done[ts][0]),
            };
            if ts != known {
                probe!("an object that was only read has changed");
                return Err(TxnError::Conflict(Why::Changed));
            }
            if lock == 0 {
                let versions = self.agent.session.versions.as_ref();
                versions.zip(doubt.marks).inspect(|(cache, marks)| cache.note(addr, known, *marks));
                if let Some(unmarked) = doubt.unmarked {
                    self.fill_in(addr, known, unmarked);
                }
            } else if !agent.has(Trap::ValidationIgnoresLocks) {
                locked = Some((addr, lock));
            }
        }
        Ok(locked)
    }
}
