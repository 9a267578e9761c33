//! Objects are copied by transactions that lock them on every replica, and write them to the new one alone.

use std::collections::VecDeque;
use std::time::Duration;

use farside_fabric::probe;
use farside_pool::Addr;
use farside_pool::alloc::{FREED, SlabAt};

use super::Copy;
use super::unguarded::MOST_TRIES;
use crate::object::{HEADER, IN_USE, TS, Target, Version};
use crate::txn::{Access, Mode, Txn};
use crate::{Trap, TxnError, Why, system};

/// How many are looked at at once, and how many are locked at once.
const LOOKED_AT: usize = 128;
const LOCKED: usize = 32;

/// How long to ask for a lock that others have, or a few leases.
const PATIENCE: Duration = Duration::from_secs(5);

impl Copy<'_> {
    /// All objects of a slab; how many differed. `None` if the slab may be another one than it was when that was learned.
    pub(super) async fn copy_objects(
        &self,
        slab: &SlabAt,
        learned: u64,
    ) -> Result<Option<usize>, TxnError> {
        let mut differed = 0;
        for some in self.targets(slab).chunks(LOOKED_AT) {
            let different = self.different(some).await?;
            for some in different.chunks(LOCKED) {
                let Some(count) = self.copy_until_done(some, learned).await? else {
                    return Ok(None);
                };
                differed += count;
            }
        }
        Ok(Some(differed))
    }

    /// The places of a slab, unless they are too small for objects.
    pub(super) fn targets(&self, slab: &SlabAt) -> Vec<Target> {
        if slab.class.bytes() < Target::bytes(0) {
            return Vec::new();
        }
        let addrs = slab.offsets().filter_map(|offset| Addr::new(self.region, offset));
        addrs.map(|addr| Target::of_class(addr, slab.class)).collect()
    }

    /// Objects whose places never are anything else; how many differed.
    pub(super) async fn copy_some(&self, some: &[Target]) -> Result<usize, TxnError> {
        let different = self.different(some).await?;
        let copied = self.copy_until_done(&different, u64::MAX).await?;
        Ok(copied.unwrap_or(0))
    }

    /// Some of them, fewer at a time where others are in the way.
    async fn copy_until_done(
        &self,
        some: &[Target],
        learned: u64,
    ) -> Result<Option<usize>, TxnError> {
        let (mut left, mut differed) = (VecDeque::from([some]), 0);
        let start = self.agent.worker.now();
        while let Some(some) = left.pop_front().filter(|some| !some.is_empty()) {
            match self.copy_locked(some, learned).await {
                Ok(Some(count)) => differed += count,
                Ok(None) => return Ok(None),
                Err(TxnError::Conflict(_)) if some.len() > 1 => {
                    let (one, two) = some.split_at(some.len() / 2);
                    left.extend([one, two]);
                }
                Err(TxnError::Conflict(_)) => {
                    let patience = PATIENCE.max(4 * self.agent.lease());
                    if self.agent.worker.now() - start > patience {
                        return Err(TxnError::Conflict(Why::Locked));
                    }
                    left.push_back(some);
                    self.agent.worker.sleep(Duration::from_micros(20)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(differed))
    }

    /// Those that are not the same there, or are locked: whoever holds them may have come before the copy.
    pub(super) async fn different(&self, targets: &[Target]) -> Result<Vec<Target>, TxnError> {
        let acting = self.act().await?;
        let (primary, base) = acting.primary()?;
        let mut round = self.agent.worker.round();
        let mut tickets = Vec::with_capacity(targets.len());
        for target in targets {
            let (offset, bytes) = (target.addr.offset(), target.bytes_from_ts());
            let mut bell = round.to(primary);
            let head = bell.read(base + offset + HEADER, 16);
            let here = bell.read(base + offset + TS, bytes);
            let mut bell = round.to(acting.queues.to(self.to.node)?);
            let copy = bell.read(self.to.base + offset + HEADER, 16 + bytes);
            tickets.push((head, here, copy));
        }
        let done = round.ring().await?;
        let same = |target: &Target, (head, here, copy): (_, _, _)| {
            let (head, copy): (&[u64], &[u64]) = (&done[head], &done[copy]);
            let free = is_free(target, head[0]) && copy[0] == 0;
            let in_use = head[0] == copy[0] || is_freed_by_half(head[0], copy);
            let equal = in_use && is_same(&done[here], &copy[2..]);
            // What was locked by the dead is nobody's, and nothing of theirs is under way.
            let locked = head[1] != 0 && !self.agent.session.watch.is_orphan(head[1]);
            !locked && (free || equal)
        };
        let pairs = targets.iter().zip(tickets);
        let different = pairs.filter(|(target, tickets)| !same(target, *tickets));
        Ok(different.map(|(target, _)| *target).collect())
    }

    /// Some objects, which nobody changes meanwhile.
    async fn copy_locked(&self, some: &[Target], learned: u64) -> Result<Option<usize>, TxnError> {
        let mut txn = self.agent.begin(None).await?;
        txn.lock_at_once();
        if !txn.may_use(learned) {
            return Ok(None);
        }
        // Who stops driving this thread waits for the locks.
        let _busy = self.agent.busy();
        let mode = match self.agent.has(Trap::CopyWithoutLocks) {
            true => Mode::Read,
            false => Mode::Lock,
        };
        let lock = |target: &Target| Access { target: *target, mode };
        txn.access(&some.iter().map(lock).collect::<Vec<_>>()).await?;
        let copied = self.write_locked(&txn, some).await;
        txn.abort().await;
        copied.map(Some)
    }

    async fn write_locked(&self, txn: &Txn, some: &[Target]) -> Result<usize, TxnError> {
        // By the same configuration: the copy is locked, too.
        let acting = self.act().await?;
        if acting.permit.config().epoch != txn.leave.config().epoch {
            return Err(TxnError::Moved);
        }
        let (primary, base) = acting.primary()?;
        let copy = acting.queues.to(self.to.node)?;
        let worker = &self.agent.worker;
        let mut differed = vec![false; some.len()];
        for _ in 0..MOST_TRIES {
            let mut round = worker.round();
            let mut tickets = Vec::with_capacity(some.len());
            for target in some {
                let offset = target.addr.offset();
                let header = round.to(primary).read(base + offset + HEADER, 8);
                let bytes = 16 + target.bytes_from_ts();
                tickets.push((header, round.to(copy).read(self.to.base + offset + HEADER, bytes)));
            }
            let done = round.ring().await?;
            let mut round = worker.round();
            let mut any = false;
            for (number, (target, (header, there))) in some.iter().zip(tickets).enumerate() {
                let (header, there): (u64, &[u64]) = (done[header][0], &done[there]);
                let version = txn.read_version(*target).ok_or(TxnError::Moved)?;
                let at = self.to.base + target.addr.offset();
                if header != there[0] {
                    round.to(copy).write(at + HEADER, &[header]);
                }
                // What is in a place that is free does not matter.
                let is_there = is_free(target, header)
                    || Version::from_words(&there[2..]).is_some_and(|there| there == *version);
                if !is_there {
                    let mut words = Vec::new();
                    version.extend(version.ts, version.prev, &mut words);
                    round.to(copy).write(at + TS, &words);
                }
                if header != there[0] || !is_there {
                    (differed[number], any) = (true, true);
                }
            }
            if !any {
                return Ok(differed.into_iter().filter(|differed| *differed).count());
            }
            // Somebody may have freed one meanwhile: that is seen when it is looked at again.
            round.ring().await?;
            probe!("objects are copied");
        }
        Err(TxnError::TimedOut("a copy of objects that always change"))
    }
}

/// Whether nothing is in a place, by its header. The root of the catalog has none, and is always there.
fn is_free(target: &Target, header: u64) -> bool {
    header == 0 && target.addr != system::catalog_root()
}

/// Whether what was taken away was about to be freed, on the copies first, by somebody who died then: the primary decides.
fn is_freed_by_half(primary: u64, copy: &[u64]) -> bool {
    let gone = || Version::from_words(&copy[2..]).is_some_and(|it| !it.is_present() && it.ts > 0);
    primary == IN_USE && copy[0] == FREED && gone()
}

fn is_same(here: &[u64], there: &[u64]) -> bool {
    let (here, there) = (Version::from_words(here), Version::from_words(there));
    here.is_some() && here == there
}
