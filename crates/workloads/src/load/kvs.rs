//! Keys and values, chosen evenly or with a skew: some transactions only read (`ford.txt` §6.2.1), the others write.

use farside_fabric::Worker;
use farside_fabric::runtime::Random;

use super::value::{check_filled, filled};
use super::{Effect, Tx, Workload, Zipf};
use crate::engine::{Engine, Failure, Intent, Session, Table, TableShape, Transaction, Want};
use crate::history::Outcome;

const STORE: Table = Table(3);

/// The workload.
#[derive(Debug)]
pub struct Kvs {
    keys: u64,
    value_bytes: usize,
    reader_percent: u64,
    objects: usize,
    /// How many of a hundred objects of a transaction that writes are only read.
    mixed_percent: u64,
    zipf: Zipf,
}

/// One object of a transaction: its key, and what is written to it.
type Access = (u64, Option<u64>);

/// How often keys are drawn for a transaction that has them already, before others are taken.
const MOST_DRAWS: u32 = 10_000;

impl Kvs {
    /// So many keys with values of so many bytes (at least 8), chosen with a skew; transactions with so
    /// many objects, of which so many of a hundred only read, and the others write all of them.
    pub fn new(
        keys: u64,
        value_bytes: usize,
        skew: f64,
        reader_percent: u64,
        objects: usize,
    ) -> Self {
        assert!(value_bytes >= 8 && objects as u64 <= keys, "room for a number, and enough keys");
        let zipf = Zipf::new(keys, skew);
        Kvs { keys, value_bytes, reader_percent, objects, mixed_percent: 0, zipf }
    }

    /// The same, where those that write only read so many of a hundred objects; at least one they write.
    #[must_use]
    pub fn mixing(mut self, percent: u64) -> Self {
        self.mixed_percent = percent;
        self
    }
}

impl Workload for Kvs {
    type Input = Vec<Access>;

    fn kinds(&self) -> &'static [&'static str] {
        &["read-only", "read-write"]
    }

    fn tables(&self) -> Vec<TableShape> {
        vec![TableShape { table: STORE, keys: self.keys, value_bytes: self.value_bytes }]
    }

    async fn setup<E: Engine>(&self, engine: &E, worker: &Worker) -> Result<(), Failure> {
        let mut rows = (0..self.keys).map(|key| (key, filled(self.value_bytes, key)));
        engine.load(worker, STORE, &mut rows).await
    }

    fn draw(&self, random: &mut Random) -> (usize, Vec<Access>) {
        let mut accesses: Vec<Access> = Vec::with_capacity(self.objects);
        let reads_only = random.below(100) < self.reader_percent;
        let mut draws = 0;
        while accesses.len() < self.objects {
            draws += 1;
            let key = match draws {
                ..=MOST_DRAWS => self.zipf.key(random),
                // Few are wanted so often that the others hardly ever come.
                _ => random.below(self.keys),
            };
            if accesses.iter().all(|(known, _)| *known != key) {
                let mixes = !accesses.is_empty() && random.below(100) < self.mixed_percent;
                let writes = !reads_only && !mixes;
                accesses.push((key, writes.then(|| random.draw())));
            }
        }
        (usize::from(!reads_only), accesses)
    }

    async fn attempt<T: Transaction>(
        &self,
        tx: &mut Tx<'_, T>,
        accesses: &Vec<Access>,
    ) -> Result<Effect, Failure> {
        let wants: Vec<Want> = accesses
            .iter()
            .map(|(key, value)| Want {
                table: STORE,
                key: *key,
                intent: if value.is_some() { Intent::Update } else { Intent::Read },
            })
            .collect();
        tx.read(&wants).await?;
        for (key, number) in accesses {
            if let Some(number) = number {
                tx.write(STORE, *key, Some(&filled(self.value_bytes, *number))).await?;
            }
        }
        Ok(Effect::default())
    }

    fn book(&self, _: &Vec<Access>, _: Effect, _: Outcome) {}

    async fn check<S: Session>(&self, session: &mut S) -> Result<(), String> {
        check_filled(session, STORE, self.keys, self.value_bytes).await
    }
}
