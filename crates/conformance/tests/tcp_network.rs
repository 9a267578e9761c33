//! `tcp` on networks and with peers that misbehave: nodes that die or stop, other hosts, black holes,
//! streams that are delayed and cut, thousands of connections.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use farside_conformance::beds::{self, Network, NodeProcess, TcpBed};
use farside_conformance::other_host::{OtherHost, ip};
use farside_conformance::{cases, run};
use farside_fabric::tcp::{Client, Options};
use farside_fabric::{ClientId, FabricError, NodeId, Queue, Result, Worker};
use rustix::process::Signal;

fn quick() -> Options {
    let timeout = Duration::from_millis(300);
    Options { timeout, connect_timeout: timeout, ..Options::default() }
}

fn connect(address: SocketAddr) -> (Worker, Queue) {
    let worker = Worker::new(1);
    let client = Client::new(ClientId(7), vec![address], quick());
    let queue = client.connect(&worker, NodeId(0)).unwrap();
    (worker, queue)
}

async fn add(worker: &Worker, queue: &Queue) -> Result<u64> {
    let mut round = worker.round();
    let old = round.to(queue).faa(0, 1);
    Ok(round.ring().await?[old])
}

fn typed_within(worker: &Worker, queue: &Queue, bound: Duration) -> FabricError {
    let start = Instant::now();
    let error = worker.block_on(async {
        loop {
            if let Err(error) = add(worker, queue).await {
                return error;
            }
        }
    });
    assert!(start.elapsed() < bound, "{error} after {:?}", start.elapsed());
    error
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_farside-conformance"))
}

fn start(prefix: &[String], host: IpAddr) -> NodeProcess {
    NodeProcess::start(Network::Tcp, program(), prefix, SocketAddr::from((host, 0))).unwrap()
}

fn start_here() -> NodeProcess {
    start(&[], IpAddr::from([127, 0, 0, 1]))
}

#[test]
fn a_killed_node_is_noticed_at_once() {
    let node = start_here();
    let (worker, queue) = connect(node.address);
    node.signal(Signal::KILL).unwrap();
    let error = typed_within(&worker, &queue, Duration::from_millis(600));
    assert!(matches!(error, FabricError::NodeGone(_)), "{error}");
    let again = worker.block_on(queue.reconnect());
    assert!(matches!(again, Err(FabricError::NodeGone(_))), "{again:?}");
}

#[test]
fn a_stopped_node_is_an_error_within_the_timeout() {
    let node = start_here();
    let (worker, queue) = connect(node.address);
    node.signal(Signal::STOP).unwrap();
    let error = typed_within(&worker, &queue, Duration::from_millis(600));
    assert!(matches!(error, FabricError::TimedOut { .. }), "{error}");
    assert!(worker.block_on(queue.reconnect()).is_err(), "it does not answer");
    node.signal(Signal::CONT).unwrap();
    let start = Instant::now();
    while worker.block_on(queue.reconnect()).is_err() {
        assert!(start.elapsed() < Duration::from_secs(5), "it goes on, and cannot be reached");
    }
    // What was in flight when it stopped has taken effect once, or never will.
    let before = worker.block_on(add(&worker, &queue)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(worker.block_on(add(&worker, &queue)), Ok(before + 1));
}

#[test]
fn the_suite_holds_between_network_namespaces() {
    let Some(host) = OtherHost::new(1) else { return };
    for case in cases::CASES {
        let bed = TcpBed::elsewhere(program(), &host.prefix(), host.there, Ok).unwrap();
        if let Err(error) = run(case, &bed) {
            panic!("{} between namespaces: {error:#}", case.name);
        }
    }
}

/// A route that swallows everything on its way to the node.
#[test]
fn a_black_hole_is_an_error_within_the_timeout() {
    let Some(host) = OtherHost::new(2) else { return };
    let node = start(&host.prefix(), host.there);
    let (worker, queue) = connect(node.address);
    worker.block_on(add(&worker, &queue)).unwrap();
    let route = format!("{}/32", host.there);
    assert!(ip(&["route", "add", "blackhole", &route]));
    let error = typed_within(&worker, &queue, Duration::from_millis(600));
    assert!(matches!(error, FabricError::TimedOut { .. }), "{error}");
    let start = Instant::now();
    assert!(worker.block_on(queue.reconnect()).is_err());
    assert!(start.elapsed() < Duration::from_millis(600));
    assert!(ip(&["route", "del", "blackhole", &route]));
    worker.block_on(queue.reconnect()).unwrap();
    worker.block_on(add(&worker, &queue)).unwrap();
}

/// One case through proxies that cut this many of a million pieces.
fn through_proxies(case: &cases::Case, seed: u64, cuts: u32) -> anyhow::Result<()> {
    let mut proxies = Vec::new();
    let bed = TcpBed::through(program(), |address| {
        let proxy = beds::Proxy::start(program(), address, seed, cuts)?;
        let between = proxy.address;
        proxies.push(proxy);
        Ok(between)
    })?;
    // Here it is the network that is tried out, not the repetitions.
    run(case, &bed.hurried(5))
}

/// Whether a case failed because a connection did; anything else would be a broken promise.
fn by_lost_connection(error: &anyhow::Error) -> bool {
    let error = format!("{error:#}");
    let ways = ["is gone", "NodeGone", "is broken", "Broken", "did not answer", "TimedOut"];
    ways.iter().any(|why| error.contains(why))
}

/// Every case passes through proxies that delay and stall. Before that it is tried with proxies that
/// cut as well, seldom and often: then it may end with the error of a lost connection, and never with
/// a wrong result, nor by waiting for what will not come.
#[test]
fn the_suite_holds_through_proxies_that_delay_stall_and_cut() {
    let mut lost = 0;
    for (seed, case) in (1..).zip(cases::CASES) {
        for cuts in [20_000, 1_000, 50] {
            match through_proxies(case, seed, cuts) {
                Ok(()) => break,
                Err(error) if by_lost_connection(&error) => lost += 1,
                Err(error) => panic!("{} with {cuts} cuts: {error:#}", case.name),
            }
        }
        if let Err(error) = through_proxies(case, seed, 0) {
            panic!("{} through a proxy: {error:#}", case.name);
        }
    }
    println!("{lost} attempts lost a connection");
    assert!(lost > 20, "the streams were cut in {lost} attempts only");
}

/// Streams are cut at random. A client that swaps from one number to the next, reconnects after each
/// error and tries again counts every number once.
#[test]
fn nothing_is_lost_or_doubled_when_streams_are_cut() {
    let node = start_here();
    let proxy = beds::Proxy::start(program(), node.address, 5, 20_000).unwrap();
    let worker = Worker::new(1);
    let client = Client::new(ClientId(9), vec![proxy.address], quick());
    let connect_somehow = || {
        (0..1000)
            .find_map(|_| client.connect(&worker, NodeId(0)).ok())
            .expect("one connection in a thousand")
    };
    let queue = connect_somehow();
    let (mut errors, start) = (0, Instant::now());
    worker.block_on(async {
        for i in 0..2000 {
            loop {
                let mut round = worker.round();
                let old = round.to(&queue).cas(8, i, i + 1);
                match round.ring().await {
                    // Found i: swapped now. Found i + 1: an attempt before it was answered too late.
                    Ok(done) => {
                        assert!(done[old] == i || done[old] == i + 1, "{} at step {i}", done[old]);
                        break;
                    }
                    Err(_) => errors += 1,
                }
                while queue.reconnect().await.is_err() {
                    assert!(start.elapsed() < Duration::from_secs(50), "no way through the proxy");
                }
            }
        }
    });
    println!("{errors} errors");
    assert!(errors > 10, "the streams were cut {errors} times only");
}

/// Thousands of connections at once, all of them used.
#[test]
fn a_node_serves_thousands_of_connections() {
    const CLIENTS: usize = 2000;
    let node = start_here();
    let worker = Worker::new(1);
    let queues: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client =
                Client::new(ClientId(number as u64 + 1), vec![node.address], Options::default());
            client.connect(&worker, NodeId(0)).unwrap()
        })
        .collect();
    worker.block_on(async {
        for _ in 0..3 {
            let mut round = worker.round();
            queues.iter().for_each(|queue| _ = round.to(queue).faa(0, 1));
            round.ring().await.unwrap();
        }
        assert_eq!(add(&worker, &queues[0]).await, Ok(3 * CLIENTS as u64));
    });
}
