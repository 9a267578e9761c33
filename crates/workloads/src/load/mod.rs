//! Workloads: what is loaded, which transactions run, and what must hold in the end.

mod choice;
mod counter;
mod draw;
mod kvs;
mod list_append;
mod multi_get;
mod smallbank;
mod tatp;
mod transfer;
mod tx;
mod value;

pub use choice::{Kind, Shape, Visit};
pub use counter::Counter;
pub use draw::{Hot, MOST_SKEW, Mix, Zipf};
pub use kvs::Kvs;
pub use list_append::ListAppend;
pub use multi_get::MultiGet;
pub use smallbank::SmallBank;
pub use tatp::Tatp;
pub use transfer::Transfer;
pub use tx::Tx;

use std::future::Future;

use farside_fabric::Worker;
use farside_fabric::runtime::Random;

use crate::engine::{Engine, Failure, Session, TableShape, Transaction};
use crate::history::{Outcome, Recorder};

/// What a committed transaction has changed, for the books.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effect {
    /// By how much a total grew: money, elements, increments.
    pub sum: i64,
    /// By how many rows a table grew.
    pub rows: i64,
}

/// A workload: setup, transactions, and a check.
pub trait Workload: Sync {
    /// What a transaction is to do; the same in every attempt.
    type Input: Clone;

    /// The names of its kinds of transactions.
    fn kinds(&self) -> &'static [&'static str];

    /// The tables that it needs.
    fn tables(&self) -> Vec<TableShape>;

    /// Loads what there is in the beginning.
    fn setup<E: Engine>(
        &self,
        engine: &E,
        worker: &Worker,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// The next transaction of a coordinator: its kind, and what it is to do.
    fn draw(&self, random: &mut Random) -> (usize, Self::Input);

    /// One attempt, up to the commit.
    fn attempt<T: Transaction>(
        &self,
        tx: &mut Tx<'_, T>,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Effect, Failure>>;

    /// Books a transaction that is over: committed, or of unknown outcome.
    fn book(&self, input: &Self::Input, effect: Effect, outcome: Outcome);

    /// Whether all is well, when nobody else is at work.
    fn check<S: Session>(&self, session: &mut S) -> impl Future<Output = Result<(), String>>;
}

/// Rows that a check reads in one transaction.
const CHECKED_AT_ONCE: usize = 256;

/// Reads rows of a table, some at a time, each in a transaction of its own, tried again where that helps.
async fn visit<S: Session>(
    session: &mut S,
    table: crate::engine::Table,
    keys: impl Iterator<Item = u64>,
    mut each: impl FnMut(u64, Option<&[u8]>) -> Result<(), String>,
) -> Result<(), String> {
    let keys: Vec<u64> = keys.collect();
    let (mut log, mut rows) = (Recorder::deaf(), crate::engine::Rows::default());
    for some in keys.chunks(CHECKED_AT_ONCE) {
        let mut tries = 0;
        loop {
            let reading = async {
                let mut tx = Tx::new(session.begin().await?, &mut log, &mut rows);
                let wants: Vec<_> =
                    some.iter().map(|key| Tx::<S::Txn<'_>>::want(table, *key)).collect();
                tx.read(&wants).await?;
                tx.commit().await
            };
            match reading.await {
                Ok(_) => break,
                Err(Failure::Conflict | Failure::Unknown) if tries < 1000 => tries += 1,
                Err(why) => return Err(format!("the final check could not read: {why}")),
            }
        }
        for (number, key) in some.iter().enumerate() {
            each(*key, rows.get(number))?;
        }
    }
    Ok(())
}

/// A whole number in a row.
fn number(row: Option<&[u8]>, table: &str, key: u64) -> Result<i64, String> {
    let bytes = row.ok_or_else(|| format!("row {key} of {table} is gone"))?;
    let first = bytes.first_chunk().ok_or_else(|| format!("row {key} of {table} is too short"))?;
    Ok(i64::from_le_bytes(*first))
}

/// Books of what is committed, and of what may be.
#[derive(Debug, Default)]
struct Books {
    sure: std::sync::atomic::AtomicI64,
    /// What unknown outcomes take away or add at most.
    least: std::sync::atomic::AtomicI64,
    most: std::sync::atomic::AtomicI64,
}

impl Books {
    fn book(&self, change: i64, outcome: Outcome) {
        use std::sync::atomic::Ordering::Relaxed;
        match outcome {
            Outcome::Committed => _ = self.sure.fetch_add(change, Relaxed),
            Outcome::Aborted => {}
            Outcome::Unknown => {
                self.least.fetch_add(change.min(0), Relaxed);
                self.most.fetch_add(change.max(0), Relaxed);
            }
        }
    }

    /// Whether a total fits to what was there in the beginning.
    fn balance(&self, what: &str, beginning: i64, total: i64) -> Result<(), String> {
        use std::sync::atomic::Ordering::Relaxed;
        let sure = beginning + self.sure.load(Relaxed);
        let (least, most) = (sure + self.least.load(Relaxed), sure + self.most.load(Relaxed));
        if (least..=most).contains(&total) {
            return Ok(());
        }
        let expected = if least == most { least.to_string() } else { format!("{least} to {most}") };
        Err(format!("{what}: {total}, expected {expected}"))
    }
}
