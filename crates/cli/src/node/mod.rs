//! `farside node`: a memory node.

mod membership;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use farside_fabric::rdma;
use farside_fabric::runtime::hurry;
use farside_fabric::tcp::{Node, NodeEvent, NodeOptions, NodeTls, Secret, Stop};
use farside_journal::{Directory, Disk};
use farside_pool::Lapsed;

use crate::output::say;
use crate::rdma_args::RdmaArgs;
use crate::signals::stop_on_signals;

/// Options of `farside node`.
#[derive(Args)]
pub(crate) struct NodeArgs {
    /// Where to listen: HOST:PORT; port 0 lets the system choose
    #[arg(long, default_value = "127.0.0.1:7171")]
    listen: String,

    /// How much memory to offer: bytes, or with KiB, MiB, GiB
    #[arg(long, value_parser = size)]
    memory: u64,

    /// How clients reach the memory: over the connections to this port, or through the NIC
    #[arg(long, default_value = "tcp")]
    fabric: Network,

    #[command(flatten)]
    rdma: RdmaArgs,

    /// Use huge pages, which must have been reserved (sysctl vm.nr_hugepages)
    #[arg(long)]
    huge_pages: bool,

    /// Keep a journal in this directory: what clients have flushed is in memory again after a restart, also if the power
    /// failed
    #[arg(long, value_name = "DIR", conflicts_with = "config_store")]
    data: Option<PathBuf>,

    /// A file with the secret that clients must know, readable by its owner only
    #[arg(long)]
    secret_file: Option<PathBuf>,

    /// Encrypt all connections: the certificate with its chain (PEM)
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Encrypt all connections: the private key (PEM)
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Listen beyond this machine without a secret: whoever reaches the port can read and change all
    /// memory
    #[arg(long)]
    trust_network: bool,

    /// How many connections there may be at once
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_connections: u32,

    /// Belong to the pool whose configuration is there (etcd:HOST:PORT,…/NAME or pool:PATH); if there is
    /// none, found it
    #[arg(long, value_name = "URL")]
    config_store: Option<String>,

    /// Where clients and other members reach this node [default: where it listens]
    #[arg(long, value_name = "HOST:PORT", requires = "config_store")]
    advertise: Option<String>,

    /// How long a lease is, in milliseconds, if this node founds the pool [default: 100, with rdma 10]
    #[arg(long, requires = "config_store", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    lease: Option<u64>,

    /// Take no regions: the memory is a version cache, near to the processes that use the pool (protocols ford-lv-node
    /// and ford-lv-switch)
    #[arg(long, requires = "config_store")]
    versions: bool,

    /// Log each connection, and not only what was refused
    #[arg(long)]
    verbose: bool,
}

/// How the memory is reached.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Network {
    /// Over the connections
    Tcp,
    /// Through the NIC; connections carry only what sets that up
    Rdma,
}

/// A size with its unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let expected = || format!("'{text}': expected a size such as 67108864, 64MiB or 4GiB");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1u64 << 40,
        _ => return Err(expected()),
    };
    let number: u64 = digits.parse().map_err(|_| expected())?;
    let bytes = number.checked_mul(unit).ok_or_else(expected)?;
    match bytes.is_multiple_of(8) && (4096..=1 << 48).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("'{text}': expected a multiple of 8 between 4096 and 256TiB")),
    }
}

/// Options that do not go together, or with this machine.
fn check(args: &NodeArgs) -> Result<()> {
    ensure!(
        args.data.is_none() || args.fabric == Network::Tcp,
        "--data: what comes through the NIC is not in a journal; expected --fabric tcp"
    );
    check_memory(args.memory)?;
    if let Some(url) = &args.config_store {
        ensure!(
            args.tls_cert.is_none(),
            "--tls-cert together with --config-store is not possible yet: members would not know whom to believe"
        );
        ensure!(
            args.memory > 2 * farside_pool::CONTROL_BYTES,
            "--memory {}: a member of a pool needs more than {} bytes",
            args.memory,
            2 * farside_pool::CONTROL_BYTES
        );
        // Before anything starts: a wrong URL is wrong at once.
        farside_pool::store::open(url, STORE_TIMEOUT)
            .map_err(|why| anyhow!("--config-store {why}"))?;
    }
    Ok(())
}

/// Runs `farside node`.
pub(crate) fn run(args: &NodeArgs) -> Result<ExitCode> {
    let listen = resolve(&args.listen)?;
    let secret = args.secret_file.as_deref().map(Secret::read).transpose()?;
    ensure!(
        listen.ip().is_loopback() || secret.is_some() || args.trust_network,
        "--listen {listen} is reachable from other machines: give --secret-file FILE, or --trust-network if nobody else can reach it"
    );
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => Some(NodeTls::from_files(certificate, key)?),
        _ => None,
    };
    check(args)?;
    let stopped = stop_on_signals()?;
    let data = args.data.as_deref().map(open_data).transpose()?;
    let (mut listen, mut announced) = (listen, false);
    let start = Instant::now();
    if args.config_store.is_some() {
        // The beats of all members go through this thread.
        hurry();
    }
    // Each turn is a life of the node: one that was put out of its pool begins another, empty, unless it was to leave.
    loop {
        let options = NodeOptions {
            listen,
            memory_bytes: args.memory,
            huge_pages: args.huge_pages,
            secret: secret.clone(),
            data: data.clone(),
            tls: tls.clone(),
            max_connections: args.max_connections as usize,
            ..NodeOptions::default()
        };
        let node = match args.fabric {
            Network::Tcp => Node::bind(options)?,
            Network::Rdma => rdma::open_node(options, &args.rdma.options())?,
        };
        if let Some(report) = node.report() {
            tell_recovery(report);
        }
        if !std::mem::replace(&mut announced, true) {
            say!("listening on {}", node.address()?);
        }
        listen = node.address()?;
        let stop = Stop::with_flag(Arc::clone(&stopped))?;
        let membership = membership::Membership::start(args, listen, &secret, start, &stop)?;
        node.run(&stop, |event| log(start, args.verbose, &event))?;
        if stopped.load(Ordering::Acquire) {
            break;
        }
        let ended = membership.map(membership::Membership::finish).transpose()?;
        if ended == Some(Lapsed::Drained) {
            break;
        }
    }
    eprintln!("farside node: stopped");
    Ok(ExitCode::SUCCESS)
}

fn open_data(path: &Path) -> Result<Arc<dyn Disk>> {
    let disk = Directory::open(path).with_context(|| format!("the data in {}", path.display()))?;
    Ok(Arc::new(disk))
}

/// How long a request to the config store may take.
pub(crate) const STORE_TIMEOUT: Duration = Duration::from_secs(2);

fn resolve(text: &str) -> Result<SocketAddr> {
    let mut found = text
        .to_socket_addrs()
        .with_context(|| format!("--listen {text}: expected HOST:PORT, such as 127.0.0.1:7171"))?;
    found.next().with_context(|| format!("--listen {text}: no such host"))
}

/// The kernel would promise memory that is not there, and kill the node when it is used.
fn check_memory(wanted: u64) -> Result<()> {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    match available {
        Some(kib) if wanted > kib << 10 => bail!(
            "--memory {wanted}: only {} MiB are available on this machine; ask for less, or free some",
            kib >> 10
        ),
        _ => Ok(()),
    }
}

fn tell_recovery(report: &farside_fabric::tcp::Recovery) {
    let farside_fabric::tcp::Recovery { checkpoint_bytes, replayed, torn, .. } = report;
    if *checkpoint_bytes > 0 || *replayed > 0 {
        eprintln!(
            "farside node: {checkpoint_bytes} bytes of memory from a checkpoint, and {replayed} changes from the journal"
        );
    }
    if let Some((file, at)) = torn {
        eprintln!(
            "farside node: {file} ends at byte {at} in the middle of something that nobody was promised; that was cut off"
        );
    }
}

fn log(start: Instant, verbose: bool, event: &NodeEvent) {
    let at = start.elapsed().as_secs_f64();
    match event {
        NodeEvent::Connected { peer, client } if verbose => {
            eprintln!("{at:10.3}  client {client:#x} connected from {peer}");
        }
        NodeEvent::Refused { peer, why } => eprintln!("{at:10.3}  closed {peer}: {why}"),
        NodeEvent::Failing { why } => {
            eprintln!(
                "{at:10.3}  {why}; nothing is written any more: make room or replace the disk, and start the node again"
            );
        }
        NodeEvent::Fenced { client } => eprintln!("{at:10.3}  client {client:#x} was fenced"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("2g"), Ok(2 << 30));
        for wrong in ["", "MiB", "12", "4097", "1x", "-5", "99999999999TiB", "1.5GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
