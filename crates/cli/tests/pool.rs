//! A pool of real processes over TCP with a real etcd: nodes are killed, stopped and cut off.

#[path = "../../pool/tests/common/mod.rs"]
mod common;
#[path = "common/node_process.rs"]
mod node_process;

use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::Etcd;
use farside_conformance::other_host::OtherHost;
use farside_fabric::{ClientId, Worker, rdma, tcp};
use farside_pool::store::{self, EtcdStore};
use farside_pool::{
    Config, ConfigStore, Connect, Means, Member, NetConnect, Petition, RegionId, View,
};
use node_process::{NodeProcess, signal};
use rustix::process::Signal;

/// Ten milliseconds where the time is measured; more where other tests use the machine, too.
fn lease() -> Duration {
    Duration::from_millis(if std::env::var_os("FARSIDE_TRIES").is_some() { 10 } else { 60 })
}

/// One cluster at a time: leases shall measure the protocol, not the scheduler.
static ALONE: Mutex<()> = Mutex::new(());

/// No step takes longer.
const LIMIT: Duration = Duration::from_secs(20);

struct Cluster {
    etcd: Etcd,
    url: String,
    nodes: Vec<NodeProcess>,
    view: Arc<Mutex<Arc<View>>>,
    clock: Worker,
    store: EtcdStore,
    over: Arc<AtomicBool>,
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Cluster {
    /// Three nodes, and a session of this process that watches.
    fn start(name: &str) -> Option<Self> {
        Self::start_with(name, None)
    }

    /// The same, with the last node on another host.
    fn start_with(name: &str, other: Option<&OtherHost>) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let etcd = Etcd::start(name, other.map(|other| other.mine))?;
        let url = format!("etcd:{}/{name}", etcd.address());
        let here = other.map_or("127.0.0.1:0".into(), |other| format!("{}:0", other.mine));
        let mut nodes: Vec<_> =
            (0..2).map(|_| NodeProcess::start(&[], &url, &here, lease())).collect();
        nodes.push(match other {
            None => NodeProcess::start(&[], &url, &here, lease()),
            Some(other) => {
                NodeProcess::start(&other.prefix(), &url, &format!("{}:0", other.there), lease())
            }
        });
        let over = Arc::new(AtomicBool::new(false));
        let view = watch(&url, &over);
        let store = EtcdStore::new(vec![etcd.address()], name, Duration::from_secs(2));
        let cluster =
            Cluster { etcd, url, nodes, view, clock: Worker::new(1), store, over, _alone: alone };
        cluster.wait_for("three members", |config| config.nodes.len() == 3);
        Some(cluster)
    }

    /// What the session of this process knows.
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().unwrap())
    }

    fn wait_for(&self, what: &str, is: impl Fn(&Config) -> bool) {
        self.wait_until(what, || is(&self.view().config()) && self.may_act());
    }

    fn wait_until(&self, what: &str, is: impl Fn() -> bool) {
        let start = Instant::now();
        while !is() {
            assert!(start.elapsed() < LIMIT, "{what}: not reached; {:?}", self.view());
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn may_act(&self) -> bool {
        self.view().may_act(self.clock.now())
    }

    /// A region with a copy on every node; returns which process has its primary.
    fn add_region(&self) -> (RegionId, usize) {
        self.wait_for("three members", |config| config.nodes.len() == 3);
        let number = self.view().config().regions.len() as u16;
        let petition = Petition::Region { number, bytes: 128 << 10, copies: 3 };
        let key = format!("region-{number}");
        self.clock.block_on(self.store.petition(&key, &petition.encode())).unwrap();
        self.wait_for("a new region", |config| config.regions.len() > usize::from(number));
        let region = RegionId(number);
        (region, self.primary(region).unwrap())
    }

    /// Whether a region has all its copies.
    fn is_whole(&self, region: RegionId) -> bool {
        self.view().config().region(region).is_some_and(|region| region.replicas.len() == 3)
    }

    /// The process with the primary of a region.
    fn primary(&self, region: RegionId) -> Option<usize> {
        let config = self.view().config();
        let replica = config.region(region)?.replicas.first()?;
        let address = &config.node(replica.node)?.address;
        self.nodes.iter().position(|node| node.address == *address)
    }

    /// How long it takes until another primary is in force, after what `strike` does to the node.
    fn failover(&self, strike: impl FnOnce(&NodeProcess)) -> (Duration, usize) {
        let (region, victim) = loop {
            let (region, victim) = self.add_region();
            std::thread::sleep(3 * lease());
            // On a machine that stalls, members are put out without being struck.
            if self.is_whole(region) && self.primary(region) == Some(victim) {
                break (region, victim);
            }
        };
        let start = Instant::now();
        strike(&self.nodes[victim]);
        self.wait_until("another primary", || {
            self.primary(region).is_some_and(|now| now != victim) && self.may_act()
        });
        (start.elapsed(), victim)
    }

    fn restart(&mut self, number: usize) {
        let address = self.nodes[number].address.clone();
        self.nodes[number].child.kill().unwrap();
        self.nodes[number].child.wait().unwrap();
        self.nodes[number] = NodeProcess::start(&[], &self.url, &address, lease());
        self.wait_for("three members again", |config| config.nodes.len() == 3);
    }
}

/// A session of this process, on a thread of its own; another one, if it is put out.
fn watch(url: &str, over: &Arc<AtomicBool>) -> Arc<Mutex<Arc<View>>> {
    let (url, over) = (url.to_owned(), Arc::clone(over));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let worker = Worker::patient(7);
        let mut shared: Option<Arc<Mutex<Arc<View>>>> = None;
        for life in 1.. {
            let store = store::open(&url, Duration::from_secs(2)).unwrap();
            let client = ClientId(u64::from(std::process::id()) << 32 | life);
            let connect: Rc<dyn Connect> = Rc::new(NetConnect::new(
                client,
                tcp::Options::default(),
                rdma::Options::default(),
                4 * lease(),
            ));
            let means = Means {
                worker: worker.clone(),
                client,
                store,
                connect,
                left_out: None,
                eager: false,
            };
            let session = async {
                let member = Member::join(means).await.unwrap();
                match &shared {
                    Some(shared) => *shared.lock().unwrap() = member.view(),
                    None => {
                        let made = Arc::new(Mutex::new(member.view()));
                        tell.send(Arc::clone(&made)).unwrap();
                        shared = Some(made);
                    }
                }
                member.run().await
            };
            let mut session = std::pin::pin!(session);
            worker.block_on(std::future::poll_fn(|cx| match over.load(Ordering::Relaxed) {
                true => std::task::Poll::Ready(()),
                false => session.as_mut().poll(cx).map(drop),
            }));
            if over.load(Ordering::Relaxed) {
                return;
            }
            println!("the session was put out");
        }
    });
    told.recv_timeout(LIMIT).expect("a session")
}

fn tries() -> usize {
    std::env::var("FARSIDE_TRIES").ok().and_then(|tries| tries.parse().ok()).unwrap_or(2)
}

fn report(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let median = times[times.len() / 2];
    println!("{what}: median {median:.1?} of {}, all {times:.1?}", times.len());
    median
}

/// How often, and for how long, a session without any fault may not act: that is the machine's part.
fn control(cluster: &Cluster) {
    let (start, mut longest, mut since) = (Instant::now(), Duration::ZERO, None);
    while start.elapsed() < Duration::from_secs(2) {
        match cluster.may_act() {
            true => since = None,
            false => {
                longest = longest.max(since.get_or_insert_with(Instant::now).elapsed());
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    println!("control: without faults a session may not act for {longest:.1?} at most");
}

#[test]
fn the_status_of_a_pool_is_told() {
    let Some(cluster) = Cluster::start("status") else { return };
    cluster.add_region();
    std::thread::sleep(20 * lease());
    let status = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
        command.args(["status", "--connect", &cluster.url]).args(args).output().unwrap()
    };
    let report: serde_json::Value = serde_json::from_slice(&status(&["--json"]).stdout).unwrap();
    assert_eq!(report["members"].as_array().unwrap().len(), 3, "{report}");
    assert_eq!(report["regions"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["space"]["0"]["free_chunks"], 1, "{report}");
    assert!(report["epoch"].as_u64().unwrap() > 1 && report["managed"] == true, "{report}");
    let text = String::from_utf8(status(&[]).stdout).unwrap();
    assert!(text.contains("manages") && text.contains("(home)"), "{text}");
    let none = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["status", "--connect", &format!("etcd:{}/other", cluster.etcd.address())])
        .output()
        .unwrap();
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(none.status.code() == Some(2) && said.contains("there is no pool"), "{said}");
}

/// `FARSIDE_TRIES=20 cargo test --release -p farside-cli --test pool -- --nocapture` measures.
#[test]
fn another_primary_is_in_force_soon_after_a_node_fails() {
    let Some(mut cluster) = Cluster::start("failover") else { return };
    control(&cluster);
    let mut killed = Vec::new();
    for _ in 0..tries() {
        let (time, victim) = cluster.failover(|node| signal(&node.child, Signal::KILL));
        killed.push(time);
        cluster.restart(victim);
    }
    let mut stopped = Vec::new();
    for _ in 0..tries() {
        let (time, victim) = cluster.failover(|node| signal(&node.child, Signal::STOP));
        stopped.push(time);
        signal(&cluster.nodes[victim].child, Signal::CONT);
        // It finds that it was put out, and begins again by itself.
        cluster.wait_for("three members again", |config| config.nodes.len() == 3);
    }
    report("kill -9", killed);
    report("SIGSTOP", stopped);
}

/// A node is cut off by the network, which swallows all packets: another primary is in force soon, the node
/// notices that it was put out when it can, and comes back empty, as a new member.
#[test]
fn a_node_that_was_cut_off_comes_back_as_an_empty_member() {
    let Some(other) = OtherHost::new(7) else { return };
    let Some(cluster) = Cluster::start_with("cut-off", Some(&other)) else { return };
    let far = cluster.nodes[2].address.clone();
    let member = |config: &Config| config.nodes.iter().find(|node| node.address == far).cloned();
    let mut times = Vec::new();
    while times.len() < tries() {
        let (region, victim) = cluster.add_region();
        std::thread::sleep(3 * lease());
        if victim != 2 || !cluster.is_whole(region) {
            continue;
        }
        let before = member(&cluster.view().config()).expect("a member").incarnation;
        let start = Instant::now();
        other.cut(true);
        cluster.wait_until("another primary", || {
            cluster.primary(region).is_some_and(|now| now != victim) && cluster.may_act()
        });
        times.push(start.elapsed());
        std::thread::sleep(30 * lease());
        other.cut(false);
        cluster.wait_for("the member's next life", |config| {
            config.nodes.len() == 3 && member(config).is_some_and(|now| now.incarnation != before)
        });
        let config = cluster.view().config();
        let after = member(&config).expect("a member again");
        let copies = &config.region(region).unwrap().replicas;
        assert!(copies.iter().all(|copy| copy.node != after.id), "it has nothing of the region");
    }
    report("packets dropped", times);
}

/// etcd dies and comes back: who has a lease goes on for a while, and all is well again by itself.
#[test]
fn an_etcd_that_dies_and_returns_is_survived() {
    let Some(mut cluster) = Cluster::start("etcd-dies") else { return };
    let epoch = cluster.view().epoch();
    // A manager that gets no time for three leases meanwhile has no evidence left, and falls silent (docs/pool.md): a busy machine
    // may do that to it once, not every time.
    let survived = (0..4).any(|_| {
        cluster.etcd.kill();
        std::thread::sleep(30 * lease());
        let acts = (0..20).any(|_| {
            std::thread::sleep(lease() / 2);
            cluster.may_act()
        });
        if !acts {
            cluster.etcd.run();
            cluster.wait_until("leases again", || cluster.may_act());
        }
        acts
    });
    assert!(survived, "echoes suffice for a while");
    std::thread::sleep(100 * lease());
    assert!(!cluster.may_act(), "without the store nobody can know that there is no other manager");
    cluster.etcd.run();
    cluster.wait_for("leases again", |_| true);
    cluster.wait_for("three members", |config| config.nodes.len() == 3);
    println!("epoch {epoch}, then {}", cluster.view().epoch());
    cluster.add_region();
}
