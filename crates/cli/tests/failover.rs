//! Transactions on a pool of real processes over TCP with a real etcd: nodes are killed under load, and what they had is
//! copied elsewhere. `FARSIDE_LEASE_MS=10` measures with short leases; other tests use the machine, too.

#[path = "../../pool/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::Etcd;
use farside::{Connection, Database, Error, Table};
use farside_fabric::Worker;
use farside_pool::{Config, ConfigStore, Region, store};

/// One cluster at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// No step takes longer.
const LIMIT: Duration = Duration::from_secs(30);

const ACCOUNTS: u64 = 400;
const BEGINNING: i64 = 1000;
const CLIENTS: u64 = 2;

/// A client begins a transaction so often.
const PACE: Duration = Duration::from_millis(2);

fn lease_ms() -> u64 {
    std::env::var("FARSIDE_LEASE_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(100)
}

/// A node process, killed when dropped.
struct NodeProcess {
    child: Child,
    address: String,
}

impl NodeProcess {
    fn start(store: &str, memory: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_farside"))
            .args(["node", "--memory", memory, "--listen", "127.0.0.1:0", "--config-store", store])
            .args(["--trust-network", "--lease", &lease_ms().to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        NodeProcess { child, address }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Cluster {
    nodes: Vec<NodeProcess>,
    url: String,
    store: Rc<dyn ConfigStore>,
    clock: Worker,
    _etcd: Etcd,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    fn start(name: &str, nodes: usize) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let etcd = Etcd::start(name, None)?;
        let url = format!("etcd:{}/{name}", etcd.address());
        let store = store::open(&url, Duration::from_secs(2)).unwrap();
        let nodes: Vec<_> = (0..nodes).map(|_| NodeProcess::start(&url, "64MiB")).collect();
        let clock = Worker::new(1);
        let cluster = Cluster { nodes, url, store, clock, _etcd: etcd, _alone: alone };
        cluster.wait_for("all members", |config| config.nodes.len() == cluster.nodes.len());
        Some(cluster)
    }

    fn config(&self) -> Option<Config> {
        self.clock.block_on(self.store.read(0)).ok().and_then(|stored| stored.newest())
    }

    fn wait_for(&self, what: &str, is: impl Fn(&Config) -> bool) -> Duration {
        let start = Instant::now();
        loop {
            let config = self.config();
            if config.as_ref().is_some_and(&is) {
                return start.elapsed();
            }
            assert!(start.elapsed() < LIMIT, "{what}: not reached; {config:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Every region has its copies.
    fn wait_until_whole(&self, what: &str) -> Duration {
        let whole = |it: &Region| it.replicas.len() >= it.copies.min(3) && it.joining.is_empty();
        self.wait_for(what, |config| {
            config.regions.iter().all(whole) && config.nodes.len() == self.nodes.len()
        })
    }

    /// Kills the node that has the most primaries.
    fn kill_primary(&mut self) {
        let config = self.config().unwrap();
        let most = config.nodes.iter().max_by_key(|node| config.roles(node.id).primaries).unwrap();
        let at = self.nodes.iter().position(|node| node.address == most.address).unwrap();
        drop(self.nodes.swap_remove(at));
    }
}

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
    fn start(url: &str) -> Self {
        let load = Load {
            over: Arc::default(),
            clients: Vec::new(),
            done: Arc::default(),
            acknowledged: Arc::default(),
            unknown: Arc::default(),
        };
        let client = |number: u64| {
            let (url, over, done) =
                (url.to_owned(), Arc::clone(&load.over), Arc::clone(&load.done));
            let (yes, open) = (Arc::clone(&load.acknowledged), Arc::clone(&load.unknown));
            std::thread::spawn(move || {
                let connection = connect(&url);
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
        println!("{before} in {window:?} before");
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
fn connect(url: &str) -> Connection {
    let db = Database::open(url).unwrap();
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
    let Some(mut cluster) = Cluster::start("failover", 4) else { return };
    let url = format!("{}?copies=3", cluster.url);
    let db = connect(&url);
    fill(&db);
    let load = Load::start(&url);
    std::thread::sleep(Duration::from_secs(2));
    for round in 1..=2 {
        let moment = Instant::now();
        cluster.kill_primary();
        // Three nodes have room for all copies, two have not.
        let whole = (round == 1).then(|| cluster.wait_until_whole("copies on other nodes"));
        std::thread::sleep(Duration::from_secs(1));
        let recovery = load.recovery(moment);
        println!("round {round}: nine tenths after {recovery:?}, all copies after {whole:?}");
        assert!(recovery < Duration::from_millis(10 * lease_ms()), "{recovery:?}");
    }
    check(&db, load.stop());
}
