//! The simulator as its users see it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::runtime::{Random, Schedule, Timers};
use farside_fabric::{ClientId, FabricError, NodeId, Queue, Result, Services, Time, Worker};

use crate::adversary::{FaultKind, Faults};
use crate::busy::Busy;
use crate::link::SimLink;
use crate::nic::Nics;
use crate::node::Node;
use crate::process::{Clock, Code, Fate, Landing, Process, ProcessId, Thread};
use crate::profile::Profile;
use crate::runtime::SimRuntime;
use crate::world::{QueueSide, ThreadSchedule, World};

/// How a machine's clock differs from true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClockModel {
    /// How far it is ahead at the start, in nanoseconds.
    pub offset_ns: u64,
    /// How much faster it runs, in parts per billion.
    pub drift_ppb: i64,
}

/// A simulated cluster. It ends when this is dropped.
pub struct Sim {
    world: Rc<World>,
}

impl Sim {
    /// An empty world with this hardware, these faults, and everything random from `seed`.
    pub fn new(profile: Profile, seed: u64, faults: Faults) -> Self {
        Sim { world: Rc::new(World::new(profile, seed, faults)) }
    }

    /// Adds a memory node with zeroed memory.
    pub fn add_node(&self, bytes: u64) -> NodeId {
        let mut guard = self.world.state();
        let state = &mut *guard;
        let random = Random::new(state.random.draw());
        state.nodes.push(Node::new(&state.profile, bytes, random));
        NodeId(state.nodes.len() as u16 - 1)
    }

    /// A node is nearer than the others, by this share of their distance.
    pub fn move_near(&self, node: NodeId, share: f64) {
        let mut state = self.world.state();
        let wire = state.profile.wire;
        state.nodes[usize::from(node.0)].wire = (wire as f64 * share) as u64;
    }

    /// Adds a client process, on a machine of its own. With [`FaultKind::Clock`] its clock is off.
    pub fn add_process(&self) -> ProcessId {
        let next = self.world.state().processes.len() as u64 + 1;
        self.add_process_as(ClientId(next))
    }

    /// Adds a client process under an id of the caller's choice.
    pub fn add_process_as(&self, client: ClientId) -> ProcessId {
        let mut guard = self.world.state();
        let state = &mut *guard;
        let number = state.processes.len() as u32;
        let clock = if state.strikes(FaultKind::Clock) {
            let offset_ns = state.random.below(1_000_000);
            Clock { offset_ns, drift_ppb: state.random.below(200_001) as i64 - 100_000 }
        } else {
            Clock::default()
        };
        state.processes.push(Process {
            client,
            alive: true,
            paused_until: 0,
            exposed: false,
            nics: Nics::new(&state.profile),
            clock,
            fate: None,
            under_way: Vec::new(),
            posted: (0, 0),
            code: Code::default(),
        });
        ProcessId(number)
    }

    /// Adds a thread to a process: a worker with a core of its own.
    pub fn add_thread(&self, process: ProcessId) -> Worker {
        let (thread, worker) = {
            let mut guard = self.world.state();
            let state = &mut *guard;
            let thread = state.threads.len() as u32;
            let random = Random::new(state.random.draw());
            state.threads.push(Thread {
                process: process.0,
                queue: VecDeque::new(),
                cpu: state.now,
                busy: Default::default(),
                scheduled: false,
                timers: Timers::default(),
                random,
                worker: None,
            });
            let woken = Arc::clone(&self.world.woken);
            let schedule: Arc<dyn Schedule> = Arc::new(ThreadSchedule { thread, woken });
            let runtime = SimRuntime { world: Rc::clone(&self.world), thread, schedule };
            (thread, Worker::on(Box::new(runtime)))
        };
        self.world.state().threads[thread as usize].worker = Some(worker.clone());
        worker
    }

    /// Begins to count how busy everything is.
    pub fn watch(&self) {
        self.world.state().watch();
    }

    /// How busy everything was since then.
    pub fn busy(&self) -> Busy {
        self.world.state().busy()
    }

    /// A queue of a thread to a node.
    pub fn connect(&self, process: ProcessId, worker: &Worker, node: NodeId) -> Result<Queue> {
        let link = {
            let mut guard = self.world.state();
            let state = &mut *guard;
            let client = state.processes[process.0 as usize].client;
            let thread = state.threads.iter().position(|thread| {
                thread.worker.as_ref().is_some_and(|known| known.is_same(worker))
            });
            let thread = thread.ok_or_else(|| {
                let why = "it is not a thread of this world; make it with add_thread".into();
                FabricError::Setup { what: "connecting a worker".into(), why }
            })?;
            let it = state.nodes.get_mut(node.0 as usize).filter(|node| node.alive);
            let it = it.ok_or(FabricError::NodeGone(node))?;
            if it.fenced.contains(&client) {
                return Err(FabricError::Fenced(client));
            }
            let there = it.nics.connect();
            let here = state.processes[process.0 as usize].nics.connect();
            let incarnation = it.incarnation;
            state.queues.push(QueueSide {
                process: process.0,
                thread: thread as u32,
                node: u32::from(node.0),
                here,
                there,
                connection: 0,
                incarnation,
                last_arrival: 0,
                last_completion: 0,
                written: 0,
                read: 0,
                swapped: 0,
                flights: VecDeque::new(),
                unacknowledged: Vec::new(),
                touched: BTreeSet::new(),
                severed: false,
                failed: None,
            });
            state.start_looking();
            let queue = state.queues.len() as u32 - 1;
            SimLink { world: Rc::clone(&self.world), queue, node: u32::from(node.0) }
        };
        Ok(worker.queue(Box::new(link)))
    }

    /// The id under which a process is fenced.
    pub fn client(&self, process: ProcessId) -> ClientId {
        self.world.state().processes[process.0 as usize].client
    }

    /// The services of a node.
    pub fn services(&self, node: NodeId) -> Rc<Services> {
        Rc::clone(&self.world.state().nodes[node.0 as usize].services)
    }

    /// Lets the adversary strike a process, or spares it.
    pub fn expose(&self, process: ProcessId, exposed: bool) {
        self.world.state().processes[process.0 as usize].exposed = exposed;
    }

    /// Lets the adversary strike a node, or spares it.
    pub fn expose_node(&self, node: NodeId, exposed: bool) {
        self.world.state().nodes[node.0 as usize].exposed = exposed;
    }

    /// Sets a process's clock.
    pub fn set_clock(&self, process: ProcessId, clock: ClockModel) {
        let ClockModel { offset_ns, drift_ppb } = clock;
        self.world.state().processes[process.0 as usize].clock = Clock { offset_ns, drift_ppb };
    }

    /// The threads of a process pay for this from now on; usually they pay for verbs and switches alone.
    pub fn charge(&self, process: ProcessId, code: Code) {
        self.world.state().processes[process.0 as usize].code = code;
    }

    /// Sets the clock that a node tells.
    pub fn set_node_clock(&self, node: NodeId, clock: ClockModel) {
        let ClockModel { offset_ns, drift_ppb } = clock;
        self.world.state().nodes[node.0 as usize].clock = Clock { offset_ns, drift_ppb };
    }

    /// What the clock of a process says now.
    pub fn time_of(&self, process: ProcessId) -> Time {
        let state = self.world.state();
        state.processes[process.0 as usize].clock.read(state.now)
    }

    /// What the clock of a node says now.
    pub fn node_time(&self, node: NodeId) -> Time {
        let state = self.world.state();
        state.nodes[node.0 as usize].clock.read(state.now)
    }

    /// Kills a process as `kill -9` does.
    pub fn kill(&self, process: ProcessId) {
        self.world.state().kill_process(process.0);
    }

    /// Lets a process die when it has posted so many more doorbells, at least one.
    pub fn kill_at(&self, process: ProcessId, doorbells: u64, landing: Landing) {
        let fate = Fate { doorbells: doorbells.max(1), writing: false, landing };
        self.world.state().processes[process.0 as usize].fate = Some(fate);
    }

    /// The same, when it has posted so many that write several times.
    pub fn kill_writing(&self, process: ProcessId, doorbells: u64) {
        let fate = Fate { doorbells: doorbells.max(1), writing: true, landing: Landing::Some };
        self.world.state().processes[process.0 as usize].fate = Some(fate);
    }

    /// How many verbs each queue of a process had under way when it died as [`Sim::kill_at`] said.
    pub fn under_way_at_death(&self, process: ProcessId) -> Vec<u32> {
        self.world.state().processes[process.0 as usize].under_way.clone()
    }

    /// How many doorbells and verbs a process has posted.
    pub fn posted(&self, process: ProcessId) -> (u64, u64) {
        self.world.state().processes[process.0 as usize].posted
    }

    /// Whether a process is alive.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.world.state().processes[process.0 as usize].alive
    }

    /// Stops a process for a time.
    pub fn pause(&self, process: ProcessId, span: std::time::Duration) {
        self.world.state().pause_process(process.0, span.as_nanos() as u64 * 1000);
    }

    /// Stops a node for a time.
    pub fn pause_node(&self, node: NodeId, span: std::time::Duration) {
        self.world.state().pause_node(u32::from(node.0), span.as_nanos() as u64 * 1000);
    }

    /// Kills a node; what was not persistent is lost.
    pub fn kill_node(&self, node: NodeId) {
        self.world.state().kill_node(u32::from(node.0));
    }

    /// Brings a dead node back, as a new incarnation.
    pub fn restart_node(&self, node: NodeId) {
        self.world.state().restart_node(u32::from(node.0));
    }

    /// How often a node has come back.
    pub fn life(&self, node: NodeId) -> u64 {
        u64::from(self.world.state().nodes[usize::from(node.0)].incarnation)
    }

    /// Cuts the network between a process and a node, or heals it.
    pub fn partition(&self, process: ProcessId, node: NodeId, cut: bool) {
        let mut state = self.world.state();
        if cut {
            state.cut(process.0, u32::from(node.0));
        } else {
            state.cuts.remove(&(process.0, u32::from(node.0)));
        }
    }

    /// From now on the adversary does nothing.
    pub fn calm(&self) {
        self.world.state().faults = Faults::none();
    }

    /// True time since the start, in nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        self.world.state().now / 1000
    }

    /// How many verbs were posted.
    pub fn verbs(&self) -> u64 {
        self.world.state().verbs
    }

    /// A hash of everything that has happened.
    pub fn digest(&self) -> u64 {
        self.world.state().digest.value()
    }

    /// How often each kind of fault struck.
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        let state = self.world.state();
        let counts = FaultKind::ALL.into_iter().zip(state.struck);
        counts.filter(|(_, n)| *n > 0).map(|(kind, n)| (kind.name(), n)).collect()
    }

    /// The world ends: whatever tasks are left is dropped, with all that they have, such as this world.
    pub fn end(&self) {
        self.world.shut_down();
    }

    /// Writes down what happens from now on.
    pub fn trace(&self) {
        self.world.state().trace.enable();
    }

    /// The timeline so far.
    pub fn take_trace(&self) -> Vec<String> {
        self.world.state().trace.take()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.world.shut_down();
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").finish_non_exhaustive()
    }
}
