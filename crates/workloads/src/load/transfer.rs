//! Transfers between accounts: money is neither made nor lost.

use farside_fabric::Worker;
use farside_fabric::runtime::Random;

use super::{Books, Effect, Hot, Tx, Workload, number, visit};
use crate::engine::{Engine, Failure, Session, Table, TableShape, Transaction};
use crate::history::Outcome;

const ACCOUNTS: Table = Table(2);
const BEGINNING: i64 = 1000;

/// The workload.
#[derive(Debug)]
pub struct Transfer {
    accounts: Hot,
    count: u64,
    books: Books,
}

impl Transfer {
    /// Between so many accounts.
    pub fn new(accounts: u64) -> Self {
        let count = accounts.max(2);
        Transfer { accounts: Hot::new(count, count, 100), count, books: Books::default() }
    }
}

impl Workload for Transfer {
    type Input = (u64, u64, i64);

    fn kinds(&self) -> &'static [&'static str] {
        &["transfer"]
    }

    fn tables(&self) -> Vec<TableShape> {
        vec![TableShape { table: ACCOUNTS, keys: self.count, value_bytes: 8 }]
    }

    async fn setup<E: Engine>(&self, engine: &E, worker: &Worker) -> Result<(), Failure> {
        let mut rows = (0..self.count).map(|key| (key, BEGINNING.to_le_bytes().to_vec()));
        engine.load(worker, ACCOUNTS, &mut rows).await
    }

    fn draw(&self, random: &mut Random) -> (usize, Self::Input) {
        let (from, to) = self.accounts.draw_two(random);
        (0, (from, to, 1 + random.below(100) as i64))
    }

    async fn attempt<T: Transaction>(
        &self,
        tx: &mut Tx<'_, T>,
        (from, to, amount): &Self::Input,
    ) -> Result<Effect, Failure> {
        let wants = [from, to].map(|key| Tx::<T>::want_update(ACCOUNTS, *key));
        let rows = tx.read(&wants).await?;
        let has = number(rows.get(0), "accounts", *from).map_err(Failure::Broken)?;
        let gets = number(rows.get(1), "accounts", *to).map_err(Failure::Broken)?;
        if has >= *amount {
            tx.write(ACCOUNTS, *from, Some(&(has - amount).to_le_bytes())).await?;
            tx.write(ACCOUNTS, *to, Some(&(gets + amount).to_le_bytes())).await?;
        }
        Ok(Effect::default())
    }

    fn book(&self, _: &Self::Input, effect: Effect, outcome: Outcome) {
        self.books.book(effect.sum, outcome);
    }

    async fn check<S: Session>(&self, session: &mut S) -> Result<(), String> {
        let mut total = 0;
        visit(session, ACCOUNTS, 0..self.count, |key, row| {
            let balance = number(row, "accounts", key)?;
            total += balance;
            if balance < 0 { Err(format!("account {key} has {balance}")) } else { Ok(()) }
        })
        .await?;
        self.books.balance("money", self.count as i64 * BEGINNING, total)
    }
}
