//! `farside demo`: a replicated pool, bank transfers, two deaths, and a count of the money.

mod work;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use farside::{Connection, Database, Table};
use farside_fabric::Worker;
use farside_pool::{Config, ConfigStore, Region, store};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::node::STORE_TIMEOUT;
use crate::node_process::{self, Running};
use crate::output::say;
use crate::progress::Progress;
use work::{ACCOUNTS, BEGINNING, Counters, TASKS, THREADS, Working};

/// Options of `farside demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// How long transfers are made
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

/// Options of the client process that the demo kills.
#[derive(Args)]
pub(crate) struct ClientArgs {
    url: String,
}

const NODES: usize = 4;
const COPIES: usize = 3;
const NODE_BYTES: u64 = 128 << 20;

/// Longer than usual: the demo's processes may have few cores for all of them.
const LEASE_MS: &str = "250";

/// How long it may take until all copies are there again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the pool's configuration is, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("farside-demo-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `farside demo`.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
    }
    let folder = Folder::new()?;
    let mut pool = Pool::start(&folder.0, &stop)?;
    say!("started {NODES} memory nodes, processes that know nothing of transactions");
    let db = Database::open(&format!("{}?copies={COPIES}", pool.url))?;
    let connection = db.connect()?;
    let accounts = connection.block_on(work::fill(&connection))?;
    say!("opened {ACCOUNTS} accounts with {BEGINNING} each, on {COPIES} copies");
    let other = pool.start_client()?;
    let working = Working::start(&db, accounts);
    let span = Duration::from_secs(args.seconds);
    let told = Story { working: &working, stop: &stop, span }.tell(&mut pool, other);
    let seconds = working.begun.elapsed().as_secs_f64();
    if stop.load(Ordering::Relaxed) {
        say!("interrupted");
        drop((pool, folder));
        // A Ctrl-C ends the nodes, too: there is nothing to wait for.
        std::process::exit(130);
    }
    told?;
    let counters = working.finish()?;
    let right = report(&connection, &accounts, &counters, seconds)?;
    drop(connection);
    drop(db);
    Ok(ExitCode::from(u8::from(!right)))
}

/// Runs the client process that is going to be killed.
pub(crate) fn run_client(args: &ClientArgs) -> Result<ExitCode> {
    let db = Database::open(&args.url)?;
    let connection = db.connect()?;
    let accounts = connection.block_on(connection.table("accounts"))?;
    let working = Working::start(&db, accounts);
    // Nobody lives longer than who started it: its end of this pipe is closed then.
    std::io::stdin().read_to_end(&mut Vec::new()).context("waiting for the end")?;
    working.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The pool's processes.
struct Pool {
    nodes: Vec<(Running, String)>,
    url: String,
    store: Rc<dyn ConfigStore>,
    worker: Worker,
    stop: Arc<AtomicBool>,
}

impl Pool {
    fn start(folder: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let url = format!("pool:{}", folder.join("config").display());
        let more = ["--config-store", &url, "--lease", LEASE_MS].map(Into::into);
        let start = |_| node_process::start("tcp", NODE_BYTES, &more);
        let nodes = (0..NODES).map(start).collect::<Result<_>>()?;
        let store = store::open(&url, STORE_TIMEOUT).map_err(anyhow::Error::msg)?;
        let pool = Pool { nodes, url, store, worker: Worker::patient(1), stop: Arc::clone(stop) };
        pool.wait(|config| config.nodes.len() == NODES).context("waiting for the nodes")?;
        Ok(pool)
    }

    fn start_client(&self) -> Result<Running> {
        let client = Command::new(node_process::program()?)
            .args(["demo-client", &self.url])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting a client")?;
        Ok(Running(client))
    }

    fn config(&self) -> Option<Config> {
        self.worker.block_on(self.store.read(0)).ok().and_then(|stored| stored.newest())
    }

    fn wait(&self, is: impl Fn(&Config) -> bool) -> Result<Duration> {
        let start = Instant::now();
        while !self.config().as_ref().is_some_and(&is) {
            if self.stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if start.elapsed() > PATIENCE {
                bail!("nothing happens for {PATIENCE:?}: this machine may be too busy");
            }
            self.worker.block_on(self.worker.sleep(Duration::from_millis(5)));
        }
        Ok(start.elapsed())
    }

    /// Kills the node that has the most primaries.
    fn kill_node(&mut self) -> Result<()> {
        let config = self.config().context("the pool's configuration")?;
        let busiest = config.nodes.iter().max_by_key(|node| config.roles(node.id).primaries);
        let address = busiest.map(|node| node.address.clone()).unwrap_or_default();
        self.nodes.retain(|(_, known)| *known != address);
        Ok(())
    }

    fn wait_for_copies(&self) -> Result<Duration> {
        let is_whole = |it: &Region| it.replicas.len() >= COPIES && it.joining.is_empty();
        let left = self.nodes.len();
        self.wait(|config| config.nodes.len() == left && config.regions.iter().all(is_whole))
    }
}

/// What happens while transfers are made.
struct Story<'a> {
    working: &'a Working,
    stop: &'a AtomicBool,
    span: Duration,
}

impl Story<'_> {
    fn tell(&self, pool: &mut Pool, mut other: Running) -> Result<()> {
        self.go_on()?;
        let usual = self.counters().take_longest();
        if let Some(status) = other.0.try_wait()? {
            bail!("the other client process ended by itself: {status}");
        }
        drop(other);
        say!("killed another client process (kill -9) in the middle of its transfers");
        self.go_on()?;
        let longest = self.counters().take_longest();
        say!(
            "  whoever met its locks repaired what it had left: the longest transfer since took {} ms, {} ms before",
            longest.as_millis(),
            usual.as_millis()
        );
        pool.kill_node()?;
        say!("killed a memory node (kill -9), with all that it had");
        let copied = pool.wait_for_copies()?;
        self.go_on()?;
        say!(
            "  the others took over: the longest transfer since took {} ms; all had {COPIES} copies again after {} ms",
            self.counters().take_longest().as_millis(),
            copied.as_millis()
        );
        Ok(())
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.working.counters
    }

    /// A third of the time passes, unless somebody stops it.
    fn go_on(&self) -> Result<()> {
        let (begun, counters) = (self.working.begun, Arc::clone(self.counters()));
        let whole = self.span.as_secs_f64();
        let _progress = Progress::show(move || {
            let share = (begun.elapsed().as_secs_f64() / whole).min(1.0);
            let bar = "#".repeat((share * 30.0) as usize);
            format!("[{bar:<30}] {} transfers", counters.committed.load(Ordering::Relaxed))
        });
        let start = Instant::now();
        let worker = Worker::patient(2);
        let is_over = || self.stop.load(Ordering::Relaxed) || self.working.has_failed();
        while start.elapsed() < self.span / 3 && !is_over() {
            worker.block_on(worker.sleep(Duration::from_millis(20)));
        }
        ensure!(!self.stop.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }
}

/// Whether all is right.
fn report(
    connection: &Connection,
    accounts: &Table,
    counters: &Counters,
    seconds: f64,
) -> Result<bool> {
    let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (committed, unknown) = (get(&counters.committed), get(&counters.unknown));
    let (sums, wrong) = (get(&counters.sums), get(&counters.wrong));
    say!(
        "{committed} transfers by {} tasks on {THREADS} threads in {seconds:.1} s ({:.0} per second); {} were begun again \
         because others were in the way",
        THREADS * TASKS,
        committed as f64 / seconds,
        get(&counters.attempts).saturating_sub(committed + unknown)
    );
    if unknown > 0 {
        say!(
            "{unknown} of them were under way when nodes were lost: committed or not, but not in part"
        );
    }
    say!(
        "{sums} readers added up all accounts meanwhile, each at one moment: {}",
        if wrong == 0 { "the sum was right every time" } else { "THE SUM WAS WRONG" }
    );
    let total = connection.block_on(work::count(connection, accounts))?;
    let expected = BEGINNING * ACCOUNTS as i64;
    say!("all accounts together: {total}, as in the beginning: {expected}");
    say!(
        "what was seen: one-sided reads, writes and compare-and-swaps alone made these transactions, and repaired them"
    );
    Ok(total == expected && wrong == 0)
}
