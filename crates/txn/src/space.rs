//! Where objects come from and go to: the heap of a thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_fabric::probe;
use farside_pool::alloc::{Heap, SafePoint, SizeClass};
use farside_pool::{Addr, Config, Permit, RegionId};

use crate::TxnError;
use crate::agent::Agent;
use crate::horizon::raise;
use crate::object::{HEADER, Raw};
use crate::queues::Queues;
use crate::ring::Ring;
use crate::session::Limbo;
use crate::system::REQUEST;

/// The heap of a thread; nobody has it while somebody waits for far memory with it.
#[derive(Debug)]
pub(crate) struct Space {
    heap: RefCell<Option<Heap>>,
    /// With which it reaches its regions.
    queues: RefCell<Rc<Queues>>,
    /// Regions have moved: what the old primaries knew alone is to be looked for.
    moved: Cell<bool>,
    /// Places that were not used, to be given back with the heap.
    unused: RefCell<Vec<Addr>>,
}

/// The heap, lent, and leave to use it: what is under way with it keeps regions from moving.
struct Lent<'a> {
    space: &'a Space,
    heap: Option<Heap>,
    acting: Option<(Permit, Rc<Queues>)>,
}

impl Lent<'_> {
    fn heap(&mut self) -> &mut Heap {
        self.heap.as_mut().expect("lent with it")
    }

    fn acting(&self) -> (&Config, &Rc<Queues>) {
        let (permit, queues) = self.acting.as_ref().expect("lent with it");
        (permit.config(), queues)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut heap = self.heap.take();
        if let Some(heap) = &mut heap {
            self.space.unused.borrow_mut().drain(..).for_each(|addr| _ = heap.free(addr));
        }
        *self.space.heap.borrow_mut() = heap;
    }
}

/// How long a heap may be lent to somebody else.
const PATIENCE: Duration = Duration::from_secs(5);

impl Space {
    pub(crate) fn new(heap: Heap, queues: Rc<Queues>) -> Self {
        Space {
            heap: RefCell::new(Some(heap)),
            queues: RefCell::new(queues),
            moved: Cell::new(false),
            unused: RefCell::default(),
        }
    }
}

/// When empty slabs may change their class: nobody reads what was there, or uses an address that it learned when
/// something was.
struct Passed<'a> {
    agent: &'a Agent,
    /// The latest moment that was asked for and is not past.
    wanted: Cell<u64>,
}

impl SafePoint for Passed<'_> {
    fn now(&self) -> u64 {
        self.agent.latest()
    }

    fn has_passed(&self, moment: u64) -> bool {
        let session = &self.agent.session;
        let passed = session.horizon.load(Ordering::Acquire) > moment
            && session.settled_floor.load(Ordering::Acquire) > moment;
        if !passed {
            self.wanted.set(self.wanted.get().max(moment + 1));
        }
        passed
    }
}

/// How many slabs of the dead are looked at at a time: nobody waits for long.
const LOOKED_AT: usize = 4;

/// Takes back what the dead had, again and again, as long as the thread's agent exists.
pub(crate) async fn reclaim(agent: Weak<Agent>) {
    while let Some(agent) = agent.upgrade() {
        if let Ok(mut lent) = agent.lend().await {
            // Large bodies may be named by objects.
            let is_left = |header| Raw::from_word(header) != Raw::Other;
            let _ = lent.heap().adopt_empty(LOOKED_AT, is_left).await;
        }
        let (worker, pause) = (agent.worker.clone(), agent.lease() / 2);
        drop(agent);
        worker.sleep(pause).await;
    }
}

/// Whether a copy of a region is in the making: large bodies and records there keep their places meanwhile, for whoever
/// copies them.
pub(crate) fn is_joined(config: &Config, addr: Addr) -> bool {
    config.region(addr.region()).is_some_and(|region| !region.joining.is_empty())
}

impl Space {
    /// The heap reaches its regions where they are now.
    fn follow(&self, lent: &mut Lent<'_>) -> Result<(), TxnError> {
        let (permit, queues) = lent.acting.as_ref().expect("just taken");
        if Rc::ptr_eq(queues, &self.queues.borrow()) {
            return Ok(());
        }
        let missing = permit.config().nodes.iter().find(|node| queues.to(node.id).is_err());
        if let Some(node) = missing {
            return Err(TxnError::Unreachable(node.id));
        }
        let heap = lent.heap.as_mut().expect("lent with it");
        permit.config().regions.iter().filter_map(|region| queues.place(region)).for_each(
            |place| {
                if heap.moved(place) {
                    probe!("a heap follows its regions");
                    self.moved.set(true);
                }
            },
        );
        *self.queues.borrow_mut() = Rc::clone(queues);
        Ok(())
    }
}

impl Agent {
    async fn lend(&self) -> Result<Lent<'_>, TxnError> {
        let start = self.worker.now();
        loop {
            let heap = self.space.heap.borrow_mut().take();
            if heap.is_some() {
                let mut lent = Lent { space: &self.space, heap, acting: None };
                lent.acting = Some(self.act().await?);
                self.space.follow(&mut lent)?;
                return Ok(lent);
            }
            if self.worker.now() - start > PATIENCE {
                return Err(TxnError::TimedOut("the heap of this thread"));
            }
            self.worker.sleep(Duration::from_nanos(500)).await;
        }
    }

    /// A place for an object. Whoever gets it writes it with a transaction that knows that it is fresh, or gives it
    /// back.
    pub async fn allocate(&self, class: SizeClass) -> Result<Addr, TxnError> {
        let at_hand = |heap: &mut Option<Heap>| heap.as_mut()?.allocate(class);
        if let Some(addr) = at_hand(&mut self.space.heap.borrow_mut()) {
            return Ok(addr);
        }
        let mut lent = self.lend().await?;
        let heap = lent.heap();
        for tries in 0..2 {
            if let Some(addr) = heap.allocate(class) {
                return Ok(addr);
            }
            if !heap.refill(class).await? && tries == 0 {
                // Others may have freed some of ours.
                heap.collect().await?;
            }
        }
        heap.allocate(class).ok_or(TxnError::Full(class.bytes()))
    }

    /// Gives back a place that was never written.
    pub(crate) fn give_back(&self, addr: Addr) {
        self.session.outside.is_free(addr);
        match &mut *self.space.heap.borrow_mut() {
            Some(heap) => _ = heap.free(addr),
            None => self.space.unused.borrow_mut().push(addr),
        }
    }

    /// Frees something that nobody reaches any more, by its first word.
    pub(crate) async fn free(&self, addr: Addr, header: u64) -> Result<(), TxnError> {
        let mut lent = self.lend().await?;
        self.session.outside.is_free(addr);
        if !lent.heap().has_at(addr) {
            // Once it is free it may be somebody else's at once: who does not know whether that was done must not do it again,
            // and the place is lost rather than taken from under another object.
            if lent.heap().free_elsewhere(addr, header).await.is_err() {
                probe!("a place of another heap may be lost");
            }
            return Ok(());
        }
        let (config, queues) = lent.acting();
        queues.write_all(&self.worker, config, addr, HEADER, &[0]).await?;
        lent.heap().free(addr);
        Ok(())
    }

    /// Frees something as soon as no snapshot is older than a time.
    pub(crate) fn free_after(&self, time: u64, addr: Addr, raw: Raw) {
        self.session.limbo().push(Limbo { time, addr, header: raw.to_word() });
    }

    /// Frees what is in nobody's way any more, and gives back what is empty.
    pub(crate) async fn tidy(self: &Rc<Self>) -> Result<(), TxnError> {
        let horizon = self.session.horizon.load(Ordering::Acquire);
        let config = self.seat.view().config();
        let is_due = |limbo: &mut Limbo| limbo.time < horizon && !is_joined(&config, limbo.addr);
        let due: Vec<Limbo> = self.session.limbo().extract_if(.., is_due).collect();
        for (number, Limbo { addr, header, .. }) in due.iter().enumerate() {
            if let Err(error) = self.free(*addr, *header).await {
                self.session.limbo().extend_from_slice(&due[number..]);
                return Err(error);
            }
        }
        let passed = Passed { agent: self, wanted: Cell::new(0) };
        {
            let mut lent = self.lend().await?;
            let heap = lent.heap();
            if self.space.moved.get() {
                heap.scrub().await?;
                self.space.moved.set(false);
            }
            if let Err(error) = heap.collect().await {
                // Their hints are gone.
                self.space.moved.set(true);
                return Err(error.into());
            }
            heap.tidy(&passed).await?;
            // What the dead left behind in slabs that were adopted: somebody may still read it.
            let now = self.latest();
            for (addr, header) in heap.take_strays() {
                if Raw::from_word(header) != Raw::Other {
                    probe!("what a dead session kept for readers is freed some time");
                    self.session.limbo().push(Limbo { time: now, addr, header });
                }
            }
        }
        if passed.wanted.get() > 0 {
            probe!("old addresses are to be forgotten");
            let (permit, queues) = self.act().await?;
            raise(self, &queues, permit.config(), REQUEST, passed.wanted.get()).await?;
        }
        Ok(())
    }

    /// A place in a region in which nobody expects an object.
    async fn allocate_raw(
        heap: &mut Heap,
        region: RegionId,
        class: SizeClass,
    ) -> Result<Addr, TxnError> {
        let mut addr = heap.allocate_in(region, class);
        if addr.is_none() && heap.refill_in(region, class).await? {
            addr = heap.allocate_in(region, class);
        }
        addr.ok_or(TxnError::Full(class.bytes()))
    }

    /// A place for a record outside of the ring.
    pub(crate) async fn allocate_record(
        &self,
        region: RegionId,
        bytes: u64,
    ) -> Result<Addr, TxnError> {
        let class = SizeClass::of(bytes).ok_or(TxnError::Full(bytes))?.raw();
        let mut lent = self.lend().await?;
        Self::allocate_raw(lent.heap(), region, class).await
    }

    /// Makes sure that there is a place for records in a region.
    pub(crate) async fn need_ring(&self, region: RegionId) -> Result<(), TxnError> {
        if self.rings.borrow().contains_key(&region) {
            return Ok(());
        }
        let bytes = self.session.limits.ring_bytes;
        let class = SizeClass::of(bytes).ok_or(TxnError::Full(bytes))?.raw();
        let mut lent = self.lend().await?;
        if self.rings.borrow().contains_key(&region) {
            return Ok(());
        }
        let addr = Self::allocate_raw(lent.heap(), region, class).await?;
        let raw = Raw::Ring(self.owner);
        let (config, queues) = lent.acting();
        let header = [raw.to_word()];
        let written = async {
            queues.write_all(&self.worker, config, addr, HEADER, &header).await?;
            // Records are found by it.
            queues.flush_all(&self.worker).await
        };
        if let Err(error) = written.await {
            // Some replicas may have it.
            self.free_after(0, addr, raw);
            return Err(error);
        }
        self.rings.borrow_mut().insert(region, Ring::new(addr, class.bytes(), 0));
        Ok(())
    }
}
