//! What only `tcp` has: strangers, floods, secrets and certificates.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

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

/// A peer that sends a byte now and then is given up in time, too.
#[test]
fn a_dripping_peer_does_not_stretch_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let drip = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(&[1]).is_ok() {
            std::thread::sleep(Duration::from_millis(40));
        }
    });
    let start = Instant::now();
    let (_worker, queue) = connect(address, quick(None));
    assert!(matches!(queue, Err(FabricError::TimedOut { .. } | FabricError::AccessDenied { .. })));
    assert!(start.elapsed() < Duration::from_millis(600), "{:?}", start.elapsed());
    drip.join().unwrap();
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

/// The version of the protocol that nodes speak (`docs/wire.md`).
const VERSION: u64 = 2;

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
        stream.write_all(&hello(VERSION)).unwrap();
        stream.write_all(&frame(3, &[0; 32])).unwrap();
        stream.write_all(&frame(16, &[good.clone(), bad].concat())).unwrap();
        let why = node.refusal();
        let is_about_it = why.contains("a verb") || why.contains("ends in the middle");
        assert!(is_about_it, "{why}");
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
    let span = Duration::from_secs(seconds.unwrap_or(3));
    // Three threads share the cores, with whatever else this machine does: one fair look of three is enough.
    let mut flooded = 0.0f64;
    for _ in 0..3 {
        if flooded <= calm / 2.0 {
            flooded = flooded.max(rate(span));
        }
    }
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
