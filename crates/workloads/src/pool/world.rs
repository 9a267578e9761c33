//! The world of a run: what strikes, what is watched, and what must hold at the end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use farside_fabric::runtime::Random;
use farside_pool::Petition;
use farside_sim::{ClockModel, FaultKind, ProcessId, Profile, Sim};

use super::log::Log;
use super::machine::{Machine, NODE_BYTES, Process};
use super::schedule::Event;
use super::store::StoreWorld;
use super::timeline::Timeline;
use super::{LEASE, Outcome, Rule, Scenario};

const MACHINES: u16 = 4;
const CLIENTS: usize = 3;

/// An error is told when NICs have tried for so long, and what it struck is asked again (seed 1017).
const TOLD: Duration = Duration::from_micros(500);

/// How often the world is looked at, in true time.
const LOOK: Duration = Duration::from_micros(25);

/// What all parts of a run share.
pub(super) struct Shared {
    pub(super) sim: Weak<Sim>,
    pub(super) store: Rc<RefCell<StoreWorld>>,
    pub(super) log: RefCell<Log>,
    pub(super) lost: Cell<u64>,
    pub(super) without: Option<Rule>,
    /// Offices of managers that are only late are contested, too.
    pub(super) eager: bool,
    clients: Cell<u64>,
}

impl Shared {
    pub(super) fn next_client(&self) -> u64 {
        self.clients.set(self.clients.get() + 1);
        self.clients.get()
    }

    pub(super) fn true_ns(&self) -> u64 {
        self.sim.upgrade().map_or(0, |sim| sim.elapsed_ns())
    }
}

pub(super) struct World {
    pub(super) sim: Rc<Sim>,
    pub(super) shared: Rc<Shared>,
    random: Random,
    pub(super) machines: Vec<Machine>,
    pub(super) clients: Vec<Process>,
    /// What is to be undone, and when.
    undo: Vec<(u64, Undo)>,
    struck: BTreeMap<&'static str, u64>,
    /// Since when each region is not served.
    pub(super) unserved: BTreeMap<u16, u64>,
    pub(super) longest: u64,
    drained: u64,
    /// All machines but one share a host that is too busy: they stop together.
    crowded: bool,
    /// The next client has a clock that is not good enough.
    faulty_clock: bool,
    /// So has the first master.
    faulty_master: bool,
    pub(super) timeline: Timeline,
    /// Somebody who had a lease that should have ended.
    pub(super) late_lease: Option<String>,
}

#[derive(Clone, Copy)]
enum Undo {
    Restart(usize),
    Heal(usize),
    HealClient(usize, usize),
    StoreBack,
    StoreFast,
}

fn ns(span: Duration) -> u64 {
    span.as_nanos() as u64
}

pub(super) fn run(scenario: &Scenario, trace: bool) -> Outcome {
    let profile = Profile::named("connectx-5").expect("a profile of the table");
    let sim = Rc::new(Sim::new(profile, scenario.seed, scenario.faults));
    if trace {
        sim.trace();
    }
    let shared = Rc::new(Shared {
        sim: Rc::downgrade(&sim),
        store: Rc::default(),
        log: RefCell::default(),
        lost: Cell::new(0),
        without: scenario.without,
        eager: scenario.seed % 4 == 3 || scenario.without == Some(Rule::Contest),
        clients: Cell::new(0),
    });
    let mut world = World {
        sim: Rc::clone(&sim),
        shared: Rc::clone(&shared),
        random: Random::new(scenario.seed ^ 0x706f_6f6c),
        machines: Vec::new(),
        clients: Vec::new(),
        undo: Vec::new(),
        struck: BTreeMap::new(),
        unserved: BTreeMap::new(),
        longest: 0,
        drained: 0,
        crowded: scenario.seed % 8 == 5,
        faulty_clock: scenario.seed % 16 == 14,
        faulty_master: scenario.seed % 32 == 10,
        timeline: Timeline::default(),
        late_lease: None,
    };
    let observer = sim.add_process();
    let clock = sim.add_thread(observer);
    let violation = clock.block_on(world.play(observer, &clock, scenario)).err();
    let log = shared.log.borrow();
    let mut struck = sim.struck();
    struck.append(&mut world.struck);
    Outcome {
        violation,
        writes: log.writes.len() as u64,
        lost: shared.lost.get(),
        changes: log.configs.keys().next_back().copied().unwrap_or(0),
        struck,
        unserved: Duration::from_nanos(world.longest),
        masters: world.timeline.masters,
        uncertainty: world.timeline.mean(),
        clock_off: Duration::from_nanos(world.timeline.longest_off),
        digest: sim.digest(),
        trace: sim.take_trace(),
    }
}

impl World {
    async fn play(
        &mut self,
        observer: ProcessId,
        clock: &farside_fabric::Worker,
        scenario: &Scenario,
    ) -> Result<(), String> {
        self.begin();
        self.wait(clock, 12 * LEASE).await;
        // One fault after the other, each of which is over before the next.
        let orderly = scenario.seed % 2 == 1 && !self.crowded;
        for _ in 0..scenario.events {
            let gap = if orderly {
                14 * LEASE
            } else {
                LEASE / 4 + Duration::from_nanos(self.random.below(ns(4 * LEASE)))
            };
            if orderly {
                self.unserved.clear();
            }
            let event = Event::any(&mut self.random);
            self.strike(event);
            self.watch(clock, gap, orderly).await;
            let errors = scenario.faults.rate(FaultKind::Error) > 0;
            let told = if errors { TOLD } else { Duration::ZERO };
            let bound = 3 * LEASE + LEASE / 4 + told;
            // A verb that is under way for many leases is a failure of its own.
            let prompt = scenario.faults.rate(FaultKind::Delay) == 0;
            if orderly && prompt && self.longest > ns(bound) {
                let longest = Duration::from_nanos(self.longest);
                return Err(format!(
                    "after {} a region was not served for {longest:?}",
                    event.name()
                ));
            }
        }
        // Everything heals, and then all is well within a while.
        self.heal();
        self.wait(clock, 100 * LEASE).await;
        self.shared.log.borrow().check_primaries()?;
        self.shared.log.borrow().given_up.clone().map_or(Ok(()), Err)?;
        self.late_lease.clone().map_or(Ok(()), Err)?;
        self.timeline.violation.clone().map_or(Ok(()), Err)?;
        self.check_harmony()?;
        self.check_estates(observer, clock).await
    }

    /// Whatever is still broken is mended.
    fn heal(&mut self) {
        for (_, undo) in std::mem::take(&mut self.undo) {
            self.undo(undo);
        }
        let sessions = self.machines.iter().map(|machine| machine.session.id);
        let keepers = self.machines.iter().map(|machine| machine.keeper);
        for process in sessions.chain(keepers).chain(self.clients.iter().map(|client| client.id)) {
            for machine in &self.machines {
                self.sim.partition(process, machine.node, false);
            }
        }
        self.shared.store.borrow_mut().cut.clear();
        self.sim.calm();
    }

    /// Machines, the first of which founds the pool, and clients.
    fn begin(&mut self) {
        let mut nodes = Vec::new();
        let mut kept = Vec::new();
        for _ in 0..MACHINES {
            let node = self.sim.add_node(NODE_BYTES);
            let (keeper, newcomer, lapsed) = self.shared.start_keeper(node);
            if std::mem::take(&mut self.faulty_master) {
                self.sim.set_node_clock(node, ClockModel { offset_ns: 0, drift_ppb: 700_000 });
            }
            let life = newcomer.incarnation;
            nodes.push(newcomer);
            kept.push((node, keeper, life, lapsed));
        }
        for (number, (node, keeper, life, lapsed)) in kept.into_iter().enumerate() {
            let found = (number == 0).then(|| nodes.clone());
            let session = self.shared.start_process(found);
            let machine = Machine {
                node,
                keeper,
                life,
                session,
                alive: true,
                isolated: false,
                companion: None,
                paused_until_ns: 0,
                lapsed,
            };
            self.machines.push(machine);
        }
        for _ in 0..CLIENTS {
            self.add_client();
        }
    }

    fn add_client(&mut self) {
        let process = self.shared.start_process(None);
        if std::mem::take(&mut self.faulty_clock) {
            // From what is suspicious to what is broken.
            let drifts = [600_000, -800_000, 3_000_000, -2_000_000, 50_000_000];
            let drift_ppb = drifts[(process.client % 5) as usize];
            self.sim.set_clock(process.id, ClockModel { offset_ns: 0, drift_ppb });
        }
        self.shared.start_writer(&process);
        self.clients.push(process);
    }

    async fn wait(&mut self, clock: &farside_fabric::Worker, span: Duration) {
        self.watch(clock, span, false).await;
    }

    /// Lets time pass: undoes what is due, starts again what has ended, and measures.
    async fn watch(&mut self, clock: &farside_fabric::Worker, span: Duration, measured: bool) {
        let end = self.sim.elapsed_ns() + ns(span);
        while self.sim.elapsed_ns() < end {
            clock.sleep(LOOK).await;
            let now = self.sim.elapsed_ns();
            let due: Vec<_> =
                self.undo.iter().filter(|(at, _)| *at <= now).map(|(_, u)| *u).collect();
            self.undo.retain(|(at, _)| *at > now);
            due.into_iter().for_each(|undo| self.undo(undo));
            self.start_again();
            self.note_config();
            self.look_at_clocks(now);
            self.look_at_leases();
            if measured {
                self.measure(now);
            }
        }
    }

    fn note_config(&self) {
        let store = self.shared.store.borrow();
        if let Some(config) = store.stored.newest() {
            let lives = self.machines.iter().map(|machine| machine.life).collect();
            self.shared.log.borrow_mut().note(config, &lives);
        }
    }

    /// What has ended by itself begins again.
    fn start_again(&mut self) {
        for number in 0..self.machines.len() {
            let machine = &self.machines[number];
            if machine.alive && machine.lapsed.get().is_some() {
                self.restart(number);
            }
            if self.machines[number].alive && self.machines[number].session.ended.get() {
                self.sim.kill(self.machines[number].session.id);
                self.machines[number].session = self.shared.start_process(None);
            }
        }
        for number in 0..self.clients.len() {
            if self.clients[number].alive && self.clients[number].ended.get() {
                self.kill_client(number);
            }
        }
        self.clients.retain(|client| client.alive);
        while self.clients.len() < CLIENTS {
            self.add_client();
        }
    }

    fn kill_client(&mut self, number: usize) {
        self.sim.kill(self.clients[number].id);
        self.clients[number].alive = false;
    }

    /// Another life of a machine: empty memory, new processes.
    fn restart(&mut self, number: usize) {
        let node = self.machines[number].node;
        self.sim.kill(self.machines[number].keeper);
        self.sim.kill(self.machines[number].session.id);
        self.sim.kill_node(node);
        self.sim.restart_node(node);
        let (keeper, newcomer, lapsed) = self.shared.start_keeper(node);
        let session = self.shared.start_process(None);
        let (isolated, companion) =
            (self.machines[number].isolated, self.machines[number].companion);
        self.machines[number] = Machine {
            node,
            keeper,
            life: newcomer.incarnation,
            session,
            alive: true,
            isolated,
            companion,
            paused_until_ns: 0,
            lapsed,
        };
        if isolated {
            self.cut_machine(number, true);
        }
    }

    fn later(&mut self, least: Duration, spread: Duration, undo: Undo) {
        let at = self.sim.elapsed_ns() + ns(least) + self.random.below(ns(spread));
        self.undo.push((at, undo));
    }

    fn strike(&mut self, event: Event) {
        let number = self.random.below(self.machines.len() as u64) as usize;
        let client = self.random.below(self.clients.len() as u64) as usize;
        let pause = LEASE / 8 + Duration::from_nanos(self.random.below(ns(4 * LEASE)));
        let now = self.sim.elapsed_ns();
        if !self.machines[number].alive {
            return;
        }
        *self.struck.entry(event.name()).or_default() += 1;
        match event {
            Event::KillMachine => {
                self.sim.kill(self.machines[number].keeper);
                self.sim.kill(self.machines[number].session.id);
                self.sim.kill_node(self.machines[number].node);
                self.machines[number].alive = false;
                self.later(LEASE * 3, LEASE * 4, Undo::Restart(number));
            }
            Event::RestartMachine => self.restart(number),
            Event::KillKeeper => {
                self.sim.kill(self.machines[number].keeper);
                self.machines[number].alive = false;
                if self.random.below(2) == 0 {
                    self.sim.kill(self.machines[number].session.id);
                }
                self.later(LEASE * 5, LEASE * 2, Undo::Restart(number));
            }
            Event::PauseMachine if self.crowded => {
                (0..self.machines.len())
                    .filter(|it| *it != number)
                    .for_each(|it| self.pause(it, pause));
            }
            Event::PauseMachine => {
                self.pause(number, pause);
                if self.random.below(2) == 0 {
                    self.sim.pause_node(self.machines[number].node, pause);
                }
            }
            Event::IsolateMachine => {
                self.machines[number].isolated = true;
                let companion = self.random.below(2) == 0;
                self.machines[number].companion = companion.then_some(self.clients[client].client);
                self.cut_machine(number, true);
                self.later(LEASE / 2, LEASE * 6, Undo::Heal(number));
            }
            Event::KillClient => self.kill_client(client),
            Event::PauseClient => {
                self.clients[client].paused_until_ns = now + ns(pause);
                self.sim.pause(self.clients[client].id, pause);
            }
            Event::CutClient => {
                self.sim.partition(self.clients[client].id, self.machines[number].node, true);
                let heal = Undo::HealClient(client, number);
                self.later(LEASE / 2, LEASE * 4, heal);
            }
            Event::StoreAway => {
                self.shared.store.borrow_mut().away = true;
                self.later(LEASE / 2, LEASE * 4, Undo::StoreBack);
            }
            Event::StoreSlow => {
                self.shared.store.borrow_mut().late = LEASE / 4;
                self.later(LEASE, LEASE * 4, Undo::StoreFast);
            }
            Event::Drain => self.drain(number),
        }
    }

    /// All processes of a machine stop for a while.
    fn pause(&mut self, number: usize, pause: Duration) {
        let until = self.sim.elapsed_ns() + ns(pause);
        let machine = &mut self.machines[number];
        (machine.paused_until_ns, machine.session.paused_until_ns) = (until, until);
        self.sim.pause(machine.keeper, pause);
        self.sim.pause(machine.session.id, pause);
    }

    /// Somebody asks for a machine to leave the pool.
    fn drain(&mut self, number: usize) {
        let address = self.machines[number].node.0.to_string();
        let mut store = self.shared.store.borrow_mut();
        let member = store.stored.newest().and_then(|config| {
            config.nodes.iter().find(|node| node.address == address).map(|node| node.id)
        });
        if let Some(node) = member {
            self.drained += 1;
            let key = format!("drain-{}", self.drained);
            store.stored.petition(&key, &Petition::Drain { node }.encode());
        }
    }

    /// Cuts a machine off from all others, or heals that.
    fn cut_machine(&mut self, number: usize, cut: bool) {
        let node = self.machines[number].node;
        let mine = [self.machines[number].keeper, self.machines[number].session.id];
        let from_store = cut && self.random.below(4) > 0;
        for (other, machine) in self.machines.iter().enumerate() {
            if other == number {
                continue;
            }
            self.sim.partition(machine.session.id, node, cut || machine.isolated);
            for process in mine {
                self.sim.partition(process, machine.node, cut || machine.isolated);
            }
        }
        let companion = self.machines[number].companion;
        for client in &self.clients {
            let is_companion = companion == Some(client.client);
            self.sim.partition(client.id, node, cut && !is_companion);
            for machine in
                self.machines.iter().filter(|machine| is_companion && machine.node != node)
            {
                self.sim.partition(client.id, machine.node, cut || machine.isolated);
            }
        }
        let session = self.machines[number].session.client;
        let mut store = self.shared.store.borrow_mut();
        for client in companion.into_iter().chain([session]) {
            if from_store {
                store.cut.insert(client);
            } else {
                store.cut.remove(&client);
            }
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Restart(number) => self.restart(number),
            Undo::Heal(number) => {
                self.machines[number].isolated = false;
                self.cut_machine(number, false);
            }
            Undo::HealClient(client, number) => {
                if let Some(client) = self.clients.get(client) {
                    let machine = &self.machines[number];
                    self.sim.partition(client.id, machine.node, machine.isolated);
                }
            }
            Undo::StoreBack => self.shared.store.borrow_mut().away = false,
            Undo::StoreFast => self.shared.store.borrow_mut().late = Duration::ZERO,
        }
    }
}
