//! Lists: transactions read some and append to some. Their histories tell everything.
//!
//! A list that has grown enough is left alone, and another takes its place, so that reads stay short.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_fabric::Worker;
use farside_fabric::runtime::Random;

use super::tx::elements;
use super::{Books, Effect, Tx, Workload, visit};
use crate::engine::{Engine, Failure, Session, Table, TableShape, Transaction};
use crate::history::Outcome;

const LISTS: Table = Table(4);

/// A list is left alone after about so many appends.
const LENGTH: u64 = 32;

/// Lists that engines with a fixed room must have room for.
const MOST_LISTS: u64 = 4096;

/// The workload.
#[derive(Debug)]
pub struct ListAppend {
    keys: u64,
    steps: u64,
    read_percent: u64,
    appends: AtomicU64,
    books: Books,
}

/// A step: a key, and whether it is only read.
type Step = (u64, bool);

impl ListAppend {
    /// So many lists at a time; transactions of up to so many steps, of which so many of a hundred are reads.
    pub fn new(keys: u64, steps: u64, read_percent: u64) -> Self {
        let (keys, steps) = (keys.max(1), steps.max(1));
        ListAppend {
            keys,
            steps,
            read_percent,
            appends: AtomicU64::new(0),
            books: Books::default(),
        }
    }
}

impl Workload for ListAppend {
    type Input = Vec<Step>;

    fn kinds(&self) -> &'static [&'static str] {
        &["read-only", "append"]
    }

    fn tables(&self) -> Vec<TableShape> {
        // Some lists grow longer than others before they are left alone.
        vec![TableShape { table: LISTS, keys: MOST_LISTS, value_bytes: 8 * 6 * LENGTH as usize }]
    }

    async fn setup<E: Engine>(&self, _: &E, _: &Worker) -> Result<(), Failure> {
        Ok(())
    }

    fn draw(&self, random: &mut Random) -> (usize, Vec<Step>) {
        let steps = 1 + random.below(self.steps);
        let draw = |_| {
            let appends = self.appends.load(Ordering::Relaxed);
            // Key by key the next generation begins.
            let place = random.below(self.keys);
            let generation = (appends + place * LENGTH) / (self.keys * LENGTH);
            let key = generation * self.keys + place;
            let reads = random.below(100) < self.read_percent;
            (key, reads)
        };
        let steps: Vec<Step> = (0..steps).map(draw).collect();
        let appends = steps.iter().any(|(_, reads)| !reads);
        (usize::from(appends), steps)
    }

    async fn attempt<T: Transaction>(
        &self,
        tx: &mut Tx<'_, T>,
        steps: &Vec<Step>,
    ) -> Result<Effect, Failure> {
        let mut appended = 0;
        for (key, reads) in steps {
            if *reads {
                tx.read_list(LISTS, *key).await?;
            } else {
                // No two attempts append the same, not even of one transaction.
                let element = self.appends.fetch_add(1, Ordering::Relaxed) + 1;
                tx.append(LISTS, *key, element).await?;
                appended += 1;
            }
        }
        Ok(Effect { sum: appended, rows: 0 })
    }

    fn book(&self, _: &Vec<Step>, effect: Effect, outcome: Outcome) {
        self.books.book(effect.sum, outcome);
    }

    async fn check<S: Session>(&self, session: &mut S) -> Result<(), String> {
        let appends = self.appends.load(Ordering::Relaxed);
        let keys = (appends / (self.keys * LENGTH) + 2) * self.keys;
        let mut total = 0;
        visit(session, LISTS, 0..keys, |_, row| {
            total += elements(row.unwrap_or_default()).len() as i64;
            Ok(())
        })
        .await?;
        self.books.balance("elements", 0, total)
    }
}
