//! A transactional store as workloads see it: tables of 8-byte keys and small values.
//!
//! The reference engine and the real one are both behind this, so that whatever judges the one judges the
//! other.

mod code;
mod database;
mod reference;
mod sim_pool;
mod sim_tables;
mod tables;

pub use database::DatabaseEngine;
pub use farside_index::Intent;
pub use reference::{Flaw, Reference};
pub use sim_pool::PoolShape;
pub use sim_tables::SimTables;
pub(crate) use tables::table_name;
pub use tables::{TableSession, TableTxn, Tables};

use std::future::Future;

use farside_fabric::{Counts, Worker};
pub use farside_txn::{Effort, Holding, Limits, OldVersions, Versions};

/// A table, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Table(pub u16);

/// How large a table may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableShape {
    /// Which.
    pub table: Table,
    /// Its keys are below this.
    pub keys: u64,
    /// Its values are not longer.
    pub value_bytes: usize,
}

impl TableShape {
    /// Room for some tables: bytes of each copy, with what threads have at hand.
    pub fn room(tables: &[TableShape], threads: usize) -> u64 {
        /// What a row takes beside its value, at most.
        const PER_ROW: u64 = 160;
        /// Rings, slabs, and records that are kept for readers.
        const PER_THREAD: u64 = 8 << 20;
        /// Directories.
        const EXTRA: u64 = 256 << 20;
        let rows = tables.iter().map(|it| it.keys * (it.value_bytes as u64 + PER_ROW) * 3 / 2);
        rows.sum::<u64>() + threads as u64 * PER_THREAD + EXTRA
    }
}

/// Which row to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// In which table.
    pub table: Table,
    /// Under which key.
    pub key: u64,
    /// What for.
    pub intent: Intent,
}

/// Rows that were read, in the order in which they were wanted. Kept from one read to the next.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    rows: Vec<Row>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    version: u64,
    /// Where its value ends; `None`: it is absent.
    present: bool,
    begin: usize,
    end: usize,
}

impl Rows {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
    }

    /// Adds the next row: its version, and its value if it is there.
    pub fn push(&mut self, version: u64, value: Option<&[u8]>) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.rows.push(Row { version, present: value.is_some(), begin, end: self.bytes.len() });
    }

    /// A row's value; `None` if it is absent.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        let row = self.rows.get(number)?;
        row.present.then(|| &self.bytes[row.begin..row.end])
    }

    /// The commit time of whoever wrote a row; 0: it is as it was loaded, or never was; [`UNTOLD`] if it is not
    /// there, and the store does not know since when.
    ///
    /// [`UNTOLD`]: crate::history::UNTOLD
    pub fn version(&self, number: usize) -> u64 {
        self.rows.get(number).map_or(0, |row| row.version)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Why a transaction did not commit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Others were in the way: to be tried again.
    #[error("a conflict with another transaction")]
    Conflict,
    /// Nobody knows yet whether it did.
    #[error("the outcome is not known")]
    Unknown,
    /// It did not, and this process can do nothing more: it was taken for dead.
    #[error("this process was taken for dead")]
    Over,
    /// Something that trying again does not mend.
    #[error("{0}")]
    Broken(String),
}

/// A store.
pub trait Engine {
    /// What a coordinator works with.
    type Session: Session;

    /// Makes room for tables, before anything is loaded.
    fn create(
        &self,
        _worker: &Worker,
        _tables: &[TableShape],
    ) -> impl Future<Output = Result<(), Failure>> {
        std::future::ready(Ok(()))
    }

    /// The time of histories, in nanoseconds: one clock for all threads.
    fn now(&self, worker: &Worker) -> u64 {
        worker.now().0
    }

    /// A thread begins to use the store.
    fn join(&self, _worker: &Worker) -> impl Future<Output = Result<(), Failure>> {
        std::future::ready(Ok(()))
    }

    /// It does not any more.
    fn leave(&self, _worker: &Worker) {}

    /// The verbs of a thread's transactions so far.
    fn counts(&self, _worker: &Worker) -> Counts {
        Counts::default()
    }

    /// How long a thread's transactions have held their locks so far.
    fn holding(&self, _worker: &Worker) -> Holding {
        Holding::default()
    }

    /// A coordinator's session, on a thread.
    fn session(&self, worker: &Worker) -> Self::Session;

    /// Fills a table before the run.
    fn load(
        &self,
        worker: &Worker,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> impl Future<Output = Result<(), Failure>>;
}

/// What a coordinator works with: one transaction after the other.
pub trait Session: 'static {
    /// A transaction.
    type Txn<'s>: Transaction
    where
        Self: 's;

    /// What its transactions took so far.
    fn effort(&self) -> Effort {
        Effort::default()
    }

    /// Begins one.
    fn begin(&mut self) -> impl Future<Output = Result<Self::Txn<'_>, Failure>>;
}

/// A transaction. Dropping it aborts it.
pub trait Transaction {
    /// Reads some rows, which do not depend on each other: one step. Own writes are seen.
    fn read(
        &mut self,
        wants: &[Want],
        rows: &mut Rows,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Writes a row, or with `None` deletes it.
    fn write(
        &mut self,
        table: Table,
        key: u64,
        value: Option<&[u8]>,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// The time as of which it reads, as far as the store knows one: no writer that commits later is seen.
    fn read_time(&self) -> Option<u64> {
        None
    }

    /// Commits; its commit time, if it has written anything or the store has one anyway.
    fn commit(self) -> impl Future<Output = Result<Option<u64>, Failure>>;
}
