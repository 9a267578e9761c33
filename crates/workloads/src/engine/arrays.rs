//! The default protocol on arrays of objects, in the simulator: a key is a place, so that the protocol is judged
//! without an index. An absent row is an object whose body is absent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{ClientId, NodeId, Worker};
use farside_pool::{Addr, Config, Newcomer, RegionId, View};
use farside_sim::{ClockModel, ProcessId, Sim};
use farside_txn::clock::WorkerClock;
use farside_txn::{Access, Agent, Layout, Parts, Target, Trap, Turns, Txn, TxnError, object};

use super::{Engine, Failure, Rows, Session, Table, TableShape, Transaction, Want};

/// Objects are spread over so many regions.
const REGIONS: u16 = 4;

/// Threads of all machines, at most.
const OWNERS: u16 = 64;

/// How long the record ring of a thread is in each region.
const RING_BYTES: u64 = 16 << 10;

const REGION_BYTES: u64 = 8 << 20;

/// How far clocks are off at most, and what threads know of that.
const CLOCK_OFFSET_NS: u64 = 5_000;
const UNCERTAINTY: Duration = Duration::from_micros(6);

/// A simulated cluster with arrays in it. Clones share it.
#[derive(Clone)]
pub struct Arrays(Rc<Inner>);

struct Inner {
    sim: Rc<Sim>,
    config: Config,
    layout: Layout,
    nodes: Vec<NodeId>,
    tables: RefCell<BTreeMap<u16, Array>>,
    /// Where the next table begins, in every region.
    next: RefCell<u64>,
    /// The threads, their processes, and what they work with.
    threads: RefCell<Vec<(Worker, Rc<Agent>)>>,
    trap: Option<Trap>,
}

/// A table: where it begins in every region, and how large its objects are.
#[derive(Clone, Copy)]
struct Array {
    begin: u64,
    room: u32,
    keys: u64,
}

impl Array {
    fn target(&self, key: u64) -> Option<Target> {
        let (region, number) = (key % u64::from(REGIONS), key / u64::from(REGIONS));
        let addr = Addr::new(RegionId(region as u16), self.begin + number * self.stride())?;
        (key < self.keys).then_some(Target { addr, room: self.room })
    }

    /// Objects begin at lines.
    fn stride(&self) -> u64 {
        Target::bytes(self.room).next_multiple_of(64)
    }
}

impl Arrays {
    /// A cluster with so many copies of each region.
    pub fn new(sim: &Rc<Sim>, copies: usize, trap: Option<Trap>) -> Self {
        let mut config = Config::first(ClientId(1), Duration::from_millis(2));
        let mut nodes = Vec::new();
        for number in 0..copies.max(3) {
            let node = sim.add_node(u64::from(REGIONS) * REGION_BYTES);
            let address = node.0.to_string();
            let bytes = u64::from(REGIONS) * REGION_BYTES;
            config.add_node(&Newcomer { address, incarnation: number as u64, bytes });
            nodes.push(node);
        }
        for _ in 0..REGIONS {
            config.add_region(REGION_BYTES, copies, 0).expect("there is room");
        }
        // The first line is nobody's: an offset of 0 means none.
        let board_bytes = u64::from(OWNERS) * 8;
        let rings = (0..REGIONS).map(|region| (region, 64 + board_bytes)).collect();
        let layout = Layout {
            board: Addr::new(RegionId(0), 64).expect("a small offset"),
            owners: OWNERS,
            rings,
            ring_bytes: RING_BYTES,
        };
        let first = (64 + board_bytes + u64::from(OWNERS) * RING_BYTES).next_multiple_of(64);
        Arrays(Rc::new(Inner {
            sim: Rc::clone(sim),
            config,
            layout,
            nodes,
            tables: RefCell::default(),
            next: RefCell::new(first),
            threads: RefCell::default(),
            trap,
        }))
    }

    /// A thread of a machine of its own, whose clock is off.
    pub fn add_machine(&self, number: u64) -> (ProcessId, Worker) {
        let process = self.0.sim.add_process();
        // Some are ahead, some are not; and they drift apart a little.
        let offset_ns = number * 7919 % CLOCK_OFFSET_NS;
        let drift_ppb = (number * 613 % 200) as i64 - 100;
        self.0.sim.set_clock(process, ClockModel { offset_ns, drift_ppb });
        let worker = self.0.sim.add_thread(process);
        self.join(process, &worker);
        (process, worker)
    }

    fn join(&self, process: ProcessId, worker: &Worker) {
        let Inner { sim, config, layout, nodes, threads, trap, .. } = &*self.0;
        let connect = |(id, node): (u16, &NodeId)| {
            (id, sim.connect(process, worker, *node).expect("the nodes are up"))
        };
        let queues = (0..).zip(nodes).map(connect).collect();
        let owner = threads.borrow().len() as u16 + 1;
        let seat = View::alone(config.clone()).seat();
        let clock = Box::new(WorkerClock::within(worker, UNCERTAINTY));
        // Each machine has one thread here.
        let turns = Turns::new();
        let parts = Parts { seat, owner, queues, clock, layout: layout.clone(), turns };
        let agent = Agent::new(worker, parts);
        agent.set_trap(*trap);
        threads.borrow_mut().push((worker.clone(), agent));
    }

    /// Round trips that a thread's transactions have waited for.
    pub fn round_trips(&self, worker: &Worker) -> u64 {
        let phases = [farside_txn::EXECUTE, farside_txn::VALIDATE, farside_txn::INSTALL];
        let agent = self.agent(worker);
        phases.iter().map(|phase| agent.tally().phase(*phase).round_trips).sum()
    }

    /// What a thread works with.
    fn agent(&self, worker: &Worker) -> Rc<Agent> {
        let threads = self.0.threads.borrow();
        let known = threads.iter().find(|(known, _)| known.is_same(worker));
        Rc::clone(&known.expect("threads join first").1)
    }

    fn target(&self, table: Table, key: u64) -> Result<Target, Failure> {
        let array = self.0.tables.borrow().get(&table.0).copied();
        let target = array.and_then(|array| array.target(key));
        target.ok_or_else(|| Failure::Broken(format!("table {} has no room for {key}", table.0)))
    }
}

impl Engine for Arrays {
    type Session = ArraySession;

    fn create(&self, tables: &[TableShape]) -> Result<(), Failure> {
        let mut next = self.0.next.borrow_mut();
        for shape in tables {
            let room = shape.value_bytes.div_ceil(8) as u32;
            let array = Array { begin: *next, room, keys: shape.keys };
            *next += shape.keys.div_ceil(u64::from(REGIONS)) * array.stride();
            if *next > REGION_BYTES {
                return Err(Failure::Broken("the regions are too small for the tables".into()));
            }
            self.0.tables.borrow_mut().insert(shape.table.0, array);
        }
        Ok(())
    }

    fn now(&self, _: &Worker) -> u64 {
        self.0.sim.elapsed_ns()
    }

    fn session(&self, worker: &Worker) -> ArraySession {
        ArraySession { engine: self.clone(), agent: self.agent(worker) }
    }

    async fn load(
        &self,
        worker: &Worker,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<(), Failure> {
        let agent = self.agent(worker);
        for (key, value) in rows {
            let target = self.target(table, key)?;
            agent.load(target, &object::loaded(&value)).await.map_err(failure)?;
        }
        Ok(())
    }
}

/// A coordinator's session.
pub struct ArraySession {
    engine: Arrays,
    agent: Rc<Agent>,
}

/// A transaction.
pub struct ArrayTxn<'s> {
    session: &'s ArraySession,
    txn: Txn,
}

fn failure(error: TxnError) -> Failure {
    match error {
        TxnError::Conflict(_) | TxnError::NotNow | TxnError::Moved | TxnError::RingFull => {
            Failure::Conflict
        }
        TxnError::Pending(_) => Failure::Unknown,
        broken => Failure::Broken(broken.to_string()),
    }
}

impl Session for ArraySession {
    type Txn<'s> = ArrayTxn<'s>;

    async fn begin(&mut self) -> Result<ArrayTxn<'_>, Failure> {
        let txn = self.agent.begin().map_err(failure)?;
        Ok(ArrayTxn { session: self, txn })
    }
}

impl Transaction for ArrayTxn<'_> {
    async fn read(&mut self, wants: &[Want], rows: &mut Rows) -> Result<(), Failure> {
        let mut accesses = Vec::with_capacity(wants.len());
        for want in wants {
            let target = self.session.engine.target(want.table, want.key)?;
            accesses.push(Access { target, update: want.update });
        }
        self.txn.access(&accesses).await.map_err(failure)?;
        rows.clear();
        for access in accesses {
            let version = self.txn.see(access.target);
            let body = version.and_then(farside_txn::object::Version::body);
            // What was loaded has no writer in a history.
            let read = self.txn.read_version(access.target).map_or(0, |version| version.ts);
            rows.push(if read <= 1 { 0 } else { read }, body.as_deref());
        }
        Ok(())
    }

    async fn write(&mut self, table: Table, key: u64, value: Option<&[u8]>) -> Result<(), Failure> {
        let target = self.session.engine.target(table, key)?;
        self.txn.write(target, value).map_err(failure)
    }

    async fn commit(self) -> Result<Option<u64>, Failure> {
        self.txn.commit().await.map_err(failure)
    }
}
