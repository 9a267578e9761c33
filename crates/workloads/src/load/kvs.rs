//! Keys and values: some are read and some written, chosen evenly or with a skew.

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
    read_percent: u64,
    objects: usize,
    /// How many of a hundred transactions only read; otherwise as it comes.
    reader_percent: Option<u64>,
    zipf: Zipf,
}

/// One object of a transaction: its key, and what is written to it.
type Access = (u64, Option<u64>);

/// How often keys are drawn for a transaction that has them already, before others are taken.
const MOST_DRAWS: u32 = 10_000;

impl Kvs {
    /// So many keys with values of so many bytes (at least 8), chosen with a skew; transactions with so
    /// many objects, of which so many of a hundred are only read.
    pub fn new(
        keys: u64,
        value_bytes: usize,
        skew: f64,
        read_percent: u64,
        objects: usize,
    ) -> Self {
        assert!(value_bytes >= 8 && objects as u64 <= keys, "room for a number, and enough keys");
        let zipf = Zipf::new(keys, skew);
        Kvs { keys, value_bytes, read_percent, objects, reader_percent: None, zipf }
    }

    /// The same, with so many of a hundred transactions that only read; the others write something.
    #[must_use]
    pub fn with_readers(mut self, percent: Option<u64>) -> Self {
        self.reader_percent = percent;
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
        let reads_only = self.reader_percent.map(|percent| random.below(100) < percent);
        let mut draws = 0;
        while accesses.len() < self.objects {
            draws += 1;
            let key = match draws {
                ..=MOST_DRAWS => self.zipf.key(random),
                // Few are wanted so often that the others hardly ever come.
                _ => random.below(self.keys),
            };
            if accesses.iter().all(|(known, _)| *known != key) {
                let writes = match reads_only {
                    Some(true) => false,
                    Some(false) if accesses.is_empty() => true,
                    _ => random.below(100) >= self.read_percent,
                };
                accesses.push((key, writes.then(|| random.draw())));
            }
        }
        let writes = accesses.iter().any(|(_, value)| value.is_some());
        (usize::from(writes), accesses)
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
