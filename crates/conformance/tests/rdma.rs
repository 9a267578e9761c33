//! `rdma` on the first RDMA device of this machine. Without one, nothing is tested, and each test says
//! so; `cargo xtask rdma-test` runs all of them on soft-RoCE in a virtual machine.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use farside_conformance::beds::{self, Network, NodeProcess, TcpBed};
use farside_conformance::{cases, run};
use farside_fabric::{ClientId, FabricError, NodeId, Phase, Queue, Tally, Worker, rdma, tcp};
use rustix::process::Signal;

/// The device, if there is one.
fn device() -> Option<String> {
    let mut devices = std::fs::read_dir("/sys/class/infiniband").ok()?.flatten();
    let name = devices.next().and_then(|device| device.file_name().into_string().ok());
    if name.is_none() {
        println!("skipped: this machine has no RDMA device");
    }
    name
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_farside-conformance"))
}

fn quick() -> tcp::Options {
    let timeout = Duration::from_secs(2);
    tcp::Options { timeout, connect_timeout: timeout, ..tcp::Options::default() }
}

fn start(network: Network) -> NodeProcess {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    NodeProcess::start(network, program(), &[], listen).unwrap()
}

fn connect(
    node: &NodeProcess,
    worker: &Worker,
    options: &rdma::Options,
) -> farside_fabric::Result<Queue> {
    let client = rdma::Client::open(ClientId(7), vec![node.address], quick(), options)?;
    client.connect(worker, NodeId(0))
}

#[test]
fn the_suite_holds() {
    let Some(device) = device() else { return };
    // A device in software is a thousand times slower, and more in an emulated machine.
    let share = if device.starts_with("rxe") { 10 } else { 1 };
    for case in cases::CASES {
        let start = Instant::now();
        let bed = TcpBed::new(program(), Network::Rdma).unwrap().hurried(share);
        if let Err(error) = run(case, &bed) {
            panic!("{} on {device}: {error:#}", case.name);
        }
        println!("{:6.2} s  {}", start.elapsed().as_secs_f64(), case.name);
    }
}

/// One-sided: the node's process has no part in it.
#[test]
fn a_stopped_node_still_answers() {
    let Some(_) = device() else { return };
    let (node, worker) = (start(Network::Rdma), Worker::new(1));
    let queue = connect(&node, &worker, &rdma::Options::default()).unwrap();
    node.signal(Signal::STOP).unwrap();
    worker.block_on(async {
        for i in 0..100 {
            let mut round = worker.round();
            let old = round.to(&queue).faa(64, 1);
            assert_eq!(round.ring().await.unwrap()[old], i);
        }
        // A call needs its CPU.
        let called = queue.call(farside_conformance::bed::service::ECHO, b"x").await;
        assert!(matches!(called, Err(FabricError::TimedOut { .. })), "{called:?}");
    });
    node.signal(Signal::CONT).unwrap();
}

#[test]
fn a_killed_node_is_noticed_and_reconnecting_says_so() {
    let Some(_) = device() else { return };
    let (node, worker) = (start(Network::Rdma), Worker::new(1));
    let queue = connect(&node, &worker, &rdma::Options::default()).unwrap();
    let start = Instant::now();
    node.signal(Signal::KILL).unwrap();
    let error = worker.block_on(async {
        loop {
            let mut round = worker.round();
            round.to(&queue).faa(0, 1);
            round.to(&queue).write(64, &[1; 64]);
            if let Err(error) = round.ring().await {
                return error;
            }
        }
    });
    assert!(matches!(error, FabricError::NodeGone(_)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    let again = worker.block_on(queue.reconnect());
    assert!(matches!(again, Err(FabricError::NodeGone(_))), "{again:?}");
}

/// Queues and buffers are never overrun: doorbells that are larger than both, many at once.
#[test]
fn large_doorbells_pass_through_small_queues() {
    let Some(_) = device() else { return };
    let (node, worker) = (start(Network::Rdma), Worker::new(1));
    let small = rdma::Options { queue_depth: 8, buffer_bytes: 8192, ..rdma::Options::default() };
    let queue = connect(&node, &worker, &small).unwrap();
    worker.block_on(async {
        let rounds: Vec<_> = (0..4u64)
            .map(|task| {
                let mut round = worker.round();
                let mut bell = round.to(&queue);
                let at = (1 + task) << 17;
                let words: Vec<u64> = (0..5000).map(|word| task << 32 | word).collect();
                bell.write(at, &words);
                let back = bell.read(at, 40_000);
                let sums: Vec<_> = (0..50).map(|_| bell.faa(8 + task * 8, 1)).collect();
                let swapped = bell.cas(8 + task * 8, 50, 7);
                bell.flush();
                (round.ring(), words, back, sums, swapped)
            })
            .collect();
        for (round, words, back, sums, swapped) in rounds {
            let done = round.await.unwrap();
            assert_eq!(done[back], words[..]);
            assert!(sums.iter().zip(0..).all(|(sum, expected)| done[*sum] == expected));
            assert_eq!(done[swapped], 50);
        }
    });
}

fn counter(device: &str, name: &str) -> Option<u64> {
    // The kernel answers from a copy that is up to 12 ms old.
    std::thread::sleep(Duration::from_millis(50));
    let path = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/{name}");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Every verb is as many packets as its size says, and no more: soft-RoCE counts those that it sends,
/// of both sides.
#[test]
fn packets_move_as_the_verbs_predict() {
    let Some(device) = device() else { return };
    if counter(&device, "sent_pkts").is_none() {
        println!("skipped: {device} does not count its packets");
        return;
    }
    let (node, worker) = (start(Network::Rdma), Worker::new(1));
    let options = rdma::Options { mtu: Some(1024), ..rdma::Options::default() };
    let queue = connect(&node, &worker, &options).unwrap();
    let measure = |count: u64, verbs: &dyn Fn(&mut farside_fabric::Doorbell<'_>)| {
        let (before, tally) = (counter(&device, "sent_pkts").unwrap(), Tally::default());
        worker.block_on(async {
            for _ in 0..count {
                let mut round = worker.round().counted(&tally, Phase(0));
                verbs(&mut round.to(&queue));
                round.ring().await.unwrap();
            }
        });
        (tally.total().verbs(), counter(&device, "sent_pkts").unwrap() - before)
    };
    // A request and its answer.
    assert_eq!(measure(100, &|bell| _ = bell.read(0, 64)), (100, 200));
    assert_eq!(measure(100, &|bell| bell.write(0, &[1; 8])), (100, 200));
    assert_eq!(measure(100, &|bell| _ = bell.cas(0, 1, 2)), (100, 200));
    assert_eq!(measure(100, &|bell| _ = bell.faa(0, 1)), (100, 200));
    // A FLUSH is a READ behind the WRITE.
    let flushed = measure(50, &|bell| {
        bell.write(0, &[1; 8]);
        bell.flush();
    });
    assert_eq!(flushed, (100, 200));
    // One request brings four packets; four packets are answered by one.
    assert_eq!(measure(10, &|bell| _ = bell.read(0, 4096)), (10, 50));
    assert_eq!(measure(10, &|bell| bell.write(0, &[1; 512])), (10, 50));
}

/// What a wrong setting is told, by opening a client with it.
fn refusal(options: &rdma::Options) -> String {
    let opened = rdma::Client::open(ClientId(1), Vec::new(), tcp::Options::default(), options);
    opened.unwrap_err().to_string()
}

#[test]
fn a_missing_device_says_which_there_are() {
    let Some(device) = device() else { return };
    let missing = rdma::Options { device: Some("mlx9_9".into()), ..rdma::Options::default() };
    let said = refusal(&missing);
    assert!(said.contains("finding mlx9_9") && said.contains(&device), "{said}");
    let port = refusal(&rdma::Options { port: Some(77), ..rdma::Options::default() });
    assert!(port.contains("port 77") && port.contains("it has ports [1"), "{port}");
}

#[test]
fn a_wrong_gid_says_which_there_are() {
    let Some(_) = device() else { return };
    let said = refusal(&rdma::Options { gid_index: Some(200), ..rdma::Options::default() });
    assert!(said.contains("using gid 200") && said.contains("port 1 has: 0 ("), "{said}");
}

/// As another user: root knows no limit.
#[test]
fn too_little_lockable_memory_says_how_to_get_more() {
    let Some(_) = device() else { return };
    let script =
        format!("ulimit -l 64 && exec {} {} rdma 127.0.0.1:0", program().display(), beds::NODE);
    let nobody = 65_534;
    let mut shell = Command::new("sh");
    let Ok(output) = shell.args(["-c", &script]).uid(nobody).gid(nobody).output() else {
        println!("skipped: only root can become somebody else");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("registering 16384 KiB") && said.contains("64 KiB"), "{said}");
    assert!(said.contains("ulimit -l unlimited"), "{said}");
}

/// A peer that speaks another version, in the middle of the handshake.
#[test]
fn a_peer_of_another_version_is_told_apart() {
    use std::io::{Read, Write};
    let Some(_) = device() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 72];
        stream.read_exact(&mut hello).unwrap();
        // A challenge of version 99.
        let mut frame = vec![48, 0, 0, 0, 2, 0, 0, 0];
        frame.extend_from_slice(&99u64.to_le_bytes());
        frame.extend_from_slice(&[0; 40]);
        stream.write_all(&frame).unwrap();
    });
    let options = rdma::Options::default();
    let client = rdma::Client::open(ClientId(1), vec![address], quick(), &options).unwrap();
    let said = client.connect(&Worker::new(1), NodeId(0)).unwrap_err().to_string();
    assert!(said.contains("version 99") && said.contains("upgrade the older one"), "{said}");
    peer.join().unwrap();
}

#[test]
fn the_wrong_kind_of_node_says_what_it_is() {
    let Some(_) = device() else { return };
    let worker = Worker::new(1);
    let plain = start(Network::Tcp);
    let said = connect(&plain, &worker, &rdma::Options::default()).unwrap_err().to_string();
    assert!(said.contains("--fabric rdma"), "{said}");
    let node = start(Network::Rdma);
    let client = tcp::Client::new(ClientId(1), vec![node.address], quick());
    let queue = client.connect(&worker, NodeId(0)).unwrap();
    let mut round = worker.round();
    round.to(&queue).read(0, 8);
    let said = worker.block_on(round.ring()).unwrap_err().to_string();
    assert!(said.contains("rdma:HOST:PORT"), "{said}");
}
