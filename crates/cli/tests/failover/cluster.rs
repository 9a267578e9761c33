//! Node processes with an etcd.

use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::Etcd;
use crate::node_process::NodeProcess;
use farside_fabric::Worker;
use farside_pool::{Config, ConfigStore, Region, store};

/// One cluster at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// No step takes longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Long, so that nobody is taken for dead who only waits for a core.
pub(crate) fn lease() -> Duration {
    let asked = std::env::var("FARSIDE_LEASE_MS").ok().and_then(|ms| ms.parse().ok());
    Duration::from_millis(asked.unwrap_or(300))
}

fn start_node(store: &str) -> NodeProcess {
    NodeProcess::start(&[], store, "127.0.0.1:0", lease())
}

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<NodeProcess>,
    pub(crate) url: String,
    store: Rc<dyn ConfigStore>,
    clock: Worker,
    _etcd: Etcd,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    pub(crate) fn start(name: &str, nodes: usize) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let etcd = Etcd::start(name, None)?;
        let url = format!("etcd:{}/{name}", etcd.address());
        let store = store::open(&url, Duration::from_secs(2)).unwrap();
        let nodes: Vec<_> = (0..nodes).map(|_| start_node(&url)).collect();
        let clock = Worker::new(1);
        let cluster = Cluster { nodes, url, store, clock, _etcd: etcd, _alone: alone };
        cluster.wait_for("all members", |config| config.nodes.len() == cluster.nodes.len());
        Some(cluster)
    }

    pub(crate) fn add_node(&mut self) {
        self.nodes.push(start_node(&self.url));
    }

    pub(crate) fn config(&self) -> Option<Config> {
        self.clock.block_on(self.store.read(0)).ok().and_then(|stored| stored.newest())
    }

    /// The newest one: a store may be slow to answer.
    fn newest(&self) -> Config {
        let start = Instant::now();
        loop {
            if let Some(config) = self.config() {
                return config;
            }
            assert!(start.elapsed() < LIMIT, "the store does not answer");
        }
    }

    pub(crate) fn wait_for(&self, what: &str, is: impl Fn(&Config) -> bool) -> Duration {
        let start = Instant::now();
        loop {
            let config = self.config();
            if config.as_ref().is_some_and(&is) {
                return start.elapsed();
            }
            assert!(start.elapsed() < LIMIT, "{what}: not reached; {config:?}");
            // Not more often: etcd would be busy with that.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Every region has its copies, and every process is a member.
    pub(crate) fn wait_until_whole(&self, what: &str) -> Duration {
        let whole = |it: &Region| it.replicas.len() >= it.copies.min(3) && it.joining.is_empty();
        self.wait_for(what, |config| {
            let is_member = |node: &NodeProcess| {
                config.nodes.iter().any(|it| it.address == node.address && !it.draining)
            };
            config.regions.iter().all(whole)
                && config.nodes.len() == self.nodes.len()
                && self.nodes.iter().all(is_member)
        })
    }

    /// Which of the processes has the most primaries.
    pub(crate) fn busiest(&self) -> usize {
        let config = self.newest();
        let most = config.nodes.iter().max_by_key(|node| config.roles(node.id).primaries).unwrap();
        self.nodes.iter().position(|node| node.address == most.address).unwrap()
    }
}
