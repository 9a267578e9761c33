//! SmallBank: six kinds of transactions on savings and checking accounts (`ford.txt` Table 2).

use farside_fabric::Worker;
use farside_fabric::runtime::Random;

use super::{Books, Effect, Hot, Mix, Tx, Workload, number, visit};
use crate::engine::{Engine, Failure, Rows, Session, Table, TableShape, Transaction};
use crate::history::Outcome;

const SAVINGS: Table = Table(10);
const CHECKING: Table = Table(11);

/// What each account has in the beginning, in cents.
const BEGINNING: i64 = 1_000_000;

/// In every row behind the balance.
const MAGIC: u64 = 0x5341_4c4c_4241_4e4b;

const MIX: Mix = Mix(&[15, 15, 15, 25, 15, 15]);

/// The workload.
#[derive(Debug)]
pub struct SmallBank {
    accounts: u64,
    hot: Hot,
    books: Books,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// All that the first has goes to the second's checking account.
    Amalgamate(u64, u64),
    /// What somebody has.
    Balance(u64),
    /// Money comes in.
    DepositChecking(u64, i64),
    /// From one checking account to another.
    SendPayment(u64, u64, i64),
    /// Money comes to the savings.
    TransactSavings(u64, i64),
    /// Money goes out; who has too little pays one more.
    WriteCheck(u64, i64),
}

impl SmallBank {
    /// So many accounts, of which 4 % take 90 % of the accesses.
    pub fn new(accounts: u64) -> Self {
        let accounts = accounts.max(2);
        let hot = Hot::new(accounts, (accounts * 4 / 100).max(1), 90);
        SmallBank { accounts, hot, books: Books::default() }
    }
}

fn row(balance: i64) -> [u8; 16] {
    let mut row = [0; 16];
    row[..8].copy_from_slice(&balance.to_le_bytes());
    row[8..].copy_from_slice(&MAGIC.to_le_bytes());
    row
}

fn balance(rows: &Rows, at: usize, key: u64) -> Result<i64, Failure> {
    let bytes = rows.get(at);
    if bytes.is_some_and(|bytes| bytes.len() != 16 || bytes[8..] != MAGIC.to_le_bytes()) {
        return Err(Failure::Broken(format!("account {key} is damaged")));
    }
    number(bytes, "accounts", key).map_err(Failure::Broken)
}

impl Workload for SmallBank {
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        &[
            "amalgamate",
            "balance",
            "deposit-checking",
            "send-payment",
            "transact-savings",
            "write-check",
        ]
    }

    fn tables(&self) -> Vec<TableShape> {
        let shape = |table| TableShape { table, keys: self.accounts, value_bytes: 16 };
        [SAVINGS, CHECKING].map(shape).to_vec()
    }

    async fn setup<E: Engine>(&self, engine: &E, worker: &Worker) -> Result<(), Failure> {
        for table in [SAVINGS, CHECKING] {
            let mut rows = (0..self.accounts).map(|key| (key, row(BEGINNING).to_vec()));
            engine.load(worker, table, &mut rows).await?;
        }
        Ok(())
    }

    fn draw(&self, random: &mut Random) -> (usize, Input) {
        let kind = MIX.draw(random);
        let amount = 1 + random.below(100) as i64;
        let input = match kind {
            0 => {
                let (from, to) = self.hot.draw_two(random);
                Input::Amalgamate(from, to)
            }
            1 => Input::Balance(self.hot.draw(random)),
            2 => Input::DepositChecking(self.hot.draw(random), amount),
            3 => {
                let (from, to) = self.hot.draw_two(random);
                Input::SendPayment(from, to, amount)
            }
            4 => Input::TransactSavings(self.hot.draw(random), amount),
            _ => Input::WriteCheck(self.hot.draw(random), amount),
        };
        (kind, input)
    }

    async fn attempt<T: Transaction>(
        &self,
        tx: &mut Tx<'_, T>,
        input: &Input,
    ) -> Result<Effect, Failure> {
        let (want, update) = (Tx::<T>::want, Tx::<T>::want_update);
        let mut sum = 0;
        match *input {
            Input::Amalgamate(from, to) => {
                let wants = [update(SAVINGS, from), update(CHECKING, from), update(CHECKING, to)];
                let rows = tx.read(&wants).await?;
                let all = balance(rows, 0, from)? + balance(rows, 1, from)?;
                let has = balance(rows, 2, to)?;
                tx.write(SAVINGS, from, Some(&row(0))).await?;
                tx.write(CHECKING, from, Some(&row(0))).await?;
                tx.write(CHECKING, to, Some(&row(has + all))).await?;
            }
            Input::Balance(account) => {
                let rows = tx.read(&[want(SAVINGS, account), want(CHECKING, account)]).await?;
                balance(rows, 0, account)?;
                balance(rows, 1, account)?;
            }
            Input::DepositChecking(account, amount) => {
                sum = add(tx, CHECKING, account, amount).await?;
            }
            Input::SendPayment(from, to, amount) => {
                let rows = tx.read(&[update(CHECKING, from), update(CHECKING, to)]).await?;
                let (has, gets) = (balance(rows, 0, from)?, balance(rows, 1, to)?);
                if has >= amount {
                    tx.write(CHECKING, from, Some(&row(has - amount))).await?;
                    tx.write(CHECKING, to, Some(&row(gets + amount))).await?;
                }
            }
            Input::TransactSavings(account, amount) => {
                sum = add(tx, SAVINGS, account, amount).await?;
            }
            Input::WriteCheck(account, amount) => {
                let rows = tx.read(&[want(SAVINGS, account), update(CHECKING, account)]).await?;
                let (saved, has) = (balance(rows, 0, account)?, balance(rows, 1, account)?);
                let cost = if saved + has < amount { amount + 1 } else { amount };
                tx.write(CHECKING, account, Some(&row(has - cost))).await?;
                sum = -cost;
            }
        }
        Ok(Effect { sum, rows: 0 })
    }

    fn book(&self, _: &Input, effect: Effect, outcome: Outcome) {
        self.books.book(effect.sum, outcome);
    }

    async fn check<S: Session>(&self, session: &mut S) -> Result<(), String> {
        let mut total = 0;
        for table in [SAVINGS, CHECKING] {
            visit(session, table, 0..self.accounts, |key, row| {
                total += number(row, "accounts", key)?;
                Ok(())
            })
            .await?;
        }
        self.books.balance("money", 2 * self.accounts as i64 * BEGINNING, total)
    }
}

async fn add<T: Transaction>(
    tx: &mut Tx<'_, T>,
    table: Table,
    account: u64,
    amount: i64,
) -> Result<i64, Failure> {
    let rows = tx.read(&[Tx::<T>::want_update(table, account)]).await?;
    let has = balance(rows, 0, account)?;
    tx.write(table, account, Some(&row(has + amount))).await?;
    Ok(amount)
}
