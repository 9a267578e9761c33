//! Counters: each transaction adds one. In the end each counter is what was added to it, without a gap.

use std::sync::atomic::{AtomicI64, Ordering};

use farside_fabric::Worker;
use farside_fabric::runtime::Random;

use super::{Effect, Tx, Workload, number, visit};
use crate::engine::{Engine, Failure, Session, Table, TableShape, Transaction};
use crate::history::Outcome;

const COUNTERS: Table = Table(1);

/// The workload.
#[derive(Debug)]
pub struct Counter {
    /// What was added for sure, and what may have been, by counter.
    added: Vec<(AtomicI64, AtomicI64)>,
}

impl Counter {
    /// With so many counters.
    pub fn new(counters: u64) -> Self {
        Counter { added: (0..counters.max(1)).map(|_| Default::default()).collect() }
    }
}

impl Workload for Counter {
    type Input = u64;

    fn kinds(&self) -> &'static [&'static str] {
        &["increment"]
    }

    fn tables(&self) -> Vec<TableShape> {
        let keys = self.added.len() as u64;
        vec![TableShape { table: COUNTERS, keys, value_bytes: 8 }]
    }

    async fn setup<E: Engine>(&self, engine: &E, worker: &Worker) -> Result<(), Failure> {
        let mut rows = (0..self.added.len() as u64).map(|key| (key, 0i64.to_le_bytes().to_vec()));
        engine.load(worker, COUNTERS, &mut rows).await
    }

    fn draw(&self, random: &mut Random) -> (usize, u64) {
        (0, random.below(self.added.len() as u64))
    }

    async fn attempt<T: Transaction>(
        &self,
        tx: &mut Tx<'_, T>,
        counter: &u64,
    ) -> Result<Effect, Failure> {
        let rows = tx.read(&[Tx::<T>::want_update(COUNTERS, *counter)]).await?;
        let value = number(rows.get(0), "counters", *counter).map_err(Failure::Broken)?;
        tx.write(COUNTERS, *counter, Some(&(value + 1).to_le_bytes())).await?;
        Ok(Effect { sum: 1, rows: 0 })
    }

    fn book(&self, counter: &u64, effect: Effect, outcome: Outcome) {
        let (sure, perhaps) = &self.added[*counter as usize];
        match outcome {
            Outcome::Committed => _ = sure.fetch_add(effect.sum, Ordering::Relaxed),
            Outcome::Unknown => _ = perhaps.fetch_add(effect.sum, Ordering::Relaxed),
            Outcome::Aborted => {}
        }
    }

    async fn check<S: Session>(&self, session: &mut S) -> Result<(), String> {
        visit(session, COUNTERS, 0..self.added.len() as u64, |key, row| {
            let value = number(row, "counters", key)?;
            let (sure, perhaps) = &self.added[key as usize];
            let sure = sure.load(Ordering::Relaxed);
            let most = sure + perhaps.load(Ordering::Relaxed);
            if (sure..=most).contains(&value) {
                return Ok(());
            }
            Err(format!("counter {key} is {value}, and {sure} were added, at most {most}"))
        })
        .await
    }
}
