//! A node's membership in a pool, on a thread beside the node's own.

use std::net::SocketAddr;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use farside_fabric::Worker;
use farside_fabric::runtime::hurry;
use farside_fabric::tcp::{Options, Secret, Stop};
use farside_pool::{Host, HostEvent, Lapsed, Terms, store};

use super::{Network, NodeArgs, STORE_TIMEOUT};

/// One life of the node in the pool. When that is over, the node is stopped.
pub(super) struct Membership {
    thread: JoinHandle<Result<Lapsed>>,
}

impl Membership {
    /// `None` for a node that belongs to no pool.
    pub(super) fn start(
        args: &NodeArgs,
        listen: SocketAddr,
        secret: &Option<Secret>,
        start: Instant,
        stop: &Stop,
    ) -> Result<Option<Self>> {
        let Some(url) = args.config_store.clone() else { return Ok(None) };
        let place = args.advertise.clone().unwrap_or_else(|| listen.to_string());
        let (address, usual) = match args.fabric {
            Network::Tcp => (place, 100),
            Network::Rdma => (format!("rdma:{place}"), 10),
        };
        let terms = Terms::new(Duration::from_millis(args.lease.unwrap_or(usual)));
        let (rdma, versions) = (args.rdma.options(), args.versions);
        let options = Options { secret: secret.clone(), ..Options::default() };
        let stop = stop.clone();
        let thread = std::thread::spawn(move || {
            // It keeps the leases of this node and of others.
            hurry();
            let worker = Worker::patient(u64::from(std::process::id()));
            let store = store::open(&url, STORE_TIMEOUT).map_err(|why| anyhow!(why))?;
            let host = Rc::new(Host { address, store, options, rdma, terms, versions });
            let tell = Rc::new(move |event| log(start, &event));
            let ended = worker.block_on(host.run(&worker, tell));
            stop.stop();
            let at = start.elapsed().as_secs_f64();
            let lapsed = ended?;
            match lapsed {
                Lapsed::PutOut => {
                    eprintln!("{at:10.3}  put out of the pool; beginning again with empty memory");
                }
                Lapsed::Drained => eprintln!("{at:10.3}  drained: it has left the pool"),
                Lapsed::NodeGone => eprintln!("{at:10.3}  the node does not answer its keeper"),
            }
            Ok(lapsed)
        });
        Ok(Some(Membership { thread }))
    }

    /// Waits for its end, after the node was stopped by it; why it ended.
    pub(super) fn finish(self) -> Result<Lapsed> {
        self.thread.join().map_err(|_| anyhow!("the membership ended in a panic"))?
    }
}

fn log(start: Instant, event: &HostEvent) {
    let at = start.elapsed().as_secs_f64();
    match event {
        HostEvent::Founded => eprintln!("{at:10.3}  founded the pool"),
        HostEvent::Joined => eprintln!("{at:10.3}  joined the pool"),
        HostEvent::SessionLost => eprintln!("{at:10.3}  its session was put out; joining again"),
        HostEvent::Heard(true) => eprintln!("{at:10.3}  a manager is heard again"),
        HostEvent::Heard(false) => eprintln!("{at:10.3}  no manager is heard; asking the store"),
        HostEvent::Store(error) => eprintln!("{at:10.3}  {error}"),
        _ => {}
    }
}
