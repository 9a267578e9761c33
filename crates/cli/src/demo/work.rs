//! Transfers, and readers that add up all accounts meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use farside::{Connection, Database, Error, Table};

pub(super) const ACCOUNTS: u64 = 1000;
pub(super) const BEGINNING: i64 = 1000;
pub(super) const THREADS: u64 = 2;
pub(super) const TASKS: u64 = 8;

/// What was done so far.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) committed: AtomicU64,
    pub(super) attempts: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) sums: AtomicU64,
    pub(super) wrong: AtomicU64,
    /// How long a transfer took at most, in microseconds.
    longest_us: AtomicU64,
}

impl Counters {
    /// How long a transfer took at most since this was last asked.
    pub(super) fn take_longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.swap(0, Ordering::Relaxed))
    }
}

fn key(account: u64) -> [u8; 8] {
    account.to_be_bytes()
}

/// Creates the accounts.
pub(super) async fn fill(connection: &Connection) -> Result<Table, Error> {
    let accounts = connection.create_table("accounts").await?;
    for first in (0..ACCOUNTS).step_by(50) {
        connection
            .transact(async |tx| {
                for account in first..first + 50 {
                    tx.put(&accounts, &key(account), &BEGINNING.to_le_bytes()).await?;
                }
                Ok::<(), Error>(())
            })
            .await?;
    }
    Ok(accounts)
}

/// What all accounts have together, at one moment.
pub(super) async fn count(connection: &Connection, accounts: &Table) -> Result<i64, Error> {
    let mut total = 0;
    let add = |_: &[u8], value: &[u8]| {
        total += value.try_into().map_or(0, i64::from_le_bytes);
    };
    connection.snapshot().await?.scan(accounts, add).await?;
    Ok(total)
}

/// Threads that make transfers until they are stopped.
pub(super) struct Working {
    pub(super) counters: Arc<Counters>,
    pub(super) begun: Instant,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
}

impl Working {
    pub(super) fn start(db: &Database, accounts: Table) -> Self {
        let (counters, stop) = (Arc::<Counters>::default(), Arc::<AtomicBool>::default());
        let thread = |_| {
            let (db, counters, stop) = (db.clone(), Arc::clone(&counters), Arc::clone(&stop));
            std::thread::spawn(move || {
                let connection = db.connect()?;
                let task = |number| {
                    let (counters, stop) = (Arc::clone(&counters), Arc::clone(&stop));
                    let work = Work { connection: connection.clone(), accounts, counters, stop };
                    connection.spawn(async move { work.run(number == 0).await })
                };
                let tasks: Vec<_> = (0..TASKS).map(task).collect();
                connection.block_on(async {
                    for task in tasks {
                        task.await?;
                    }
                    Ok(())
                })
            })
        };
        let threads = (0..THREADS).map(thread).collect();
        Working { counters: Arc::clone(&counters), begun: Instant::now(), stop, threads }
    }

    /// Whether one of them has ended, which is an error.
    pub(super) fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    pub(super) fn finish(self) -> Result<Arc<Counters>> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(self.counters)
    }
}

/// One task.
struct Work {
    connection: Connection,
    accounts: Table,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
}

impl Work {
    async fn run(&self, reads: bool) -> Result<(), Error> {
        let add = |counter: &AtomicU64| _ = counter.fetch_add(1, Ordering::Relaxed);
        while !self.stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            if reads {
                match count(&self.connection, &self.accounts).await {
                    Ok(total) => {
                        add(&self.counters.sums);
                        if total != BEGINNING * ACCOUNTS as i64 {
                            add(&self.counters.wrong);
                        }
                    }
                    // A snapshot is not taken again by itself when nodes are lost.
                    Err(error) if error.is_passing() => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            match self.transfer().await {
                Ok(()) => add(&self.counters.committed),
                Err(Error::OutcomePending(_)) => add(&self.counters.unknown),
                Err(error) => return Err(error),
            }
            let took = start.elapsed().as_micros() as u64;
            self.counters.longest_us.fetch_max(took, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Some money from one account to another.
    async fn transfer(&self) -> Result<(), Error> {
        let worker = self.connection.worker();
        let from = worker.random_below(ACCOUNTS);
        let to = (from + 1 + worker.random_below(ACCOUNTS - 1)) % ACCOUNTS;
        let amount = 1 + worker.random_below(100) as i64;
        self.connection
            .transact(async |tx| {
                self.counters.attempts.fetch_add(1, Ordering::Relaxed);
                tx.add(&self.accounts, &key(from), -amount).await?;
                tx.add(&self.accounts, &key(to), amount).await?;
                Ok(())
            })
            .await
    }
}
