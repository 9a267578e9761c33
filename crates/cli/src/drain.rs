//! `farside drain`: a memory node leaves its pool, and nothing is lost.

use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use farside::{Database, Options};
use farside_fabric::Worker;
use farside_pool::store::{self, Pending};
use farside_pool::{Config, ConfigStore, Node, Petition, StoreError};

use crate::credentials::Credentials;
use crate::node::STORE_TIMEOUT;
use crate::output::say;
use crate::progress::Progress;

/// Options of `farside drain`.
#[derive(Args)]
pub(crate) struct DrainArgs {
    /// Where the pool's configuration is: etcd:HOST:PORT,…/NAME or pool:PATH
    #[arg(long, value_name = "URL")]
    connect: String,

    #[command(flatten)]
    credentials: Credentials,

    /// How long to wait until it has left, in seconds; it leaves all the same after that
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,

    /// The node: its number or its address, as `farside status` shows them
    node: String,
}

/// How long a store may be away.
const STORE_PATIENCE: Duration = Duration::from_secs(15);

/// How often to look.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs `farside drain`.
pub(crate) fn run(args: &DrainArgs) -> Result<ExitCode> {
    let store =
        store::open(&args.connect, STORE_TIMEOUT).map_err(|why| anyhow!("--connect {why}"))?;
    let worker = Worker::patient(1);
    let config = patiently(&worker, || store.read(0))?.newest().with_context(|| {
        format!("{}: there is no pool; start a node with --config-store to found one", args.connect)
    })?;
    let node = find(&config, &args.node)?;
    if config.nodes.iter().all(|other| other.id == node.id || other.draining) {
        bail!("node {} is the last one that stays: start another one first", node.id);
    }
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))
        .context("catching Ctrl-C")?;
    // Whoever uses the pool makes the copies; nobody else may be there.
    let used = !config.regions.is_empty();
    let options = Options { network: args.credentials.options()?, ..Options::default() };
    // What a store calls a file is a pool to a database.
    let url = args.connect.strip_prefix("file:");
    let url = url.map_or(args.connect.clone(), |path| format!("pool:{path}"));
    let _db = used.then(|| Database::open_with(&url, &options)).transpose()?;
    let petition = Petition::Drain { node: node.id };
    let (key, what) = (petition.key(), petition.encode());
    patiently(&worker, || store.petition(&key, &what))?;
    let left = wait(args, &worker, &store, &node, &stop)?;
    say!("node {} ({}) has left the pool", node.id, node.address);
    let few = left.regions.iter().filter(|it| it.replicas.len() < it.copies).count();
    if few > 0 {
        say!(
            "{few} regions have fewer copies than they should: start another node, and they get them"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn newest(worker: &Worker, store: &Rc<dyn ConfigStore>) -> Result<Option<Config>> {
    Ok(worker.block_on(store.read(0))?.newest())
}

/// Asks again where a store does not answer for a moment. What it may have done twice is as if it was done once.
fn patiently<'a, T>(
    worker: &Worker,
    ask: impl Fn() -> Pending<'a, T>,
) -> std::result::Result<T, StoreError> {
    let start = Instant::now();
    loop {
        match worker.block_on(ask()) {
            Err(StoreError::Unreachable(_)) if start.elapsed() < STORE_PATIENCE => {
                worker.block_on(worker.sleep(PAUSE));
            }
            answer => return answer,
        }
    }
}

fn find(config: &Config, name: &str) -> Result<Node> {
    let is_it = |node: &&Node| node.address == name || node.id.to_string() == name;
    let found = config.nodes.iter().find(is_it).cloned();
    found.with_context(|| {
        let all: Vec<_> =
            config.nodes.iter().map(|node| format!("{} ({})", node.id, node.address)).collect();
        format!("there is no node {name} in the pool; there are {}", all.join(", "))
    })
}

/// The configuration in which it is not any more.
fn wait(
    args: &DrainArgs,
    worker: &Worker,
    store: &Rc<dyn ConfigStore>,
    node: &Node,
    stop: &AtomicBool,
) -> Result<Config> {
    let (start, limit) = (Instant::now(), Duration::from_secs(args.timeout));
    let regions = Arc::new(AtomicUsize::new(0));
    let shown = Arc::clone(&regions);
    let number = node.id;
    let _progress = Progress::show(move || {
        format!("node {number} still has {} regions", shown.load(Ordering::Relaxed))
    });
    loop {
        if let Ok(Some(config)) = newest(worker, store) {
            if config.nodes.iter().all(|other| other.incarnation != node.incarnation) {
                return Ok(config);
            }
            let roles = config.roles(node.id);
            regions.store(roles.primaries + roles.copies, Ordering::Relaxed);
        }
        let rest = "it goes on leaving, as long as somebody uses the pool";
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted while node {} was leaving; {rest}", node.id);
        }
        if start.elapsed() > limit {
            bail!("node {} has not left within {} s; {rest}", node.id, args.timeout);
        }
        worker.block_on(worker.sleep(PAUSE));
    }
}
