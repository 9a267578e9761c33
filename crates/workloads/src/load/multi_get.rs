//! Long reads against updates: transactions that read many rows, and others that update one, both chosen evenly
//! (`farmv2.txt` §5.3, without the order of a tree). As many rows are read as are updated, over all that commit.

use farside_fabric::Worker;
use farside_fabric::runtime::Random;

use super::value::{check_filled, filled};
use super::{Effect, Tx, Workload};
use crate::engine::{Engine, Failure, Intent, Session, Table, TableShape, Transaction, Want};
use crate::history::Outcome;

const ROWS: Table = Table(7);

/// The workload.
#[derive(Debug)]
pub struct MultiGet {
    keys: u64,
    value_bytes: usize,
    /// Rows that a reader reads.
    objects: u64,
}

/// A transaction.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Reads a range of keys, from this one on and round.
    Get(u64),
    /// Writes a number to a key.
    Update(u64, u64),
}

impl MultiGet {
    /// So many keys with values of so many bytes (at least 8); readers read so many of them.
    pub fn new(keys: u64, value_bytes: usize, objects: u64) -> Self {
        assert!(value_bytes >= 8 && objects <= keys, "room for a number, and enough keys");
        MultiGet { keys, value_bytes, objects }
    }
}

impl Workload for MultiGet {
    type Input = Act;

    fn kinds(&self) -> &'static [&'static str] {
        &["multi-get", "update"]
    }

    fn tables(&self) -> Vec<TableShape> {
        vec![TableShape { table: ROWS, keys: self.keys, value_bytes: self.value_bytes }]
    }

    async fn setup<E: Engine>(&self, engine: &E, worker: &Worker) -> Result<(), Failure> {
        let mut rows = (0..self.keys).map(|key| (key, filled(self.value_bytes, key)));
        engine.load(worker, ROWS, &mut rows).await
    }

    fn draw(&self, random: &mut Random) -> (usize, Act) {
        let key = random.below(self.keys);
        // Every transaction is tried until it commits.
        match random.below(self.objects + 1) {
            0 => (0, Act::Get(key)),
            _ => (1, Act::Update(key, random.draw())),
        }
    }

    async fn attempt<T: Transaction>(
        &self,
        tx: &mut Tx<'_, T>,
        act: &Act,
    ) -> Result<Effect, Failure> {
        let want = |key: u64, intent| Want { table: ROWS, key: key % self.keys, intent };
        match *act {
            Act::Get(first) => {
                let wants = (first..first + self.objects).map(|key| want(key, Intent::Read));
                tx.read(&wants.collect::<Vec<_>>()).await?;
            }
            Act::Update(key, number) => {
                tx.read(&[want(key, Intent::Update)]).await?;
                tx.write(ROWS, key, Some(&filled(self.value_bytes, number))).await?;
            }
        }
        Ok(Effect::default())
    }

    fn book(&self, _: &Act, _: Effect, _: Outcome) {}

    async fn check<S: Session>(&self, session: &mut S) -> Result<(), String> {
        check_filled(session, ROWS, self.keys, self.value_bytes).await
    }
}
