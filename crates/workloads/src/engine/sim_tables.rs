//! Farside's tables on a simulated cluster.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{ClientId, Worker};
use farside_index::Client;
use farside_pool::{Config, Connect, Links, Newcomer, View};
use farside_sim::{ClockModel, ProcessId, Sim};
use farside_txn::clock::WorkerClock;
use farside_txn::{Agent, Identity, Limits, Parts, Session, Trap};

use super::{Engine, Failure, Table, TableSession, TableShape, Tables};
use crate::sim_connect::SimConnect;

/// Objects are spread over so many regions.
const REGIONS: u64 = 4;

/// How long the record ring of a thread is in each region: so short that it is full at times.
const RING_BYTES: u64 = 12 << 10;

const REGION_BYTES: u64 = 128 << 20;

/// How far clocks are off at most, and what threads know of that.
const CLOCK_OFFSET_NS: u64 = 5_000;
const UNCERTAINTY: Duration = Duration::from_micros(6);

/// A simulated cluster with tables in it. Clones share it.
#[derive(Clone)]
pub struct SimTables(Rc<Inner>);

struct Inner {
    sim: Rc<Sim>,
    config: Config,
    tables: Tables,
    /// The threads, and what they work with.
    threads: RefCell<Vec<(Worker, Rc<Client>)>>,
    trap: Option<Trap>,
}

impl SimTables {
    /// A cluster with so many copies of each region.
    pub fn new(sim: &Rc<Sim>, copies: usize, trap: Option<Trap>) -> Self {
        let mut config = Config::first(ClientId(1), Duration::from_millis(2));
        for number in 0..copies.max(3) {
            let bytes = REGIONS * REGION_BYTES;
            let node = sim.add_node(bytes);
            let address = node.0.to_string();
            config.add_node(&Newcomer { address, incarnation: number as u64, bytes });
        }
        for _ in 0..REGIONS {
            config.add_region(REGION_BYTES, copies, 0).expect("there is room");
        }
        let (tables, threads) = (Tables::default(), RefCell::default());
        SimTables(Rc::new(Inner { sim: Rc::clone(sim), config, tables, threads, trap }))
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
        let Inner { sim, config, threads, trap, .. } = &*self.0;
        let connect: Rc<dyn Connect> = Rc::new(SimConnect { sim: Rc::downgrade(sim), process });
        let slot = threads.borrow().len() as u16;
        let identity = Identity { slot, serial: 1 + u64::from(slot) };
        let parts = Parts {
            session: Session::new(identity, Limits { ring_bytes: RING_BYTES }),
            seat: View::alone(config.clone()).seat(),
            links: Links::careless(worker, &connect),
            clock: Box::new(WorkerClock::within(worker, UNCERTAINTY)),
        };
        let agent = worker.block_on(Agent::join(worker, parts)).expect("the nodes are up");
        agent.set_trap(*trap);
        threads.borrow_mut().push((worker.clone(), Client::new(agent)));
    }

    /// What a thread works with.
    pub fn client(&self, worker: &Worker) -> Rc<Client> {
        let threads = self.0.threads.borrow();
        let known = threads.iter().find(|(known, _)| known.is_same(worker));
        Rc::clone(&known.expect("threads join first").1)
    }

    /// Round trips that a thread's transactions have waited for.
    pub fn round_trips(&self, worker: &Worker) -> u64 {
        let phases = [farside_txn::EXECUTE, farside_txn::VALIDATE, farside_txn::INSTALL];
        let client = self.client(worker);
        let tally = client.agent().tally();
        phases.iter().map(|phase| tally.phase(*phase).round_trips).sum()
    }
}

impl Engine for SimTables {
    type Session = TableSession;

    async fn create(&self, worker: &Worker, tables: &[TableShape]) -> Result<(), Failure> {
        self.0.tables.create(&self.client(worker), tables).await
    }

    fn now(&self, _: &Worker) -> u64 {
        self.0.sim.elapsed_ns()
    }

    fn session(&self, worker: &Worker) -> TableSession {
        self.0.tables.session(&self.client(worker))
    }

    async fn load(
        &self,
        worker: &Worker,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<(), Failure> {
        self.0.tables.load(&self.client(worker), table, rows).await
    }
}
