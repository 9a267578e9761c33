//! What only `tcp` has: strangers, floods, stalls, cut streams, networks that swallow everything.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use farside_conformance::beds::{self, TcpBed};
use farside_conformance::{cases, run};
use farside_fabric::tcp::{
    Client, ClientTls, Node, NodeEvent, NodeOptions, NodeTls, Options, Secret, Stop,
};
use farside_fabric::{ClientId, FabricError, NodeId, Queue, Result, Worker};

/// A node in a thread of this process, with what it tells.
struct TestNode {
    address: SocketAddr,
    stop: Stop,
    events: mpsc::Receiver<NodeEvent>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl TestNode {
    fn start(options: NodeOptions) -> Self {
        let node = Node::bind(options).unwrap();
        let (address, stop) = (node.address().unwrap(), Stop::new().unwrap());
        let (tell, events) = mpsc::channel();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            node.run(&stopped, |event| _ = tell.send(event)).unwrap();
        });
        TestNode { address, stop, events, thread: Some(thread) }
    }

    fn refusal(&self) -> String {
        loop {
            match self.events.recv_timeout(Duration::from_secs(10)).expect("a refusal") {
                NodeEvent::Refused { why, .. } => return why,
                _ => continue,
            }
        }
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn quick(secret: Option<Secret>) -> Options {
    let timeout = Duration::from_millis(300);
    Options { secret, timeout, connect_timeout: timeout, ..Options::default() }
}

fn connect(address: SocketAddr, options: Options) -> (Worker, Result<Queue>) {
    let worker = Worker::new(1);
    let client = Client::new(ClientId(7), vec![address], options);
    let queue = client.connect(&worker, NodeId(0));
    (worker, queue)
}

async fn add(worker: &Worker, queue: &Queue) -> Result<u64> {
    let mut round = worker.round();
    let old = round.to(queue).faa(0, 1);
    Ok(round.ring().await?[old])
}

fn secret(text: &str) -> Option<Secret> {
    Some(Secret::new(text.as_bytes()).unwrap())
}

#[test]
fn who_does_not_know_the_secret_stays_outside() {
    let options =
        NodeOptions { secret: secret("a secret of 24 characters"), ..NodeOptions::default() };
    let node = TestNode::start(options);
    let (worker, queue) = connect(node.address, quick(secret("a secret of 24 characters")));
    assert_eq!(worker.block_on(add(&worker, &queue.unwrap())), Ok(0));

    let (_, wrong) = connect(node.address, quick(secret("another one of 24 charact")));
    let wrong = wrong.unwrap_err().to_string();
    assert!(wrong.contains("does not know the secret"), "{wrong}");
    assert!(node.refusal().contains("does not know the secret"));
    let (_, none) = connect(node.address, quick(None));
    let none = none.unwrap_err().to_string();
    assert!(none.contains("asks for a secret"), "{none}");
}

#[test]
fn a_client_with_a_secret_does_not_trust_a_node_without() {
    let node = TestNode::start(NodeOptions::default());
    let (_, queue) = connect(node.address, quick(secret("a secret of 24 characters")));
    let error = queue.unwrap_err().to_string();
    assert!(error.contains("does not know our secret"), "{error}");
}

#[test]
fn what_is_no_node_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let (_, queue) = connect(address, quick(None));
    let error = queue.unwrap_err().to_string();
    assert!(error.contains("is this a Farside node?"), "{error}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_, queue) = connect(silent.local_addr().unwrap(), quick(None));
    assert!(matches!(queue, Err(FabricError::TimedOut { .. })));
}

/// A frame as the handshake has it: length, kind, zeroes, body.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend([kind, 0, 0, 0]);
    bytes.extend(body);
    bytes
}

fn hello(version: u64) -> Vec<u8> {
    let mut body = b"FARSIDE-".to_vec();
    body.extend(version.to_le_bytes());
    body.extend([7; 8 + 8 + 32]);
    frame(1, &body)
}

#[test]
fn strange_frames_close_their_connection_only() {
    let node = TestNode::start(NodeOptions::default());
    let (worker, queue) = connect(node.address, quick(None));
    let queue = queue.unwrap();
    let strange: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "kind"),
        (&frame(16, &[0; 16]), "does not belong here"),
        (&frame(1, b"FARSIDE-"), "ends in the middle"),
        (&[255, 255, 255, 255, 1, 0, 0, 0], "are allowed here"),
        (&[0, 0, 0, 0, 1, 9, 9, 9], "stray bits"),
        (&hello(99), "speaks version 99"),
    ];
    for (bytes, why) in strange {
        let mut stranger = TcpStream::connect(node.address).unwrap();
        stranger.write_all(bytes).unwrap();
        let said = node.refusal();
        assert!(said.contains(why), "{said}");
        stranger.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut goodbye = Vec::new();
        let _ = stranger.read_to_end(&mut goodbye);
        assert!(String::from_utf8_lossy(&goodbye).contains(why), "{goodbye:?}");
        assert!(worker.block_on(add(&worker, &queue)).is_ok());
    }
}

/// Verbs that our own client never sends: past the end, misaligned, too large, with wrong operands.
#[test]
fn bad_verbs_have_no_effect() {
    let options = NodeOptions { memory_bytes: 4096, ..NodeOptions::default() };
    let node = TestNode::start(options);
    let verb = |op: u64, words: u64, at: u64, operands: &[u64]| {
        let mut body = (op | words << 32).to_le_bytes().to_vec();
        body.extend(at.to_le_bytes());
        operands.iter().for_each(|word| body.extend(word.to_le_bytes()));
        body
    };
    let good = verb(1, 1, 0, &[99]);
    for bad in [
        verb(1, 1, 4096, &[1]),
        verb(1, 1, 4, &[1]),
        verb(0, 1 << 30, 0, &[]),
        verb(0, 0, 0, &[]),
        verb(2, 1, 0, &[1]),
        verb(9, 1, 0, &[1]),
        verb(1, 5, 0, &[1]),
        verb(0, 1, u64::MAX - 7, &[]),
    ] {
        let mut stream = TcpStream::connect(node.address).unwrap();
        stream.write_all(&hello(1)).unwrap();
        stream.write_all(&frame(3, &[0; 32])).unwrap();
        stream.write_all(&frame(16, &[good.clone(), bad].concat())).unwrap();
        node.refusal();
    }
    let (worker, queue) = connect(node.address, quick(None));
    assert_eq!(
        worker.block_on(add(&worker, &queue.unwrap())),
        Ok(0),
        "a bad doorbell had an effect"
    );
}

/// A well-behaved client beside random bytes, half-open connections and oversized requests.
#[test]
fn a_flood_does_not_drown_the_others() {
    let options = NodeOptions {
        handshake_timeout: Duration::from_millis(500),
        max_connections: 4000,
        ..NodeOptions::default()
    };
    let node = TestNode::start(options);
    let (worker, queue) = connect(node.address, Options::default());
    let queue = queue.unwrap();
    let rate = |span: Duration| {
        worker.block_on(async {
            let (start, mut count) = (Instant::now(), 0u32);
            while start.elapsed() < span {
                add(&worker, &queue).await.unwrap();
                count += 1;
            }
            f64::from(count) / span.as_secs_f64()
        })
    };
    let calm = rate(Duration::from_secs(1));
    let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let flood = std::thread::spawn({
        let (over, sent, address) = (Arc::clone(&over), Arc::clone(&sent), node.address);
        move || {
            let mut half_open = Vec::new();
            let mut noise: u64 = 88172645463325252;
            while !over.load(Ordering::Relaxed) {
                let Ok(mut stream) = TcpStream::connect(address) else { continue };
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                let kind = noise % 3;
                let bytes: Vec<u8> = match kind {
                    0 => (0..200).map(|i| (noise >> (i % 57)) as u8).collect(),
                    1 => vec![255, 255, 255, 127, 16, 0, 0, 0],
                    _ => Vec::new(),
                };
                let _ = stream.write_all(&bytes);
                if kind == 2 && half_open.len() < 1000 {
                    half_open.push(stream);
                }
                sent.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    });
    // FARSIDE_FLOOD_SECONDS=30 for the long run.
    let seconds = std::env::var("FARSIDE_FLOOD_SECONDS").ok().and_then(|s| s.parse().ok());
    let flooded = rate(Duration::from_secs(seconds.unwrap_or(3)));
    over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let sent = sent.load(Ordering::Relaxed);
    println!("{calm:.0}/s alone, {flooded:.0}/s beside {sent} strangers");
    assert!(sent > 500, "only {sent} strangers came");
    assert!(flooded > calm / 2.0, "{flooded:.0}/s beside the flood, {calm:.0}/s before");
}

#[test]
fn a_node_without_work_sleeps() {
    let node = TestNode::start(NodeOptions::default());
    let (worker, queue) = connect(node.address, quick(None));
    let queue = queue.unwrap();
    worker.block_on(add(&worker, &queue)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    // Other tests of this process may work meanwhile: the calmest of a few looks counts.
    let looks = (0..5).map(|_| {
        let before = used();
        std::thread::sleep(Duration::from_millis(400));
        used() - before
    });
    let calmest = looks.min().unwrap();
    println!("{calmest:?} in 400 ms");
    let alone = std::env::args().any(|arg| arg.contains("a_node_without_work_sleeps"));
    assert!(
        !alone || calmest < Duration::from_millis(4),
        "{calmest:?} of processor time in 400 ms"
    );
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

/// A node process, killed when dropped.
struct NodeProcess(std::process::Child, SocketAddr);

impl NodeProcess {
    fn start(prefix: &[&str], listen: &str) -> Self {
        use std::io::BufRead;
        let program = program().to_str().unwrap();
        let command: Vec<_> = prefix.iter().copied().chain([program, beds::NODE, listen]).collect();
        let mut child = std::process::Command::new(command[0])
            .args(&command[1..])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        NodeProcess(child, line.trim().parse().unwrap())
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.0.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_node_is_noticed_at_once() {
    let node = NodeProcess::start(&[], "127.0.0.1:0");
    let (worker, queue) = connect(node.1, quick(None));
    let queue = queue.unwrap();
    node.signal(rustix::process::Signal::KILL);
    let error = typed_within(&worker, &queue, Duration::from_millis(600));
    assert!(matches!(error, FabricError::NodeGone(_)), "{error}");
    let again = worker.block_on(queue.reconnect());
    assert!(matches!(again, Err(FabricError::NodeGone(_))), "{again:?}");
}

#[test]
fn a_stopped_node_is_an_error_within_the_timeout() {
    let node = NodeProcess::start(&[], "127.0.0.1:0");
    let (worker, queue) = connect(node.1, quick(None));
    let queue = queue.unwrap();
    node.signal(rustix::process::Signal::STOP);
    let error = typed_within(&worker, &queue, Duration::from_millis(600));
    assert!(matches!(error, FabricError::TimedOut { .. }), "{error}");
    assert!(worker.block_on(queue.reconnect()).is_err(), "it does not answer");
    node.signal(rustix::process::Signal::CONT);
    let start = Instant::now();
    while worker.block_on(queue.reconnect()).is_err() {
        assert!(start.elapsed() < Duration::from_secs(5), "it goes on, and cannot be reached");
    }
    // What was in flight when it stopped has taken effect once, or never will.
    let before = worker.block_on(add(&worker, &queue)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(worker.block_on(add(&worker, &queue)), Ok(before + 1));
}

/// Two hosts: this one, and a network namespace at the other end of a veth pair. Both go when this is
/// dropped.
struct OtherHost {
    name: String,
    here: String,
    there: std::net::IpAddr,
}

impl OtherHost {
    /// `None`, with a printed reason, where such a thing cannot be made.
    fn new(number: u8) -> Option<Self> {
        let id = std::process::id() % 10_000 * 10 + u32::from(number);
        let (name, here) = (format!("farside-{id}"), format!("fs{id}"));
        let (third, fourth) = ((id / 60 % 250) as u8, (id % 60 * 4) as u8);
        let mine = std::net::Ipv4Addr::new(10, 219, third, fourth + 1);
        let there = std::net::Ipv4Addr::new(10, 219, third, fourth + 2);
        let host = OtherHost { name, here, there: there.into() };
        let OtherHost { name, here, .. } = &host;
        let peer = format!("{here}p");
        let made = ip(&["netns", "add", name])
            && ip(&["link", "add", here, "type", "veth", "peer", "name", &peer, "netns", name])
            && ip(&["addr", "add", &format!("{mine}/30"), "dev", here])
            && ip(&["link", "set", here, "up"])
            && ip(&["-n", name, "addr", "add", &format!("{there}/30"), "dev", &peer])
            && ip(&["-n", name, "link", "set", &peer, "up"])
            && ip(&["-n", name, "link", "set", "lo", "up"]);
        if !made {
            println!("skipped: network namespaces need root and the package iproute2");
        }
        made.then_some(host)
    }

    fn prefix(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(String::from).to_vec()
    }
}

impl Drop for OtherHost {
    fn drop(&mut self) {
        ip(&["link", "del", &self.here]);
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(args: &[&str]) -> bool {
    let run =
        std::process::Command::new("ip").args(args).stderr(std::process::Stdio::null()).status();
    run.is_ok_and(|status| status.success())
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
    let prefix = host.prefix();
    let prefix: Vec<_> = prefix.iter().map(String::as_str).collect();
    let node = NodeProcess::start(&prefix, &format!("{}:0", host.there));
    let (worker, queue) = connect(node.1, quick(None));
    let queue = queue.unwrap();
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

#[test]
fn the_suite_holds_through_a_proxy_that_delays_and_stalls() {
    for (seed, case) in (1..).zip(cases::CASES) {
        let mut proxies = Vec::new();
        let bed = TcpBed::through(program(), |address| {
            let proxy = beds::Proxy::start(program(), address, seed, 0)?;
            let between = proxy.address;
            proxies.push(proxy);
            Ok(between)
        });
        if let Err(error) = run(case, &bed.unwrap()) {
            panic!("{} through a proxy: {error:#}", case.name);
        }
    }
}

/// Streams are cut at random. A client that swaps from one number to the next, reconnects after each
/// error and tries again counts every number once.
#[test]
fn nothing_is_lost_or_doubled_when_streams_are_cut() {
    let node = NodeProcess::start(&[], "127.0.0.1:0");
    let proxy = beds::Proxy::start(program(), node.1, 5, 20_000).unwrap();
    let worker = Worker::new(1);
    let client = Client::new(ClientId(9), vec![proxy.address], quick(None));
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

/// A certificate for `localhost` that signs itself, and its key, in files that go with this.
struct Certificate {
    certificate: std::path::PathBuf,
    key: std::path::PathBuf,
}

impl Certificate {
    fn new(number: u32) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let file = |kind: &str| {
            std::env::temp_dir().join(format!("farside-{}-{number}.{kind}", std::process::id()))
        };
        let files = Certificate { certificate: file("crt"), key: file("key") };
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        files
    }

    fn believed(&self, name: &str) -> Options {
        let tls = Some(ClientTls::from_file(&self.certificate, name).unwrap());
        Options { tls, ..quick(None) }
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.certificate);
        let _ = std::fs::remove_file(&self.key);
    }
}

#[test]
fn tls_lets_in_who_believes_the_certificate() {
    let (ours, other) = (Certificate::new(1), Certificate::new(2));
    let tls = Some(NodeTls::from_files(&ours.certificate, &ours.key).unwrap());
    let node = TestNode::start(NodeOptions { tls, ..NodeOptions::default() });
    let (worker, queue) = connect(node.address, ours.believed("localhost"));
    let queue = queue.unwrap();
    worker.block_on(async {
        for i in 0..200 {
            assert_eq!(add(&worker, &queue).await, Ok(i));
        }
        // Much more than one record of TLS, both ways.
        let words: Vec<u64> = (0..500_000).collect();
        let mut round = worker.round();
        round.to(&queue).write(64, &words);
        let back = round.to(&queue).read(64, words.len() * 8);
        assert!(round.ring().await.unwrap()[back] == words[..], "what came back differs");
    });
    let denied = |options: Options| connect(node.address, options).1.unwrap_err().to_string();
    assert!(denied(other.believed("localhost")).contains("TLS"), "a certificate of somebody else");
    assert!(denied(ours.believed("example.com")).contains("TLS"), "another name");
    let plain = connect(node.address, quick(None)).1;
    assert!(plain.is_err(), "a client without TLS");
    assert_eq!(worker.block_on(add(&worker, &queue)), Ok(200), "the first one is not disturbed");
    assert!(NodeTls::from_files(&ours.key, &ours.key).is_err());
    assert!(NodeTls::from_files(&ours.certificate, &other.key).is_err(), "a key that does not fit");
}
