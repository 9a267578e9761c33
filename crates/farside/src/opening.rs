//! Opening a database: from a URL to nodes, regions, and a session.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::shm::Segment;
use farside_fabric::{ClientId, NodeId, Worker, local, shm, tcp};
use farside_pool::time::{self, Master};
use farside_pool::{CONTROL_BYTES, Config, Links, Newcomer, Node, View};
use farside_txn::clock::{Clock, PoolClock, WorkerClock};
use farside_txn::{Identity, Parts, Session};

use crate::fabric::Fabric;
use crate::url::{Place, Url};
use crate::{Error, Result};

/// What opening has found: enough for every thread to join.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) fabric: Fabric,
    pub(crate) view: Arc<View>,
    pub(crate) session: Arc<Session>,
    /// Nobody puts nodes out.
    pub(crate) fixed: bool,
}

impl Opened {
    /// What a thread joins with.
    pub(crate) fn parts(&self, worker: &Worker) -> Parts {
        Parts {
            session: Arc::clone(&self.session),
            seat: self.view.seat(),
            links: self.links(worker),
            clock: self.clock(worker),
        }
    }

    fn links(&self, worker: &Worker) -> Links {
        let connect = self.fabric.connect();
        match self.fixed {
            true => Links::wary(worker, &connect),
            false => Links::new(worker, &connect),
        }
    }

    /// Processes of one host have one clock.
    fn clock(&self, worker: &Worker) -> Box<dyn Clock> {
        match &self.fabric {
            Fabric::Net { .. } => Box::new(PoolClock::new(worker, &self.view)),
            Fabric::Shm(client) => Box::new(WorkerClock::of_host(worker).ahead(client.ahead())),
            Fabric::Local(_) => Box::new(WorkerClock::of_host(worker)),
        }
    }

    /// Gives back what this process has in the pool.
    pub(crate) async fn close(&self, worker: &Worker) {
        let links = self.links(worker);
        let _ = self.session.retire(worker, &links, &self.view.seat()).await;
    }
}

/// How long nodes may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a process may be silent before others take it for dead, unless its URL says otherwise.
const LEASE: Duration = Duration::from_secs(1);

/// The memory of a database in this process, or in a new file, unless its URL says otherwise.
const MEMORY: u64 = 1 << 30;

/// The largest region: its table has a word for each of its chunks.
const MOST_REGION_BYTES: u64 = 512 << 20;

/// The smallest that is of any use.
const LEAST_REGION_BYTES: u64 = 4 << 20;

/// Who keeps what is flushed.
pub(crate) const KEEPERS: &str =
    "expected file:PATH on a disk, or tcp:HOST:PORT,… with nodes that were started with --data DIR";

/// An id that nobody else has.
pub(crate) fn fresh_id() -> Result<ClientId> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::Invalid(format!("asking for randomness: {error}")))?;
    // Shared memory has room for 48 bits of it.
    Ok(ClientId((u64::from_le_bytes(bytes) >> 16 | 1).max(1)))
}

/// Opens a pool that has no manager: its nodes are those of the URL, and all processes that use it say the same.
pub(crate) async fn open(worker: &Worker, url: &Url, options: &tcp::Options) -> Result<Opened> {
    if url.must_keep && !matches!(url.place, Place::Nodes(_) | Place::Files(_)) {
        return Err(Error::Invalid(format!("durability=flush: {KEEPERS}")));
    }
    let client = fresh_id()?;
    let (fabric, nodes, first) = reach(worker, url, options, client).await?;
    let copies = url.copies.unwrap_or(match url.place {
        Place::Nodes(_) => nodes.len().min(3),
        _ => 1,
    });
    let config = lay_out(client, &nodes, copies, first)?;
    let lease_ns = url.lease.unwrap_or(LEASE).as_nanos() as u64;
    // Nobody moves the clock: it goes with the first node.
    let master = Some(Master { node: 0, ahead: 0, since: 1 });
    let config = Config { lease_ns, master, ..config };
    let connect = fabric.connect();
    let links = Links::wary(worker, &connect);
    let view = View::alone(config);
    if let Fabric::Net { .. } = fabric {
        let (connect, known) = (fabric.connect(), Arc::downgrade(&view));
        worker.spawn(time::follow(worker.clone(), connect, known)).detach();
        crate::pool::wait_for_clock(worker, &view).await?;
    }
    let identity = Identity::claim(worker, &links, &view.seat(), client.0).await?;
    let session = Session::new(identity, url.limits);
    Ok(Opened { fabric, view, session, fixed: true })
}

/// The nodes with their sizes, and where regions begin in them.
async fn reach(
    worker: &Worker,
    url: &Url,
    options: &tcp::Options,
    client: ClientId,
) -> Result<(Fabric, Vec<Newcomer>, u64)> {
    let newcomer = |(number, bytes): (usize, u64)| Newcomer {
        address: number.to_string(),
        incarnation: 0,
        bytes,
        versions: false,
    };
    match &url.place {
        Place::Memory => {
            let count = url.nodes.unwrap_or(1).max(url.copies.unwrap_or(1) as u16);
            let bytes = (url.memory.unwrap_or(MEMORY) / u64::from(count)).next_multiple_of(4096);
            let cluster = local::Cluster::new(count, bytes)?;
            let nodes = (0..count.into()).map(|number| newcomer((number, bytes))).collect();
            Ok((Fabric::Local(cluster.client()), nodes, 0))
        }
        Place::Files(paths) => {
            let bytes = url.memory.unwrap_or(MEMORY) / paths.len() as u64;
            let mut segments = Vec::new();
            for (number, path) in (0..).zip(paths) {
                segments.push(segment(path, NodeId(number), bytes.next_multiple_of(4096))?);
            }
            if url.must_keep && !segments.iter().all(Segment::is_kept) {
                let why = "durability=flush: a file on tmpfs, or a device, keeps nothing";
                return Err(Error::Invalid(format!("{why}; {KEEPERS}")));
            }
            let sizes = segments.iter().map(Segment::bytes).enumerate();
            let nodes = sizes.map(newcomer).collect();
            Ok((Fabric::Shm(shm::Client::attach(segments, client)?), nodes, 0))
        }
        Place::Nodes(addresses) => {
            let options = options.clone();
            let fabric = Fabric::Net { client, options, timeout: TIMEOUT };
            let connect = fabric.connect();
            let mut nodes = Vec::new();
            for (id, address) in (0..).zip(addresses) {
                let node = Node {
                    id,
                    incarnation: 0,
                    address: address.clone(),
                    bytes: 0,
                    draining: false,
                    versions: false,
                };
                let queue = connect.connect(worker, &node).await?;
                if farside_pool::is_member(worker, &queue).await? {
                    return Err(Error::Invalid(format!(
                        "the node at {address} belongs to a pool; open that by its config store"
                    )));
                }
                if url.must_keep && !queue.keeps_what_is_flushed() {
                    let why =
                        format!("durability=flush: the node at {address} keeps nothing; {KEEPERS}");
                    return Err(Error::Invalid(why));
                }
                let incarnation = queue.capabilities().life;
                let (address, bytes) = (address.clone(), queue.memory_bytes());
                nodes.push(Newcomer { address, incarnation, bytes, versions: false });
            }
            Ok((fabric, nodes, CONTROL_BYTES))
        }
        Place::Pool(_) => unreachable!("pools are opened elsewhere"),
    }
}

/// A file that is there, or a new one.
fn segment(path: &Path, node: NodeId, bytes: u64) -> Result<Segment> {
    if path.exists() {
        return Ok(Segment::open(path)?);
    }
    // Somebody else may be faster.
    let made = Segment::create(path, node, bytes);
    Ok(made.or_else(|why| if path.exists() { Segment::open(path) } else { Err(why) })?)
}

/// The size of regions where there is so much room for each.
pub(crate) fn region_bytes(room: u64) -> Result<u64> {
    let bytes = room.min(MOST_REGION_BYTES) / (64 << 10) * (64 << 10);
    if bytes < LEAST_REGION_BYTES {
        let least = LEAST_REGION_BYTES >> 20;
        return Err(Error::Invalid(format!(
            "there is too little memory: expected at least {least} MiB for each copy on each node"
        )));
    }
    Ok(bytes)
}

/// The same for everybody who knows the nodes.
fn lay_out(client: ClientId, nodes: &[Newcomer], copies: usize, first: u64) -> Result<Config> {
    if copies > nodes.len() {
        return Err(Error::Invalid(format!("{copies} copies on {} nodes", nodes.len())));
    }
    let mut config = Config::first(client, LEASE);
    nodes.iter().for_each(|node| _ = config.add_node(node));
    let smallest = nodes.iter().map(|node| node.bytes.saturating_sub(first)).min().unwrap_or(0);
    // A primary on each node, at least.
    let share = smallest / copies.max(1) as u64;
    let bytes = region_bytes(share)?;
    while config.add_region(bytes, copies, first).is_some() {}
    Ok(config)
}
