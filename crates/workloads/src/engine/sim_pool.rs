//! A simulated pool with a manager: each of its machines has a node, the node's keeper, and a session that can manage.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::{ClientId, NodeId, Worker, probe};
use farside_pool::{
    CONTROL_BYTES, Config, ConfigStore, Connect, Keeper, Means, Member, Newcomer, Replica, Terms,
    View,
};
use farside_sim::{ClockModel, ProcessId, Sim};

use crate::pool::{SimStore, StoreWorld};
use crate::sim_connect::SimConnect;

/// How much memory a version cache has where machines may die: little, so that objects share places.
const VERSION_CACHE_BYTES: u64 = 4 << 10;

/// How a pool is laid out.
#[derive(Clone, Copy, Debug)]
pub struct PoolShape {
    /// Machines with a node.
    pub nodes: usize,
    /// One more has a version cache.
    pub versions: bool,
    /// Copies of each region.
    pub copies: usize,
    /// How many regions, and how large they are.
    pub regions: usize,
    /// Their bytes.
    pub region_bytes: u64,
    /// How long a lease is.
    pub lease: Duration,
}

/// The pool, and its machines.
pub(super) struct SimPool {
    sim: Rc<Sim>,
    shape: PoolShape,
    store: Rc<RefCell<StoreWorld>>,
    machines: RefCell<Vec<Machine>>,
}

struct Machine {
    node: NodeId,
    /// Tells its lives apart.
    incarnation: u64,
    /// Its keeper and its session.
    processes: Vec<ProcessId>,
    alive: bool,
    /// Its node was put out: it begins another life.
    lapsed: Rc<Cell<bool>>,
    /// It has a version cache, and no regions.
    versions: bool,
}

/// How often a process looks, sixteen times in a lease, whether it may act: whatever it does then tells why it may not.
const MOST_LOOKS: u32 = 16 * 256;

impl SimPool {
    /// A pool whose nodes have room for twice what they have.
    pub(super) fn start(sim: &Rc<Sim>, shape: PoolShape) -> Self {
        let pool = SimPool {
            sim: Rc::clone(sim),
            shape,
            store: Rc::default(),
            machines: RefCell::default(),
        };
        let machines = shape.nodes + usize::from(shape.versions);
        let newcomers: Vec<Newcomer> = (0..machines)
            .map(|number| {
                let versions = number == shape.nodes;
                let node = match versions {
                    true => sim.add_node(CONTROL_BYTES + VERSION_CACHE_BYTES),
                    false => sim.add_node(pool.node_bytes()),
                };
                let lapsed = Rc::default();
                let (keeper, newcomer) = pool.start_keeper(node, &lapsed, versions);
                let (incarnation, processes) = (newcomer.incarnation, vec![keeper]);
                let machine =
                    Machine { node, incarnation, processes, alive: true, lapsed, versions };
                pool.machines.borrow_mut().push(machine);
                newcomer
            })
            .collect();
        for number in 0..machines {
            let newcomers = (number == 0).then(|| newcomers.clone());
            let session = pool.start_session(newcomers);
            pool.machines.borrow_mut()[number].processes.push(session);
        }
        pool
    }

    fn node_bytes(&self) -> u64 {
        CONTROL_BYTES + 2 * self.shape.regions as u64 * self.shape.region_bytes
    }

    fn means(&self, process: ProcessId, worker: &Worker) -> Means {
        let client = self.sim.client(process).0;
        let store: Rc<dyn ConfigStore> =
            Rc::new(SimStore { world: Rc::clone(&self.store), worker: worker.clone(), client });
        let connect: Rc<dyn Connect> =
            Rc::new(SimConnect { sim: Rc::downgrade(&self.sim), process });
        Means {
            worker: worker.clone(),
            client: ClientId(client),
            store,
            connect,
            left_out: None,
            eager: false,
        }
    }

    /// Begins another life of a node, which asks to be a member.
    fn start_keeper(
        &self,
        node: NodeId,
        lapsed: &Rc<Cell<bool>>,
        versions: bool,
    ) -> (ProcessId, Newcomer) {
        let process = self.sim.add_process();
        let worker = self.sim.add_thread(process);
        let means = self.means(process, &worker);
        let (terms, incarnation) = (Terms::new(self.shape.lease), means.client.0);
        // No two machines have been up for equally long, and their clocks run differently.
        let drift_ppb = (incarnation * 7919 % 180_001) as i64 - 90_000;
        let clock = ClockModel { offset_ns: incarnation << 24, drift_ppb };
        self.sim.set_node_clock(node, clock);
        let queue = self.sim.connect(process, &worker, node).expect("it was just started");
        let (sim, address) = (Rc::downgrade(&self.sim), node.0.to_string());
        let lapsed = Rc::clone(lapsed);
        let bytes = if versions { CONTROL_BYTES + VERSION_CACHE_BYTES } else { self.node_bytes() };
        let newcomer = Newcomer { address: address.clone(), incarnation, bytes, versions };
        let keeping = async move {
            let keeper = loop {
                let formatted = Keeper::format(&means.worker, queue.clone(), terms, incarnation);
                match formatted.await {
                    Ok(keeper) => break keeper.for_versions(versions),
                    Err(_) => _ = queue.reconnect().await,
                }
            };
            keeper.keep(&means.store, &address, |_| {}).await;
            // Whoever still reads or writes this life gets errors from now on.
            if let Some(sim) = sim.upgrade() {
                sim.kill_node(node);
            }
            lapsed.set(true);
        };
        worker.spawn(keeping).detach();
        (process, newcomer)
    }

    /// A session that can manage; the first one founds the pool.
    fn start_session(&self, newcomers: Option<Vec<Newcomer>>) -> ProcessId {
        let process = self.sim.add_process();
        let worker = self.sim.add_thread(process);
        let (means, shape) = (self.means(process, &worker), self.shape);
        let session = async move {
            let joined = match newcomers {
                Some(nodes) => {
                    let regions = vec![(shape.region_bytes, shape.copies); shape.regions];
                    let founded = Member::found(means, Terms::new(shape.lease), &nodes, &regions);
                    founded.await.map(|member| member.expect("the first"))
                }
                None => Member::join(means).await,
            };
            if let Ok(member) = joined {
                member.run().await;
            }
        };
        worker.spawn(session).detach();
        process
    }

    /// A process becomes a member.
    pub(super) async fn join(&self, process: ProcessId, worker: &Worker) -> Arc<View> {
        let member = Member::join(self.means(process, worker)).await.expect("the store is there");
        let view = member.view();
        worker.spawn(async move { _ = member.run().await }).detach();
        let is_ready = || view.may_act(worker.now()) && view.time().bounds(worker).is_some();
        for _ in 0..MOST_LOOKS {
            if is_ready() || view.is_put_out() {
                break;
            }
            worker.sleep(self.shape.lease / 16).await;
        }
        view
    }

    /// The nodes that are up.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        let machines = self.machines.borrow();
        machines.iter().filter(|machine| machine.alive).map(|machine| machine.node).collect()
    }

    /// Whether nothing is lost with one more node: every region has two whole copies where nodes are up.
    pub(super) fn may_lose_one(&self, config: &Config) -> bool {
        let machines = self.machines.borrow();
        let is_up = |replica: &&Replica| {
            let node = config.nodes.iter().find(|node| node.id == replica.node);
            let lives = |machine: &&Machine| machine.alive && !machine.lapsed.get();
            node.is_some_and(|node| {
                machines.iter().filter(lives).any(|it| it.incarnation == node.incarnation)
            })
        };
        config.regions.iter().all(|region| region.replicas.iter().filter(is_up).nth(1).is_some())
    }

    /// A machine dies, with all that is in its memory; which one, if there is one left that may.
    pub(super) fn kill_machine(&self, choice: u64) -> Option<usize> {
        let mut machines = self.machines.borrow_mut();
        let alive: Vec<usize> = (0..machines.len()).filter(|at| machines[*at].alive).collect();
        let number = *alive.get(choice as usize % alive.len().max(1))?;
        let machine = &mut machines[number];
        machine.alive = false;
        self.sim.kill_node(machine.node);
        machine.processes.drain(..).for_each(|process| self.sim.kill(process));
        Some(number)
    }

    /// A machine that died comes back, with nothing in its memory.
    pub(super) fn restart_machine(&self, number: usize) {
        let (node, versions) = {
            let machine = &self.machines.borrow()[number];
            (machine.node, machine.versions)
        };
        self.sim.restart_node(node);
        let lapsed = Rc::default();
        let (keeper, Newcomer { incarnation, .. }) = self.start_keeper(node, &lapsed, versions);
        let processes = vec![keeper, self.start_session(None)];
        let machine = &mut self.machines.borrow_mut()[number];
        *machine = Machine { node, incarnation, processes, alive: true, lapsed, versions };
    }

    /// Nodes that were put out although they lived begin another life.
    pub(super) fn revive(&self) {
        let machines = self.machines.borrow().len();
        for number in 0..machines {
            let put_out = {
                let machine = &mut self.machines.borrow_mut()[number];
                let put_out = machine.alive && machine.lapsed.get();
                if put_out {
                    machine.processes.drain(..).for_each(|process| self.sim.kill(process));
                }
                put_out
            };
            if put_out {
                probe!("a node that was put out begins another life");
                self.restart_machine(number);
            }
        }
    }
}
