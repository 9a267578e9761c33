//! `farside demo`: a replicated pool, bank transfers, and a count of the money.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use farside::{Connection, Database, Error, Table};

use crate::node_process;
use crate::output::say;
use crate::progress::Progress;

/// Options of `farside demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// How long transfers are made
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

const NODES: u64 = 3;
const NODE_BYTES: u64 = 128 << 20;
const ACCOUNTS: u64 = 1000;
const BEGINNING: i64 = 1000;
const THREADS: u64 = 2;
const TASKS: u64 = 8;

/// Runs `farside demo`.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))
        .context("catching Ctrl-C")?;
    let mut nodes = Vec::new();
    let mut addresses = Vec::new();
    for _ in 0..NODES {
        let (node, address) = node_process::start("tcp", NODE_BYTES, &[])?;
        nodes.push(node);
        addresses.push(address);
    }
    let url = format!("tcp:{}", addresses.join(","));
    say!("started {NODES} memory nodes, processes that know nothing of transactions: {url}");
    let db = Database::open(&url)?;
    let connection = db.connect()?;
    let accounts = connection.block_on(fill(&connection))?;
    say!("opened {ACCOUNTS} accounts with {BEGINNING} each, on {NODES} copies");
    let transfers = transfer(&db, accounts, Duration::from_secs(args.seconds), &stop)?;
    let total = connection.block_on(count(&connection, &accounts))?;
    let expected = BEGINNING * ACCOUNTS as i64;
    let seconds = transfers.seconds;
    say!(
        "{} transfers by {} tasks on {THREADS} threads in {seconds:.1} s ({:.0} per second); {} were begun again because \
         others were in the way",
        transfers.committed,
        THREADS * TASKS,
        transfers.committed as f64 / seconds,
        transfers.again
    );
    say!(
        "{} readers added up all accounts meanwhile, each at one moment: {}",
        transfers.sums,
        if transfers.wrong == 0 { "the sum was right every time" } else { "THE SUM WAS WRONG" }
    );
    say!("all accounts together: {total}, as in the beginning: {expected}");
    say!(
        "what was seen: one-sided reads, writes and compare-and-swaps alone made these transactions"
    );
    drop(connection);
    drop(db);
    drop(nodes);
    Ok(ExitCode::from(u8::from(total != expected || transfers.wrong > 0)))
}

fn key(account: u64) -> [u8; 8] {
    account.to_be_bytes()
}

/// Creates the accounts.
async fn fill(connection: &Connection) -> Result<Table, Error> {
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
async fn count(connection: &Connection, accounts: &Table) -> Result<i64, Error> {
    let mut total = 0;
    let add = |_: &[u8], value: &[u8]| {
        total += value.try_into().map_or(0, i64::from_le_bytes);
    };
    connection.snapshot().await?.scan(accounts, add).await?;
    Ok(total)
}

#[derive(Default)]
struct Counters {
    committed: AtomicU64,
    attempts: AtomicU64,
    sums: AtomicU64,
    wrong: AtomicU64,
}

struct Transfers {
    committed: u64,
    again: u64,
    sums: u64,
    wrong: u64,
    seconds: f64,
}

fn transfer(
    db: &Database,
    accounts: Table,
    span: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<Transfers> {
    let (counters, start) = (Arc::new(Counters::default()), Instant::now());
    let shown = Arc::clone(&counters);
    let progress = Progress::show(move || {
        let share = (start.elapsed().as_secs_f64() / span.as_secs_f64()).min(1.0);
        let bar = "#".repeat((share * 30.0) as usize);
        format!("[{bar:<30}] {} transfers", shown.committed.load(Ordering::Relaxed))
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (db, counters, stop) = (db.clone(), Arc::clone(&counters), Arc::clone(stop));
            std::thread::spawn(move || -> Result<(), Error> {
                let connection = db.connect()?;
                let tasks: Vec<_> = (0..TASKS)
                    .map(|number| {
                        let work = Work {
                            connection: connection.clone(),
                            accounts,
                            counters: Arc::clone(&counters),
                            stop: Arc::clone(&stop),
                            until: start + span,
                        };
                        connection.spawn(async move { work.run(number == 0).await })
                    })
                    .collect();
                connection.block_on(async {
                    for task in tasks {
                        task.await?;
                    }
                    Ok(())
                })
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a thread panicked"))??;
    }
    drop(progress);
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let committed = get(&counters.committed);
    Ok(Transfers {
        committed,
        again: get(&counters.attempts) - committed,
        sums: get(&counters.sums),
        wrong: get(&counters.wrong),
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// One task.
struct Work {
    connection: Connection,
    accounts: Table,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    until: Instant,
}

impl Work {
    async fn run(&self, reads: bool) -> Result<(), Error> {
        while Instant::now() < self.until && !self.stop.load(Ordering::Relaxed) {
            if reads {
                let total = count(&self.connection, &self.accounts).await?;
                self.counters.sums.fetch_add(1, Ordering::Relaxed);
                let wrong = u64::from(total != BEGINNING * ACCOUNTS as i64);
                self.counters.wrong.fetch_add(wrong, Ordering::Relaxed);
            } else {
                self.transfer().await?;
                self.counters.committed.fetch_add(1, Ordering::Relaxed);
            }
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
