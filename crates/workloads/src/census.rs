//! What the transactions of a workload touch, by their kinds: rows that they only read, and rows that they update.

use std::collections::BTreeMap;

use farside_fabric::Worker;
use farside_fabric::runtime::Random;

use crate::engine::{
    Engine, Failure, Flaw, Intent, Reference, Rows, Session, Table, Transaction, Want,
};
use crate::history::Recorder;
use crate::load::{Tx, Workload};

/// The transactions of a kind.
#[derive(Clone, Debug, Default)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// How many there were.
    pub transactions: u64,
    /// What they touched.
    pub touched: BTreeMap<Table, Touched>,
}

/// Rows of a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touched {
    /// Those that were only read.
    pub reads: u64,
    /// Those that were updated, inserted or deleted.
    pub updates: u64,
}

/// Counts what so many transactions touch, one after the other in the memory of this process.
pub fn census<W: Workload>(workload: &W, count: u64, seed: u64) -> Result<Vec<Kind>, Failure> {
    let (engine, worker) = (Reference::new(None::<Flaw>), Worker::new(seed));
    let names = workload.kinds().iter();
    let mut kinds: Vec<Kind> = names.map(|name| Kind { name, ..Kind::default() }).collect();
    worker.block_on(async {
        engine.create(&worker, &workload.tables()).await?;
        workload.setup(&engine, &worker).await?;
        let mut session = engine.session(&worker);
        let (mut random, mut log, mut rows) =
            (Random::new(seed), Recorder::deaf(), Rows::default());
        for _ in 0..count {
            let (kind, input) = workload.draw(&mut random);
            let kind = &mut kinds[kind];
            let counting = Counting { inner: session.begin().await?, touched: &mut kind.touched };
            let mut tx = Tx::new(counting, &mut log, &mut rows);
            workload.attempt(&mut tx, &input).await?;
            tx.commit().await?;
            kind.transactions += 1;
        }
        Ok(kinds)
    })
}

/// A transaction whose reads are counted: whoever updates a row asks for it before.
struct Counting<'a, T> {
    inner: T,
    touched: &'a mut BTreeMap<Table, Touched>,
}

impl<T: Transaction> Transaction for Counting<'_, T> {
    async fn read(&mut self, wants: &[Want], rows: &mut Rows) -> Result<(), Failure> {
        for want in wants {
            let touched = self.touched.entry(want.table).or_default();
            match want.intent {
                Intent::Read => touched.reads += 1,
                _ => touched.updates += 1,
            }
        }
        self.inner.read(wants, rows).await
    }

    async fn write(&mut self, table: Table, key: u64, value: Option<&[u8]>) -> Result<(), Failure> {
        self.inner.write(table, key, value).await
    }

    async fn commit(self) -> Result<Option<u64>, Failure> {
        self.inner.commit().await
    }
}
