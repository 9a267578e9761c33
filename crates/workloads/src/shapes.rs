//! What one transaction takes, by its shape and the protocol: round trips, verbs, and for how long it has its locks. Nobody else is
//! there, and addresses are known.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::{Counts, Phase};
use farside_index::{Client, Error, Intent, Table, TableOptions, Tx, Want};
use farside_sim::{Faults, Profile, Sim};
use farside_txn::{Effort, Holding, Limits, Protocol};

use crate::engine::{Failure, SimTables};

/// How many rows a transaction touches, all in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Rows that are read and written.
    pub updates: usize,
    /// Rows that are only read.
    pub reads: usize,
}

/// Where it runs.
#[derive(Clone, Copy, Debug)]
pub struct Bed {
    /// The hardware.
    pub profile: Profile,
    /// How transactions go through their phases.
    pub protocol: Protocol,
    /// Copies of each region.
    pub copies: usize,
    /// Whether commits are flushed.
    pub durable: bool,
}

/// What it took.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Round trips that were waited for.
    pub round_trips: u64,
    /// How long its locks were held, and for how many round trips.
    pub holding: Holding,
    before: Vec<Counts>,
    after: Vec<Counts>,
}

impl Taken {
    /// The verbs of a phase.
    pub fn phase(&self, phase: Phase) -> Counts {
        let at = usize::from(phase.0);
        self.after[at] - self.before[at]
    }
}

/// Rows of the table.
const ROWS: usize = 64;

/// Measures a transaction of a shape, the second one of its kind: caches are warm.
pub fn measure(bed: Bed, shape: Shape) -> Result<Taken, Failure> {
    assert!(shape.updates + shape.reads <= ROWS, "there are {ROWS} rows");
    let sim = Rc::new(Sim::new(bed.profile, 1, Faults::none()));
    let limits = Limits { durable: bed.durable, ..Limits::default() }.following(bed.protocol);
    let engine = SimTables::with_nodes(&sim, bed.copies, bed.copies, None)
        .with_real_clocks()
        .with_limits(|it| *it = limits);
    let worker = engine.add_thread(0);
    let client = engine.client(&worker);
    let taken = worker.block_on(async {
        let table = create(&client).await?;
        run(&client, &table, shape).await?;
        run(&client, &table, shape).await
    });
    sim.end();
    taken.map_err(|error: Error| Failure::Broken(error.to_string()))
}

async fn create(client: &Rc<Client>) -> Result<Table, Error> {
    let mut tx = client.begin().await?;
    let table = tx.create_table("rows", &TableOptions { value_bytes: 40 }).await?;
    tx.commit().await?;
    for row in 0..ROWS {
        let mut tx = client.begin().await?;
        tx.put(&table, &key(row), &[1; 40]).await?;
        tx.commit().await?;
        client.agent().quiesce().await;
    }
    Ok(table)
}

fn key(row: usize) -> [u8; 8] {
    (row as u64).to_be_bytes()
}

async fn run(client: &Rc<Client>, table: &Table, shape: Shape) -> Result<Taken, Error> {
    let agent = client.agent();
    let phases = || (0..Phase::COUNT as u8).map(|it| agent.tally().phase(Phase(it))).collect();
    let (before, held_before) = (phases(), agent.holding());
    let effort: Rc<Cell<Effort>> = Rc::default();
    let mut tx = client.begin().await?;
    tx.count_effort(&effort);
    step(&mut tx, table, shape).await?;
    tx.commit().await?;
    agent.quiesce().await;
    let holding = agent.holding() - held_before;
    Ok(Taken { round_trips: effort.get().round_trips, holding, before, after: phases() })
}

async fn step(tx: &mut Tx, table: &Table, shape: Shape) -> Result<(), Error> {
    let keys: Vec<_> = (0..shape.updates + shape.reads).map(key).collect();
    let intent = |row| if row < shape.updates { Intent::Update } else { Intent::Read };
    let wants = keys.iter().enumerate().map(|(row, key)| Want { table, key, intent: intent(row) });
    tx.read(&wants.collect::<Vec<_>>(), |_, _, _| {}).await?;
    for key in &keys[..shape.updates] {
        tx.update(table, key, &[2; 40]).await?;
    }
    Ok(())
}
