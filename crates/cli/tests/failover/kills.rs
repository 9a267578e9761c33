//! A primary is killed under load, and another one when the copies are back: nothing is lost.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside::{Connection, Database, Error, Table};
use farside_fabric::Worker;

use crate::cluster::{Cluster, lease};

const ACCOUNTS: u64 = 400;
const BEGINNING: i64 = 1000;
const CLIENTS: u64 = 2;

/// A client begins a transaction so often.
const PACE: Duration = Duration::from_millis(2);

/// Clients that move money, each a little, again and again.
struct Load {
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    /// When transactions were acknowledged.
    done: Arc<Mutex<Vec<Instant>>>,
    acknowledged: Arc<AtomicI64>,
    unknown: Arc<AtomicI64>,
}

impl Load {
    fn start(db: &Database) -> Self {
        let load = Load {
            over: Arc::default(),
            clients: Vec::new(),
            done: Arc::default(),
            acknowledged: Arc::default(),
            unknown: Arc::default(),
        };
        let client = |number: u64| {
            let (db, over, done) = (db.clone(), Arc::clone(&load.over), Arc::clone(&load.done));
            let (yes, open) = (Arc::clone(&load.acknowledged), Arc::clone(&load.unknown));
            std::thread::spawn(move || {
                let connection = attach(&db);
                connection.block_on(async {
                    let table = connection.table("accounts").await.unwrap();
                    let mut random = number;
                    while !over.load(Ordering::Relaxed) {
                        let start = Instant::now();
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        match transfer(&connection, &table, random >> 33).await {
                            Ok(()) => _ = yes.fetch_add(1, Ordering::Relaxed),
                            Err(Error::OutcomePending(_)) => {
                                _ = open.fetch_add(1, Ordering::Relaxed)
                            }
                            Err(other) => panic!("client {number}: {other}"),
                        }
                        done.lock().unwrap().push(Instant::now());
                        let pause = PACE.saturating_sub(start.elapsed());
                        connection.worker().sleep(pause).await;
                    }
                });
            })
        };
        let clients = (1..=CLIENTS).map(client).collect();
        Load { clients, ..load }
    }

    /// How many were acknowledged in a span.
    fn count(&self, from: Instant, span: Duration) -> usize {
        let done = self.done.lock().unwrap();
        done.iter().filter(|at| (from..from + span).contains(*at)).count()
    }

    /// How long after a moment there are nine tenths as many again as before it.
    fn recovery(&self, moment: Instant) -> Duration {
        let window = Duration::from_millis(100);
        let before = self.count(moment - 10 * window, 10 * window) / 10;
        let step = Duration::from_millis(2);
        let back = (0..).map(|number| number * step).find(|late| {
            self.count(moment + *late, window) * 10 >= before * 9 || *late > Duration::from_secs(5)
        });
        let step = window / 10;
        // Without a kill: the worst such window in the second before.
        let since = moment - 10 * window;
        let control = (0..=90).map(|at| self.count(since + at * step, window)).min().unwrap();
        let timeline: Vec<_> = (0..40).map(|at| self.count(moment + at * step, step)).collect();
        println!(
            "{before} in {window:?} before, {control} at least; every {step:?} after: {timeline:?}"
        );
        back.unwrap()
    }

    /// Stops them; how many were acknowledged, and how many are open.
    fn stop(self) -> (i64, i64) {
        self.over.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        (self.acknowledged.load(Ordering::Relaxed), self.unknown.load(Ordering::Relaxed))
    }
}

/// Moves some, and counts that.
async fn transfer(db: &Connection, table: &Table, random: u64) -> Result<(), Error> {
    let from = random % ACCOUNTS;
    let to = (from + 1 + random / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS;
    let counter = ACCOUNTS + random % 16;
    db.transact(async |tx| {
        tx.add(table, &from.to_be_bytes(), -1).await?;
        tx.add(table, &to.to_be_bytes(), 1).await?;
        tx.add(table, &counter.to_be_bytes(), 1).await?;
        Ok(())
    })
    .await
}

/// A connection that leaves the cores to others while it waits.
pub(crate) fn connect(url: &str) -> Connection {
    attach(&Database::open(url).unwrap())
}

fn attach(db: &Database) -> Connection {
    let worker = Worker::patient(7);
    worker.block_on(db.attach(&worker)).unwrap()
}

fn fill(connection: &Connection) {
    connection.block_on(async {
        let table = connection.create_table("accounts").await.unwrap();
        for some in (0..ACCOUNTS).collect::<Vec<_>>().chunks(50) {
            let filled = connection.transact(async |tx| {
                for account in some {
                    tx.add(&table, &account.to_be_bytes(), BEGINNING).await?;
                }
                Ok::<_, Error>(())
            });
            filled.await.unwrap();
        }
    });
}

/// Money is neither lost nor made, and everything that was acknowledged is there.
fn check(connection: &Connection, (acknowledged, unknown): (i64, i64)) {
    let keys: Vec<[u8; 8]> = (0..ACCOUNTS + 16).map(u64::to_be_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let values = connection.block_on(async {
        let table = connection.table("accounts").await.unwrap();
        let read = connection.transact(async |tx| tx.get_many(&table, &keys).await);
        read.await.unwrap()
    });
    let number = |value: &Option<Vec<u8>>| {
        value.as_ref().map_or(0, |value| i64::from_le_bytes(value[..].try_into().unwrap()))
    };
    let (accounts, counters) = values.split_at(ACCOUNTS as usize);
    let (money, moved): (i64, i64) =
        (accounts.iter().map(number).sum(), counters.iter().map(number).sum());
    assert_eq!(money, ACCOUNTS as i64 * BEGINNING);
    assert!((acknowledged..=acknowledged + unknown).contains(&moved), "{moved} of {acknowledged}");
}

#[test]
fn a_primary_is_killed_under_load_and_another_when_the_copies_are_back() {
    let Some(mut cluster) = Cluster::start("failover", 3) else { return };
    let db = Database::open(&format!("{}?copies=2", cluster.url)).unwrap();
    let connection = attach(&db);
    fill(&connection);
    let load = Load::start(&db);
    std::thread::sleep(Duration::from_secs(2));
    for round in 1..=2 {
        let moment = Instant::now();
        drop(cluster.nodes.swap_remove(cluster.busiest()));
        // Two nodes have room for all copies, one has not.
        let whole = (round == 1).then(|| cluster.wait_until_whole("copies on other nodes"));
        std::thread::sleep(Duration::from_secs(1));
        let recovery = load.recovery(moment);
        println!("round {round}: nine tenths after {recovery:?}, all copies after {whole:?}");
        assert!(recovery < 10 * lease(), "{recovery:?}");
    }
    check(&connection, load.stop());
    scrub(&cluster.url);
}

/// All copies are sound, and the status says so.
fn scrub(url: &str) {
    let run = |command: &str| {
        let mut farside = Command::new(env!("CARGO_BIN_EXE_farside"));
        let output = farside.args([command, "--connect", url, "--json"]).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report
    };
    let found = run("scrub");
    assert!(found["ok"] == true && found["objects"].as_u64() > Some(100), "{found}");
    let known = &run("status")["scrub"];
    assert_eq!((&known["passes"], &known["flawed"]), (&1.into(), &0.into()), "{known}");
    assert_eq!(known["objects"], found["objects"]);
}
