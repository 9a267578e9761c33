//! A thread of a session: its queues, its clock, its records, and the snapshots that it reads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_fabric::{ClientId, FabricError, Queue, Tally, Worker, probe};
use farside_pool::alloc::Heap;
use farside_pool::{Config, Links, Permit, RegionId, Seat};

use crate::clock::Clock;
use crate::holding::Holding;
use crate::noted::InUse;
use crate::object::head_is_in_a_line;
use crate::protocol::Protocol;
use crate::queues::Queues;
use crate::ring::Ring;
use crate::session::{Noted, Session, THREADS, Vacancy};
use crate::space::{self, Space};
use crate::turns::Desk;
use crate::words::Lock;
use crate::{Trap, Txn, TxnError, copy, horizon, reach};

/// How long to wait for locks that are given back.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for the clock, or some leases.
const CLOCK_PATIENCE: Duration = Duration::from_secs(2);

/// A thread's part in a session.
pub struct Agent {
    pub(crate) worker: Worker,
    pub(crate) session: Arc<Session>,
    pub(crate) seat: Seat,
    thread: u16,
    /// Its name in lock words.
    pub(crate) owner: u16,
    pub(crate) links: Links,
    pub(crate) turns: Desk,
    pub(crate) queues: RefCell<Rc<Queues>>,
    clock: Box<dyn Clock>,
    /// The pool's, which never changes.
    pub(crate) lease: Duration,
    last_tick: Cell<u64>,
    last_age: Cell<u64>,
    /// The earliest that it could be when somebody last looked at the clock.
    pub(crate) past: Cell<u64>,
    pub(crate) rings: RefCell<BTreeMap<RegionId, Ring>>,
    pub(crate) space: Space,
    /// Snapshots that are read.
    pub(crate) snapshots: RefCell<InUse>,
    /// Those among them that are of the past: asked for by their time, or where that is good enough; and how often.
    pub(crate) pasts: RefCell<BTreeMap<u64, usize>>,
    /// Snapshots of moments that were past for sure when they began.
    pub(crate) early: RefCell<InUse>,
    /// Since when the addresses are that transactions use.
    pub(crate) floors: RefCell<InUse>,
    pub(crate) noted: Arc<Noted>,
    /// Releases under way.
    pub(crate) releasing: Cell<usize>,
    /// Nobody drives the thread for a while.
    pub(crate) resting: Cell<bool>,
    /// By how many that are within each other.
    driven: Cell<u32>,
    /// Locks may be left behind: the place of this thread is not for another one.
    pub(crate) unclean: Cell<bool>,
    pub(crate) tally: Tally,
    pub(crate) holding: Cell<Option<Holding>>,
    trap: Cell<Option<Trap>>,
}

/// Something is under way that is waited for.
pub(crate) struct Busy(Rc<Agent>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.releasing.set(self.0.releasing.get() - 1);
    }
}

/// What a thread's part is made of.
pub struct Parts {
    /// What it shares with other threads of the process.
    pub session: Arc<Session>,
    /// Its place in the view of its process.
    pub seat: Seat,
    /// How it reaches nodes.
    pub links: Links,
    /// What it knows of time.
    pub clock: Box<dyn Clock>,
}

impl Agent {
    /// A thread's part in a session.
    pub async fn join(worker: &Worker, parts: Parts) -> Result<Rc<Self>, TxnError> {
        let Parts { session, seat, links, clock } = parts;
        let client = session.identity.client;
        let (permit, queues) = reach::approach(worker, &links, &seat, client).await?;
        let (config, queues) = (permit.config(), Rc::new(queues));
        reach::prepare(worker, &queues, config).await?;
        let places: Vec<_> = config.regions.iter().filter_map(|r| queues.place(r)).collect();
        let full = || TxnError::Refused("a process has at most 31 threads in a session".into());
        let (vacancy, noted) = session.enter().ok_or_else(full)?;
        let Vacancy { thread, last_tick, rings } = vacancy;
        let lease = Duration::from_nanos(config.lease_ns);
        let slab_owner = session.slab_owner(thread);
        let bytes = session.limits.ring_bytes;
        let rings = rings
            .into_iter()
            .map(|(addr, busy)| (addr.region(), Ring::new(addr, bytes, busy)))
            .collect();
        let agent = Rc::new(Agent {
            worker: worker.clone(),
            owner: session.lock_owner(thread),
            thread,
            seat,
            links,
            turns: Desk::new(&session.turns),
            queues: RefCell::new(Rc::clone(&queues)),
            clock,
            lease,
            last_tick: Cell::new(last_tick),
            last_age: Cell::new(0),
            past: Cell::new(0),
            rings: RefCell::new(rings),
            space: Space::new(Heap::new(worker, slab_owner, places), queues),
            snapshots: RefCell::default(),
            pasts: RefCell::default(),
            early: RefCell::default(),
            floors: RefCell::default(),
            noted,
            releasing: Cell::new(0),
            resting: Cell::new(false),
            driven: Cell::new(0),
            unclean: Cell::new(false),
            tally: Tally::default(),
            holding: Cell::default(),
            trap: Cell::new(None),
            session,
        });
        // Nobody waits for what comes next.
        drop(permit);
        // From now on what is locked by the name of the place is locked by this session; once, for whatever is locked then
        // must not look older than that.
        let since = agent.session.identity.since.max(agent.upper().await?).max(1);
        let (orderly, whatever) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = agent.session.since.compare_exchange(0, since, orderly, whatever);
        // Nobody uses an address or a snapshot that others do not know of.
        if !agent.session.told.load(Ordering::Acquire) {
            horizon::look(&agent).await?;
        }
        if !agent.session.told.load(Ordering::Acquire) {
            return Err(TxnError::NotNow);
        }
        worker.spawn(horizon::tend(Rc::downgrade(&agent))).detach();
        worker.spawn(horizon::tidy(Rc::downgrade(&agent))).detach();
        worker.spawn(reach::follow(Rc::downgrade(&agent))).detach();
        Ok(agent)
    }

    /// Makes copies of regions that have too few, and takes back what the dead had, from now on: for one thread of a process,
    /// which is always driven.
    pub fn look_after_pool(self: &Rc<Self>) {
        self.worker.spawn(copy::tend(Rc::downgrade(self))).detach();
        self.worker.spawn(space::reclaim(Rc::downgrade(self))).detach();
    }

    /// Begins a transaction; one that begins again, with the age that it had.
    pub async fn begin(self: &Rc<Self>, age: Option<u64>) -> Result<Box<Txn>, TxnError> {
        // Somebody drives it, whoever that is.
        self.resting.set(false);
        let (leave, queues) = self.ready().await?;
        let age = age.unwrap_or_else(|| self.next_age());
        Ok(Txn::new(Rc::clone(self), leave, queues, age))
    }

    /// An error if the process was taken for dead: nothing that it does has any effect.
    pub(crate) fn check_fenced(&self) -> Result<(), TxnError> {
        match self.session.fenced.load(Ordering::Acquire) || self.seat.view().is_put_out() {
            true => Err(TxnError::Fabric(FabricError::Fenced(self.client()))),
            false => Ok(()),
        }
    }

    pub(crate) fn permit(&self) -> Result<Permit, TxnError> {
        self.check_fenced()?;
        self.seat.permit(self.worker.now()).ok_or(TxnError::NotNow)
    }

    /// The id under which its process is fenced.
    pub fn client(&self) -> ClientId {
        ClientId(self.session.identity.client)
    }

    /// How long others wait before they take a session for dead.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// The newest configuration that is known here.
    pub fn config(&self) -> Arc<Config> {
        self.seat.view().config()
    }

    /// The thread that this is for.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// What its verbs were, by phases.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How transactions go through their phases.
    #[inline]
    pub fn protocol(&self) -> &Protocol {
        &self.session.limits.protocol
    }

    /// Something that [`Agent::quiesce`] waits for is under way, until this is dropped.
    pub(crate) fn busy(self: &Rc<Self>) -> Busy {
        self.releasing.set(self.releasing.get() + 1);
        Busy(Rc::clone(self))
    }

    /// Does something beside, which [`Agent::quiesce`] waits for.
    pub fn beside(self: &Rc<Self>, work: impl Future<Output = ()> + 'static) {
        let busy = self.busy();
        let work = async move {
            work.await;
            drop(busy);
        };
        self.worker.spawn(work).detach();
    }

    /// How many bytes of the pool are in no slab, and how many there are.
    pub async fn usage(&self) -> Result<(u64, u64), TxnError> {
        let (permit, queues) = self.act().await?;
        let (mut free, mut all) = (0, 0);
        for place in permit.config().regions.iter().filter_map(|region| queues.place(region)) {
            free += place.free_bytes(&self.worker).await?;
            all += place.bytes;
        }
        Ok((free, all))
    }

    /// Waits until all locks are given back that are on their way, and nothing is under way that others wait for when regions
    /// move; not for ever, where a node does not answer. Whoever stops driving this thread does so first.
    pub async fn quiesce(&self) {
        let start = self.worker.now();
        let busy = || self.releasing.get() > 0 || self.seat.is_acting();
        while busy() && self.worker.now() - start < PATIENCE {
            self.worker.yield_now().await;
        }
    }

    /// Waits like [`Agent::quiesce`]; and nothing that others wait for begins before [`Agent::wake`], or the next transaction.
    /// For one who drives this thread now and then only; the outermost, where one does so within another.
    pub async fn rest(&self) {
        self.driven.set(self.driven.get().saturating_sub(1));
        if self.driven.get() == 0 {
            self.quiesce().await;
            self.resting.set(true);
        }
    }

    /// The thread is driven, until [`Agent::rest`].
    pub fn wake(&self) {
        self.driven.set(self.driven.get() + 1);
        self.resting.set(false);
    }

    /// Leaves out a rule, to see what it is good for.
    #[cfg(feature = "traps")]
    pub fn set_trap(&self, trap: Option<Trap>) {
        self.trap.set(trap);
    }

    /// Whether a rule is left out.
    #[inline]
    pub fn has(&self, trap: Trap) -> bool {
        cfg!(feature = "traps") && self.trap.get() == Some(trap)
    }

    /// Whether one READ of an object there is as good as one of its lock before one of the rest.
    #[inline]
    pub(crate) fn sees_whole_heads(&self, queue: &Queue, at: u64) -> bool {
        let whole = queue.capabilities().line_atomic && head_is_in_a_line(at);
        whole || self.has(Trap::LinesAreWhole)
    }

    /// The earliest and the latest that it may be now, in nanoseconds; `None` while nobody may know that.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        let bounds = self.clock.bounds();
        if let Some((lower, _)) = bounds {
            self.past.set(lower);
        }
        bounds
    }

    /// The latest that it may be, if that may be known now.
    pub(crate) fn try_upper(&self) -> Option<u64> {
        self.bounds().map(|(_, upper)| upper)
    }

    /// The latest that it may be. Waits while nobody may know that, for a few leases.
    pub(crate) async fn upper(&self) -> Result<u64, TxnError> {
        let mut start = None;
        loop {
            if let Some(upper) = self.try_upper() {
                return Ok(upper);
            }
            probe!("somebody waits for the clock");
            self.check_fenced()?;
            let now = self.worker.now();
            if now - *start.get_or_insert(now) > CLOCK_PATIENCE.max(8 * self.lease) {
                return Err(TxnError::NotNow);
            }
            self.worker.sleep(self.lease / 256).await;
        }
    }

    /// A time that is not earlier than any that was given out so far.
    pub(crate) fn latest(&self) -> u64 {
        self.try_upper().unwrap_or_else(|| self.clock.latest())
    }

    /// The earliest that it may be, or what that was when the time was known last.
    pub(crate) fn lower(&self) -> u64 {
        self.bounds().map_or(self.past.get(), |(lower, _)| lower)
    }

    /// A time for the addresses that are learned now: it may be a little past.
    pub fn learned_at(&self) -> u64 {
        self.past.get()
    }

    /// Waits until a time is past for sure; in vain if this process was taken for dead meanwhile.
    pub(crate) async fn wait_past(&self, time: u64) -> Result<(), TxnError> {
        loop {
            let bounds = self.bounds();
            let left = (time + 1).saturating_sub(self.past.get());
            if left == 0 {
                return Ok(());
            }
            let pause = match bounds {
                Some(_) => Duration::from_nanos(left),
                None => {
                    self.check_fenced()?;
                    self.lease / 256
                }
            };
            self.worker.sleep(pause).await;
        }
    }

    /// The age of a transaction that begins: the lower, the older. No two of a process have the same.
    fn next_age(&self) -> u64 {
        let threads = u64::from(THREADS);
        let age = (self.last_age.get() + threads).max(self.past.get() * threads) & !(threads - 1);
        self.last_age.set(age);
        age | u64::from(self.thread)
    }

    /// The name of a transaction that locks now for the first time.
    pub(crate) fn next_lock(&self) -> Lock {
        let since = Lock::tick_at(self.session.since.load(Ordering::Relaxed));
        let tick = Lock::tick_at(self.lower()).max(self.last_tick.get().max(since) + 1);
        self.last_tick.set(tick);
        Lock::new(self.owner, tick)
    }

    /// Does something with the ring in a region.
    pub(crate) fn with_ring<T>(
        &self,
        region: RegionId,
        act: impl FnOnce(&mut Ring) -> T,
    ) -> Option<T> {
        let mut rings = self.rings.borrow_mut();
        let ring = rings.get_mut(&region)?;
        let reusable = match self.has(Trap::EarlyReuse) {
            true => u64::MAX,
            false => self.reusable(),
        };
        ring.forget(reusable);
        Some(act(ring))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let clean = !self.unclean.get() && self.releasing.get() == 0;
        let rings = std::mem::take(&mut *self.rings.borrow_mut());
        let rings = rings.into_values().map(Ring::into_place).collect();
        let vacancy = Vacancy { thread: self.thread, last_tick: self.last_tick.get(), rings };
        self.session.leave(&self.noted, clean.then_some(vacancy));
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("owner", &self.owner).finish_non_exhaustive()
    }
}
