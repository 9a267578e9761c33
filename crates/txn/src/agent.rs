//! A thread of a session: its queues, its clock, its records, and the snapshots that it reads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::{Queue, Tally, Worker};
use farside_pool::{Addr, Config, RegionId, Replica, Seat};

use crate::clock::Clock;
use crate::ring::Ring;
use crate::turns::Turns;
use crate::words::{Lock, OWNERS};
use crate::{Target, Trap, Txn, TxnError, horizon};

/// Where in the pool a session finds what is not an object.
#[derive(Clone, Debug)]
pub struct Layout {
    /// A word for each owner: the oldest snapshot that it may read.
    pub board: Addr,
    /// How many owners there are at most.
    pub owners: u16,
    /// In each region where the rings of all owners are, one after the other.
    pub rings: BTreeMap<u16, u64>,
    /// How long each of them is.
    pub ring_bytes: u64,
}

/// A thread's part in a session.
pub struct Agent {
    pub(crate) worker: Worker,
    pub(crate) seat: Seat,
    pub(crate) owner: u16,
    queues: BTreeMap<u16, Queue>,
    clock: Box<dyn Clock>,
    pub(crate) layout: Layout,
    last_tick: Cell<u64>,
    rings: RefCell<BTreeMap<RegionId, Ring>>,
    /// How many read each snapshot.
    snapshots: RefCell<BTreeMap<u64, u32>>,
    pub(crate) horizon: Cell<u64>,
    /// Others know which snapshots are read here.
    pub(crate) told: Cell<bool>,
    pub(crate) tally: Tally,
    pub(crate) turns: Arc<Turns>,
    trap: Cell<Option<Trap>>,
}

/// What a thread's part is made of.
pub struct Parts {
    /// Its place in the view of its process.
    pub seat: Seat,
    /// A number that no other thread of any session has, from 1.
    pub owner: u16,
    /// A queue to every node.
    pub queues: BTreeMap<u16, Queue>,
    /// What it knows of time.
    pub clock: Box<dyn Clock>,
    /// Where things are.
    pub layout: Layout,
    /// The turns of its process.
    pub turns: Arc<Turns>,
}

/// How often a thread tells which snapshots it reads.
const TELLING: Duration = Duration::from_micros(500);

impl Agent {
    /// A thread's part in a session.
    pub fn new(worker: &Worker, parts: Parts) -> Rc<Self> {
        let Parts { seat, owner, queues, clock, layout, turns } = parts;
        assert!(
            0 < owner && owner <= layout.owners && layout.owners < OWNERS,
            "a place on the board"
        );
        let ring = |(region, begin): (&u16, &u64)| {
            let begin = begin + u64::from(owner - 1) * layout.ring_bytes;
            (RegionId(*region), Ring::new(begin, layout.ring_bytes))
        };
        let rings = RefCell::new(layout.rings.iter().map(ring).collect());
        let agent = Rc::new(Agent {
            worker: worker.clone(),
            seat,
            owner,
            queues,
            clock,
            layout,
            last_tick: Cell::new(0),
            rings,
            snapshots: RefCell::default(),
            horizon: Cell::new(0),
            told: Cell::new(false),
            tally: Tally::default(),
            turns,
            trap: Cell::new(None),
        });
        worker.spawn(horizon::tend(Rc::downgrade(&agent), TELLING)).detach();
        agent
    }

    /// Begins a transaction.
    pub fn begin(self: &Rc<Self>) -> Result<Txn, TxnError> {
        let permit = self.seat.permit(self.worker.now()).ok_or(TxnError::NotNow)?;
        Ok(Txn::new(Rc::clone(self), permit))
    }

    /// Writes an object as it is to be in the beginning, before anybody uses it.
    pub async fn load(&self, target: Target, words: &[u64]) -> Result<(), TxnError> {
        let permit = self.seat.permit(self.worker.now()).ok_or(TxnError::NotNow)?;
        let mut round = self.worker.round();
        for replica in self.replicas(permit.config(), target.addr)? {
            let at = replica.base + target.addr.offset();
            round.to(self.queue(replica.node)?).write(at, words);
        }
        round.ring().await?;
        Ok(())
    }

    /// What its verbs were, by phases.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Leaves out a rule, to see what it is good for.
    #[cfg(feature = "traps")]
    pub fn set_trap(&self, trap: Option<Trap>) {
        self.trap.set(trap);
    }

    #[inline]
    pub(crate) fn has(&self, trap: Trap) -> bool {
        cfg!(feature = "traps") && self.trap.get() == Some(trap)
    }

    pub(crate) fn queue(&self, node: u16) -> Result<&Queue, TxnError> {
        let unknown = || TxnError::Refused(format!("there is no queue to node {node}"));
        self.queues.get(&node).ok_or_else(unknown)
    }

    pub(crate) fn nowhere(&self, addr: Addr) -> TxnError {
        TxnError::Refused(format!("{addr} is in no region that has a copy"))
    }

    /// The copies of an object; the primary is the first.
    pub(crate) fn replicas<'c>(
        &self,
        config: &'c Config,
        addr: Addr,
    ) -> Result<&'c [Replica], TxnError> {
        let region = config.region(addr.region());
        let replicas = region.map_or(&[][..], |region| &region.replicas);
        if replicas.is_empty() { Err(self.nowhere(addr)) } else { Ok(replicas) }
    }

    /// The latest that it may be.
    pub(crate) fn upper(&self) -> u64 {
        self.clock.bounds().1
    }

    /// The earliest that it may be.
    pub(crate) fn lower(&self) -> u64 {
        self.clock.bounds().0
    }

    /// Waits until a time is past for sure.
    pub(crate) async fn wait_past(&self, time: u64) {
        loop {
            let lower = self.lower();
            if lower > time {
                return;
            }
            self.worker.sleep(Duration::from_nanos(time + 1 - lower)).await;
        }
    }

    /// The name of a transaction that locks now for the first time.
    pub(crate) fn next_lock(&self) -> Lock {
        let tick = Lock::tick_at(self.lower()).max(self.last_tick.get() + 1);
        self.last_tick.set(tick);
        Lock::new(self.owner, tick)
    }

    /// A snapshot to be read from now on. Before the first, others must know of this thread: its word on the
    /// board may take long to get there, and meanwhile they would not keep what it reads.
    pub(crate) async fn enter(self: &Rc<Self>) -> Result<u64, TxnError> {
        if !self.told.get() {
            horizon::look(self).await?;
        }
        let snapshot = self.upper();
        self.count(snapshot);
        Ok(snapshot)
    }

    fn count(&self, snapshot: u64) {
        *self.snapshots.borrow_mut().entry(snapshot).or_default() += 1;
    }

    /// A snapshot is not read any more.
    pub(crate) fn leave(&self, snapshot: u64) {
        let mut snapshots = self.snapshots.borrow_mut();
        if let Some(count) = snapshots.get_mut(&snapshot) {
            *count -= 1;
            if *count == 0 {
                snapshots.remove(&snapshot);
            }
        }
    }

    /// The oldest snapshot that is read here, or may be read next.
    pub(crate) fn oldest(&self) -> u64 {
        let lower = self.lower();
        self.snapshots.borrow().keys().next().map_or(lower, |oldest| lower.min(*oldest))
    }

    /// Does something with the ring in a region.
    pub(crate) fn with_ring<T>(
        &self,
        region: RegionId,
        act: impl FnOnce(&mut Ring) -> T,
    ) -> Result<T, TxnError> {
        let mut rings = self.rings.borrow_mut();
        let missing = || TxnError::Refused(format!("region {} has no place for records", region.0));
        let ring = rings.get_mut(&region).ok_or_else(missing)?;
        let reusable = if self.has(Trap::EarlyReuse) { u64::MAX } else { self.horizon.get() };
        ring.forget(reusable);
        Ok(act(ring))
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("owner", &self.owner).finish_non_exhaustive()
    }
}
