//! A process dies at every verb of every SmallBank transaction, and of what it has under way every part that may land
//! does; and so does whoever repairs that. Everybody else goes on soon, and sees all of the transaction, or nothing.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::Worker;
use farside_fabric::runtime::Random;
use farside_sim::{Faults, Landing, ProcessId, Profile, Sim};
use farside_txn::Trap;
use farside_workloads::engine::{
    Engine, Failure, Intent, Rows, Session, SimTables, Table, Transaction, Want,
};
use farside_workloads::history::Recorder;
use farside_workloads::load::{SmallBank, Tx, Workload};

const LEASE: Duration = Duration::from_millis(10);

/// The accounts, and their tables.
const ACCOUNTS: u64 = 4;
const TABLES: [Table; 2] = [Table(10), Table(11)];

type Input = <SmallBank as Workload>::Input;

/// Two machines that work, and one that looks.
struct World {
    sim: Rc<Sim>,
    engine: SimTables,
    bank: Rc<SmallBank>,
    machines: [(ProcessId, Worker); 3],
}

/// How a transaction of the first machine ended, as far as that was told.
type Told = Rc<Cell<Option<bool>>>;

impl World {
    fn new() -> Self {
        Self::without(None)
    }

    /// In which a rule is left out.
    fn without(trap: Option<Trap>) -> Self {
        let profile = Profile::named("connectx-5").expect("a profile of the table");
        let sim = Rc::new(Sim::new(profile, 1, Faults::none()));
        // Clocks that agree: what is measured is round trips.
        let engine = SimTables::new(&sim, 3, trap).with_clocks(1).with_lease(LEASE);
        let bank = Rc::new(SmallBank::new(ACCOUNTS));
        let (loader, worker) = engine.add_machine(0);
        worker.block_on(async {
            engine.create(&worker, &bank.tables()).await.unwrap();
            bank.setup(&engine, &worker).await.unwrap();
        });
        let machines = [engine.add_machine(0), engine.add_machine(0), (loader, worker)];
        let world = World { sim, engine, bank, machines };
        // Everybody has its rings, and knows where the rows are.
        for (_, worker) in &world.machines {
            worker.block_on(world.touch_all(worker));
            worker.block_on(worker.sleep(Duration::from_micros(100)));
        }
        world
    }

    fn worker(&self, machine: usize) -> &Worker {
        &self.machines[machine].1
    }

    /// Lets a machine begin a transaction.
    fn begin(&self, machine: usize, input: Input) -> Told {
        let (told, worker) = (Told::default(), self.worker(machine).clone());
        let (engine, bank, tell) = (self.engine.clone(), Rc::clone(&self.bank), Rc::clone(&told));
        let clone = worker.clone();
        let run = async move {
            let mut session = engine.session(&clone);
            let (mut log, mut rows) = (Recorder::deaf(), Rows::default());
            let mut tx = Tx::new(session.begin().await?, &mut log, &mut rows);
            bank.attempt(&mut tx, &input).await?;
            tell.set(Some(tx.commit().await?.is_some()));
            Ok::<_, Failure>(())
        };
        worker.spawn(async move { _ = run.await }).detach();
        told
    }

    /// Writes every row as it is, in one transaction, and returns them.
    async fn touch_all(&self, worker: &Worker) -> Vec<Vec<u8>> {
        let mut session = self.engine.session(worker);
        let keys = (0..ACCOUNTS).flat_map(|key| TABLES.map(|table| (table, key)));
        let wants: Vec<Want> =
            keys.map(|(table, key)| Want { table, key, intent: Intent::Update }).collect();
        loop {
            let touched = async {
                let (mut tx, mut rows) = (session.begin().await?, Rows::default());
                tx.read(&wants, &mut rows).await?;
                let values: Vec<_> =
                    (0..wants.len()).map(|at| rows.get(at).unwrap().to_vec()).collect();
                for (want, value) in wants.iter().zip(&values) {
                    tx.write(want.table, want.key, Some(value)).await?;
                }
                tx.commit().await?;
                Ok::<_, Failure>(values)
            };
            match touched.await {
                Ok(values) => return values,
                Err(Failure::Conflict) => worker.sleep(Duration::from_nanos(500)).await,
                Err(other) => panic!("whoever comes next: {other}"),
            }
        }
    }

    /// Lets things happen until a machine is dead, or enough time is past.
    fn wait_for_death(&self, machine: usize) -> bool {
        let (process, _) = self.machines[machine];
        for _ in 0..1000 {
            if !self.sim.is_alive(process) {
                return true;
            }
            let worker = self.worker(2);
            worker.block_on(worker.sleep(Duration::from_nanos(100)));
        }
        false
    }

    /// Lets a machine repair what the first one left behind, at once.
    fn repair(&self, machine: usize) {
        let worker = self.worker(machine).clone();
        let (agent, dead) =
            (Rc::clone(self.engine.client(&worker).agent()), self.sim.client(self.machines[0].0));
        worker.spawn(async move { agent.repair_now(dead).await }).detach();
    }

    /// A round trip without anybody in the way, in nanoseconds.
    fn round_trip(&self) -> u64 {
        let start = self.sim.elapsed_ns();
        let worker = self.worker(2);
        worker.block_on(async {
            let mut session = self.engine.session(worker);
            let (mut tx, mut rows) = (session.begin().await.unwrap(), Rows::default());
            let want = Want { table: TABLES[0], key: 0, intent: Intent::Read };
            tx.read(&[want], &mut rows).await.unwrap();
        });
        self.sim.elapsed_ns() - start
    }
}

/// All ways to let some of the verbs land that are under way.
fn landings(under_way: &[u32]) -> Vec<Vec<u32>> {
    under_way.iter().fold(vec![Vec::new()], |all, most| {
        let more = |some: Vec<u32>| {
            (0..=*most).map(move |landed| [&some[..], &[landed]].concat()).collect::<Vec<_>>()
        };
        all.into_iter().flat_map(more).collect()
    })
}

/// One transaction of each kind that commits.
fn inputs() -> Vec<(&'static str, Input)> {
    let bank = SmallBank::new(ACCOUNTS);
    let mut random = Random::new(3);
    let mut found: Vec<(&'static str, Input)> = Vec::new();
    while found.len() < bank.kinds().len() {
        let (kind, input) = bank.draw(&mut random);
        let name = bank.kinds()[kind];
        if found.iter().all(|(known, _)| *known != name) {
            found.push((name, input));
        }
    }
    found
}

/// What is there before and after a transaction, and how many doorbells and verbs it has.
fn undisturbed(input: Input) -> ([Vec<Vec<u8>>; 2], (u64, u64)) {
    let world = World::new();
    let before = world.worker(1).block_on(world.touch_all(world.worker(1)));
    let start = world.sim.posted(world.machines[0].0);
    let told = world.begin(0, input);
    let worker = world.worker(1);
    worker.block_on(worker.sleep(Duration::from_micros(60)));
    assert!(told.get().is_some());
    let end = world.sim.posted(world.machines[0].0);
    let after = worker.block_on(world.touch_all(worker));
    ([before, after], (end.0 - start.0, end.1 - start.1))
}

/// The first machine dies in the middle of a transaction. What it had under way then.
fn die(world: &World, input: Input, doorbell: u64, landing: Landing) -> (Told, Vec<u32>) {
    let victim = world.machines[0].0;
    world.sim.kill_at(victim, doorbell, landing);
    let told = world.begin(0, input);
    assert!(world.wait_for_death(0), "it lives after doorbell {doorbell}");
    (told, world.sim.under_way_at_death(victim))
}

/// Whoever comes next is done soon after a death, and sees all or nothing; or what it sees instead.
fn look(world: &World, died: u64, told: &Told, states: &[Vec<Vec<u8>>; 2]) -> Result<bool, String> {
    let round_trip = world.round_trip();
    let worker = world.worker(2);
    let seen = worker.block_on(world.touch_all(worker));
    let took = world.sim.elapsed_ns() - died;
    let most = LEASE.as_nanos() as u64 + 12 * round_trip;
    if took > most {
        return Err(format!("{took} ns, at most {most}"));
    }
    if !states.contains(&seen) {
        return Err("neither before nor after".into());
    }
    if told.get().is_some() && seen != states[1] {
        return Err("a commit was reported".into());
    }
    Ok(seen == states[1] && states[0] != states[1])
}

fn judge(world: &World, died: u64, told: &Told, states: &[Vec<Vec<u8>>; 2], what: &str) -> bool {
    look(world, died, told, states).unwrap_or_else(|why| panic!("{what}: {why}"))
}

#[test]
fn whoever_dies_anywhere_leaves_all_or_nothing() {
    let (mut points, mut counted, mut runs, mut committed) = (0, 0, 0, 0);
    for (name, input) in inputs() {
        let (states, (doorbells, verbs)) = undisturbed(input);
        counted += verbs;
        for doorbell in 1..=doorbells {
            let all = Landing::Exactly { verbs: vec![u32::MAX; 64], torn: false };
            let world = World::new();
            let start = world.sim.posted(world.machines[0].0);
            let (_, under_way) = die(&world, input, doorbell, all);
            if doorbell == doorbells {
                points += world.sim.posted(world.machines[0].0).1 - start.1;
            }
            for verbs in landings(&under_way) {
                for torn in [false, true] {
                    let what = format!("{name}, doorbell {doorbell}, {verbs:?}, torn {torn}");
                    let landing = Landing::Exactly { verbs: verbs.clone(), torn };
                    let world = World::new();
                    let (told, _) = die(&world, input, doorbell, landing);
                    let died = world.sim.elapsed_ns();
                    committed += u64::from(judge(&world, died, &told, &states, &what));
                    runs += 1;
                }
            }
        }
    }
    println!("{points} crash points, {runs} runs, of which {committed} committed");
    assert_eq!(points, counted, "a process dies behind every verb");
    assert!(committed > 0);
}

/// The same for the first who repairs that: it dies at each of its verbs.
#[test]
fn whoever_repairs_may_die_anywhere() {
    let (mut points, mut runs, mut committed) = (0, 0, 0);
    // One that writes three rows; what the first has under way lands in order, as it was posted.
    let (_, input) = inputs().into_iter().find(|(name, _)| *name == "amalgamate").unwrap();
    let (states, (doorbells, _)) = undisturbed(input);
    for doorbell in 1..=doorbells {
        for landing in
            [Landing::Exactly { verbs: vec![u32::MAX; 64], torn: false }].into_iter().chain(
                [0, 1, 2, 3].map(|verbs| Landing::Exactly { verbs: vec![verbs; 64], torn: false }),
            )
        {
            let repair = || {
                let world = World::new();
                let (told, _) = die(&world, input, doorbell, landing.clone());
                (world, told)
            };
            // How much there is to repair.
            let (world, _) = repair();
            let start = world.sim.posted(world.machines[1].0);
            world.repair(1);
            let worker = world.worker(2);
            worker.block_on(worker.sleep(Duration::from_micros(60)));
            let end = world.sim.posted(world.machines[1].0);
            points += end.1 - start.1;
            for death in 1..=end.0 - start.0 {
                for landed in 0..4 {
                    let (world, told) = repair();
                    let landing = Landing::Exactly { verbs: vec![landed; 64], torn: landed > 1 };
                    world.sim.kill_at(world.machines[1].0, death, landing);
                    world.repair(1);
                    assert!(world.wait_for_death(1), "a repairer lives after doorbell {death}");
                    let what = format!("{doorbell}, repairer {death}, {landed} landed");
                    let died = world.sim.elapsed_ns();
                    committed += u64::from(judge(&world, died, &told, &states, &what));
                    runs += 1;
                }
            }
        }
    }
    println!("{points} verbs of repairers, {runs} runs, of which {committed} committed");
    assert!(committed > 0);
}

/// What records say how many objects there are for: without that, a transaction of which some objects are whole everywhere, and
/// others have no record yet, is taken for one that has committed.
#[test]
fn records_that_do_not_tell_how_many_leave_a_half() {
    let (_, input) = inputs().into_iter().find(|(name, _)| *name == "amalgamate").unwrap();
    let (states, (doorbells, _)) = undisturbed(input);
    let halves = (1..=doorbells).flat_map(|doorbell| (0..8).map(move |verbs| (doorbell, verbs)));
    let mut found = halves.filter_map(|(doorbell, verbs)| {
        let world = World::without(Some(Trap::RecordWithoutN));
        let landing = Landing::Exactly { verbs: vec![verbs; 64], torn: false };
        let (told, _) = die(&world, input, doorbell, landing);
        look(&world, world.sim.elapsed_ns(), &told, &states).err()
    });
    assert_eq!(found.next().as_deref(), Some("neither before nor after"));
}
