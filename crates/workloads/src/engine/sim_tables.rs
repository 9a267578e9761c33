//! Farside's tables on a simulated cluster.

mod shape;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::{ClientId, Counts, FabricError, NodeId, Worker};
use farside_index::Client;
use farside_pool::time;
use farside_pool::{Config, Connect, Links, Newcomer, Region, View};
use farside_sim::{ClockModel, ProcessId, Sim};
use farside_txn::clock::{PoolClock, WorkerClock};
use farside_txn::{
    Agent, Holding, Identity, Level, Limits, Parts, Session, Trap, TxnError, VersionCache,
};

use super::sim_pool::{PoolShape, SimPool};
use super::tables::counts;
use super::{Engine, Failure, Table, TableSession, TableShape, Tables, code};
use crate::sim_connect::SimConnect;

/// Objects are spread over so many regions, or as many as there are nodes.
const REGIONS: u64 = 4;

fn regions_of(nodes: usize) -> u64 {
    REGIONS.max(nodes as u64)
}

/// How long the record ring of a thread is in each region.
const RING_BYTES: u64 = 24 << 10;

const REGION_BYTES: u64 = 128 << 20;
const SMALL_REGION_BYTES: u64 = 4 << 20;

/// How long somebody is silent before the others take it for dead: longer than verbs are late.
const LEASE: Duration = Duration::from_millis(100);

/// How far clocks are off at most. Threads know a little more than that.
const CLOCK_OFFSET_NS: u64 = 5_000;

/// A simulated cluster with tables in it. Clones share it.
#[derive(Clone)]
pub struct SimTables(Rc<Inner>);

struct Inner {
    sim: Rc<Sim>,
    pool: Pool,
    tables: Tables,
    /// The threads, and what they work with.
    threads: RefCell<Vec<(Worker, Rc<Client>)>>,
    machines: RefCell<HashMap<u64, (ProcessId, Member)>>,
    limits: Limits,
    level: Level,
    clock_offset_ns: u64,
    /// Threads pay for their code.
    computes: bool,
    trap: Option<Trap>,
    /// For protocols that use one: it is as if all reached it at once.
    versions: OnceCell<Arc<VersionCache>>,
}

/// Where the nodes and regions are.
enum Pool {
    /// As everybody knows, for ever.
    Fixed(Config),
    /// As a manager says.
    Managed(SimPool),
}

/// What the threads of a process share.
#[derive(Clone)]
struct Member {
    session: Arc<Session>,
    view: Arc<View>,
}

impl SimTables {
    /// A cluster with so many copies of each region, and a few nodes.
    pub fn new(sim: &Rc<Sim>, copies: usize, trap: Option<Trap>) -> Self {
        Self::with_nodes(sim, copies, copies.max(3), trap)
    }

    /// A cluster with so many copies of each region, on so many nodes.
    pub fn with_nodes(sim: &Rc<Sim>, copies: usize, nodes: usize, trap: Option<Trap>) -> Self {
        Self::laid_out(sim, copies, nodes, REGION_BYTES, trap)
    }

    /// A cluster with so much room in each copy.
    pub fn with_room(sim: &Rc<Sim>, copies: usize, nodes: usize, bytes: u64) -> Self {
        let region_bytes = (bytes / regions_of(nodes)).next_multiple_of(1 << 20);
        let region_bytes = region_bytes.max(REGION_BYTES);
        Self::laid_out(sim, copies, nodes, region_bytes, None)
    }

    /// A cluster with little memory, all of which is read when it comes back.
    pub fn small(sim: &Rc<Sim>, copies: usize, trap: Option<Trap>) -> Self {
        Self::laid_out(sim, copies, copies.max(3), SMALL_REGION_BYTES, trap)
    }

    fn laid_out(
        sim: &Rc<Sim>,
        copies: usize,
        nodes: usize,
        region_bytes: u64,
        trap: Option<Trap>,
    ) -> Self {
        let mut config = Config::first(ClientId(1), LEASE);
        for _ in 0..nodes {
            let bytes = regions_of(nodes) * region_bytes;
            let node = sim.add_node(bytes);
            let address = node.0.to_string();
            config.add_node(&Newcomer { address, incarnation: 0, bytes, versions: false });
        }
        for _ in 0..regions_of(nodes) {
            config.add_region(region_bytes, copies, 0).expect("there is room");
        }
        Self::on(sim, Pool::Fixed(config), trap)
    }

    /// A cluster whose machines may die, and which has a manager.
    pub fn managed(sim: &Rc<Sim>, shape: PoolShape, trap: Option<Trap>) -> Self {
        Self::on(sim, Pool::Managed(SimPool::start(sim, shape)), trap)
    }

    fn on(sim: &Rc<Sim>, pool: Pool, trap: Option<Trap>) -> Self {
        SimTables(Rc::new(Inner {
            sim: Rc::clone(sim),
            pool,
            tables: Tables::default(),
            threads: RefCell::default(),
            machines: RefCell::default(),
            limits: Limits { ring_bytes: RING_BYTES, ..Limits::default() },
            level: Level::default(),
            clock_offset_ns: CLOCK_OFFSET_NS,
            computes: false,
            trap,
            versions: OnceCell::new(),
        }))
    }

    /// A thread of a machine of its own, whose clock is off.
    pub fn add_machine(&self, number: u64) -> (ProcessId, Worker) {
        self.new_machine(number).unwrap_or_else(|error| panic!("a machine cannot join: {error}"))
    }

    /// The same, or why it cannot be.
    pub fn new_machine(&self, number: u64) -> Result<(ProcessId, Worker), Failure> {
        loop {
            if let Some(machine) = self.try_machine(number)? {
                return Ok(machine);
            }
        }
    }

    /// `None` if it was put out before it could begin.
    fn try_machine(&self, number: u64) -> Result<Option<(ProcessId, Worker)>, Failure> {
        let process = self.0.sim.add_process();
        self.set_clock(process, number);
        let worker = self.0.sim.add_thread(process);
        let joined = match self.new_session(process, &worker)? {
            Some(member) => self.join(process, &worker, &member)?,
            None => None,
        };
        if joined.is_none() {
            self.0.sim.kill(process);
        }
        Ok(joined.map(|()| (process, worker)))
    }

    fn set_clock(&self, process: ProcessId, number: u64) {
        // Some are ahead, some are not; and they drift apart a little.
        let (offset_ns, drift_ppb) = match self.0.pool {
            Pool::Fixed(_) if !self.has_real_clocks() => {
                (number * 7919 % self.0.clock_offset_ns, (number * 613 % 200) as i64 - 100)
            }
            // What they have in common they find out.
            _ => (number * 104_729 % 1_000_000, (number * 61_333 % 180_001) as i64 - 90_000),
        };
        self.0.sim.set_clock(process, ClockModel { offset_ns, drift_ppb });
    }

    /// A thread of a machine, by its number: those of one machine share a process.
    pub fn add_thread(&self, machine: u64) -> Worker {
        let known = self.0.machines.borrow().get(&machine).cloned();
        let process = known.as_ref().map_or_else(|| self.0.sim.add_process(), |known| known.0);
        if known.is_none() {
            self.set_clock(process, machine);
            if self.0.computes {
                self.0.sim.charge(process, code::of(self.0.limits.protocol).1);
            }
        }
        let worker = self.0.sim.add_thread(process);
        let member = known.map(|(_, member)| member);
        let member = member.or_else(|| self.new_session(process, &worker).ok().flatten());
        let member = member.expect("nobody is put out");
        self.0.machines.borrow_mut().insert(machine, (process, member.clone()));
        self.join(process, &worker, &member).ok().flatten().expect("nobody is put out");
        worker
    }

    fn new_session(&self, process: ProcessId, worker: &Worker) -> Result<Option<Member>, Failure> {
        let Inner { sim, pool, limits, .. } = &*self.0;
        let view = match pool {
            Pool::Fixed(config) => {
                let mut config = config.clone();
                for node in &mut config.nodes {
                    node.incarnation = sim.life(NodeId(node.id));
                }
                let view = View::alone(config);
                if self.has_real_clocks() {
                    self.find_out_the_time(process, worker, &view);
                }
                view
            }
            Pool::Managed(pool) => worker.block_on(pool.join(process, worker)),
        };
        let client = sim.client(process).0;
        let identity = worker.block_on(persist(worker, async || {
            Identity::claim(worker, &self.links(process, worker), &view.seat(), client).await
        }))?;
        let Some(identity) = identity else { return Ok(None) };
        let versions = limits
            .has_version_cache()
            .then(|| Arc::clone(self.0.versions.get_or_init(Arc::default)));
        let session = Session::sharing(identity, *limits, versions);
        Ok(Some(Member { session, view }))
    }

    fn has_real_clocks(&self) -> bool {
        match &self.0.pool {
            Pool::Fixed(config) => config.master.is_some(),
            Pool::Managed(_) => true,
        }
    }

    /// Asks for the time from now on, on a thread that has nothing else to do.
    fn find_out_the_time(&self, process: ProcessId, worker: &Worker, view: &Arc<View>) {
        let keeper = self.0.sim.add_thread(process);
        let asking = time::follow(keeper.clone(), self.connect(process), Arc::downgrade(view));
        keeper.spawn(asking).detach();
        worker.block_on(async {
            while view.time().bounds(worker).is_none() {
                worker.sleep(Duration::from_micros(100)).await;
            }
        });
    }

    fn links(&self, process: ProcessId, worker: &Worker) -> Links {
        match self.0.pool {
            Pool::Fixed(_) => Links::wary(worker, &self.connect(process)),
            Pool::Managed(_) => Links::new(worker, &self.connect(process)),
        }
    }

    fn connect(&self, process: ProcessId) -> Rc<dyn Connect> {
        Rc::new(SimConnect { sim: Rc::downgrade(&self.0.sim), process })
    }

    fn join(
        &self,
        process: ProcessId,
        worker: &Worker,
        member: &Member,
    ) -> Result<Option<()>, Failure> {
        let Inner { threads, trap, .. } = &*self.0;
        let uncertainty = Duration::from_nanos(self.0.clock_offset_ns * 6 / 5);
        let parts = || Parts {
            session: Arc::clone(&member.session),
            seat: member.view.seat(),
            links: self.links(process, worker),
            clock: match self.0.pool {
                Pool::Fixed(_) if !self.has_real_clocks() => {
                    Box::new(WorkerClock::within(worker, uncertainty))
                }
                _ => Box::new(PoolClock::new(worker, &member.view)),
            },
        };
        let agent =
            worker.block_on(persist(worker, async || Agent::join(worker, parts()).await))?;
        let Some(agent) = agent else { return Ok(None) };
        agent.set_trap(*trap);
        agent.look_after_pool();
        agent.count_holding();
        let client = Client::new(agent);
        self.0.tables.warm(&client);
        threads.borrow_mut().push((worker.clone(), client));
        Ok(Some(()))
    }

    /// All nodes, where everybody always knows them.
    pub fn all_nodes(&self) -> Vec<NodeId> {
        let Pool::Fixed(config) = &self.0.pool else { return self.nodes() };
        (0..config.nodes.len() as u16).map(NodeId).collect()
    }

    /// The nodes that are up, where they may die.
    pub fn nodes(&self) -> Vec<NodeId> {
        match &self.0.pool {
            Pool::Fixed(_) => Vec::new(),
            Pool::Managed(pool) => pool.nodes(),
        }
    }

    /// Nodes that were put out although they lived begin another life.
    pub fn revive(&self) {
        if let Pool::Managed(pool) = &self.0.pool {
            pool.revive();
        }
    }

    /// Whether nothing is lost with one more node, as a machine knows the pool.
    pub fn may_lose_one(&self, worker: &Worker) -> bool {
        match &self.0.pool {
            Pool::Fixed(_) => false,
            Pool::Managed(pool) => pool.may_lose_one(&self.client(worker).agent().config()),
        }
    }

    /// A machine with a node dies, if one may; which one.
    pub fn kill_node(&self, choice: u64) -> Option<usize> {
        match &self.0.pool {
            Pool::Fixed(_) => None,
            Pool::Managed(pool) => pool.kill_machine(choice),
        }
    }

    /// A machine whose node died comes back.
    pub fn restart_node(&self, number: usize) {
        if let Pool::Managed(pool) = &self.0.pool {
            pool.restart_machine(number);
        }
    }

    /// Waits until every region has its copies, and all of them are alike; or what is wrong.
    pub async fn check_copies(&self, worker: &Worker, patience: Duration) -> Result<(), String> {
        let (start, client) = (worker.now(), self.client(worker));
        loop {
            let config = client.agent().config();
            let whole = |region: &Region| {
                region.replicas.len() >= region.copies && region.joining.is_empty()
            };
            let wrong = match config.regions.iter().find(|region| !whole(region)) {
                Some(region) => format!("{region:?} lacks copies"),
                None => match client.agent().compare_copies().await {
                    Ok(differences) if differences.is_empty() => return Ok(()),
                    Ok(differences) => format!("copies differ: {differences:?}"),
                    Err(error) => error.to_string(),
                },
            };
            if worker.now() - start > patience {
                return Err(wrong);
            }
            self.revive();
            worker.sleep(Duration::from_millis(5)).await;
        }
    }

    /// What a thread works with.
    pub fn client(&self, worker: &Worker) -> Rc<Client> {
        let threads = self.0.threads.borrow();
        let known = threads.iter().find(|(known, _)| known.is_same(worker));
        Rc::clone(&known.expect("threads join first").1)
    }
}

/// Tries again after errors: some verbs fail. `None` if this process was put out.
async fn persist<T>(
    worker: &Worker,
    act: impl AsyncFn() -> Result<T, TxnError>,
) -> Result<Option<T>, Failure> {
    for _ in 0..1000 {
        match act().await {
            Ok(done) => return Ok(Some(done)),
            Err(TxnError::Fabric(FabricError::Fenced(_))) => return Ok(None),
            Err(error) if error.is_passing() => worker.sleep(Duration::from_micros(10)).await,
            Err(other) => return Err(Failure::Broken(other.to_string())),
        }
    }
    Err(Failure::Broken("the nodes are not up".into()))
}

impl Engine for SimTables {
    type Session = TableSession;

    async fn create(&self, worker: &Worker, tables: &[TableShape]) -> Result<(), Failure> {
        self.0.tables.create(&self.client(worker), tables).await
    }

    fn counts(&self, worker: &Worker) -> Counts {
        counts(&self.client(worker))
    }

    fn holding(&self, worker: &Worker) -> Holding {
        self.client(worker).agent().holding()
    }

    fn now(&self, _: &Worker) -> u64 {
        self.0.sim.elapsed_ns()
    }

    fn session(&self, worker: &Worker) -> TableSession {
        let session = self.0.tables.session(&self.client(worker)).at(self.0.level);
        match self.0.computes {
            true => session.computing(code::of(self.0.limits.protocol).0),
            false => session,
        }
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
