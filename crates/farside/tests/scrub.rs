//! A scrub finds what somebody has changed in the memory of a node, names it, and finds nothing else, also while others write.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside::{Blocking, Database, Scrub, Table, Wrong};
use farside_fabric::tcp::{Client, Node, NodeOptions, Options, Stop};
use farside_fabric::{ClientId, NodeId, Queue, Worker};

const NODES: usize = 3;
const MEMORY: u64 = 16 << 20;

/// A row's key, of two words; its value begins behind it.
const KEY: &[u8; 16] = b"the key of a row";

const VALUE: &[u8] = b"a value of some words, for the row";

/// Words before the key in an object, from its time on.
const HEAD_WORDS: u64 = 4;

/// Nodes in this process, and a way to their memory beside the database.
struct Cluster {
    addresses: Vec<SocketAddr>,
    stops: Vec<Stop>,
    worker: Worker,
    queues: Vec<Queue>,
}

impl Cluster {
    fn start() -> Self {
        let (mut addresses, mut stops) = (Vec::new(), Vec::new());
        for _ in 0..NODES {
            let listen = SocketAddr::from(([127, 0, 0, 1], 0));
            let options = NodeOptions { listen, memory_bytes: MEMORY, ..NodeOptions::default() };
            let (node, stop) = (Node::bind(options).unwrap(), Stop::new().unwrap());
            addresses.push(node.address().unwrap());
            let asked = stop.clone();
            std::thread::spawn(move || node.run(&asked, |_| {}).unwrap());
            stops.push(stop);
        }
        let worker = Worker::patient(1);
        let client = Client::new(ClientId(0xbad), addresses.clone(), Options::default());
        let queues = (0..NODES as u16).map(|node| client.connect(&worker, NodeId(node)).unwrap());
        let queues = queues.collect();
        Cluster { addresses, stops, worker, queues }
    }

    fn url(&self) -> String {
        let all: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        format!("tcp:{}?copies={NODES}&lease=200ms", all.join(","))
    }

    fn read(&self, node: usize, at: u64, bytes: usize) -> Vec<u64> {
        self.worker.block_on(async {
            let mut round = self.worker.round();
            let words = round.to(&self.queues[node]).read(at, bytes);
            round.ring().await.unwrap()[words].to_vec()
        })
    }

    fn write(&self, node: usize, at: u64, words: &[u64]) {
        self.worker.block_on(async {
            let mut round = self.worker.round();
            round.to(&self.queues[node]).write(at, words);
            round.ring().await.unwrap();
        });
    }

    /// Where some words are, which are there once.
    fn find(&self, node: usize, wanted: [u64; 2]) -> u64 {
        let mut found = Vec::new();
        for at in (0..MEMORY).step_by(1 << 20) {
            let words = self.read(node, at, 1 << 20);
            let places = words.windows(2).zip(0u64..).filter(|(pair, _)| **pair == wanted);
            found.extend(places.map(|(_, word)| at + word * 8));
        }
        assert_eq!(found.len(), 1, "{found:x?}");
        found[0]
    }

    /// Changes a bit.
    fn flip(&self, node: usize, at: u64, bit: u32) {
        let word = self.read(node, at, 8)[0];
        self.write(node, at, &[word ^ 1 << bit]);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stops.iter().for_each(Stop::stop);
    }
}

fn words(bytes: &[u8; 16]) -> [u64; 2] {
    [&bytes[..8], &bytes[8..]].map(|half| u64::from_le_bytes(half.try_into().unwrap()))
}

fn scrub(db: &Blocking) -> Scrub {
    db.connection().block_on(db.connection().scrub(|_| true)).unwrap()
}

/// What a scrub finds wrong, where it is one thing.
fn only_flaw(db: &Blocking) -> (u16, Wrong) {
    let scrub = scrub(db);
    assert_eq!((scrub.flaws.len(), scrub.flawed), (1, 1), "{:?}", scrub.flaws);
    (scrub.flaws[0].node, scrub.flaws[0].what)
}

fn with_rows(cluster: &Cluster) -> (Blocking, Table) {
    let db = Database::open(&cluster.url()).unwrap().blocking().unwrap();
    let table = db.create_table("rows").unwrap();
    for number in 0u64..200 {
        db.put(&table, &number.to_be_bytes(), &vec![1; number as usize * 4]).unwrap();
    }
    (db, table)
}

#[test]
fn a_bit_is_found_wherever_it_was_changed() {
    let cluster = Cluster::start();
    let (db, table) = with_rows(&cluster);
    db.put(&table, KEY, VALUE).unwrap();
    let sound = scrub(&db);
    assert!(sound.objects > 200 && sound.bytes > 3 * 200 * 48 && sound.flaws.is_empty());
    assert_eq!(sound.place, sound.whole);
    for node in 0..NODES {
        let body = cluster.find(node, words(KEY));
        // Time, place of the version before, size and kind, checksum, key and value.
        for word in 0..HEAD_WORDS + 2 + 4 {
            let at = body - HEAD_WORDS * 8 + word * 8;
            let bit = (word * 7 % 24) as u32;
            cluster.flip(node, at, bit);
            assert_eq!(only_flaw(&db), (node as u16, Wrong::Damaged), "word {word}");
            // Whoever reads it is not harmed.
            for _ in 0..5 {
                assert_eq!(db.get(&table, KEY).unwrap().as_deref(), Some(VALUE), "word {word}");
            }
            cluster.flip(node, at, bit);
        }
    }
    // The first word, which says that there is something; and a line of zeroes.
    for node in 0..NODES {
        let at = cluster.find(node, words(KEY)) - (HEAD_WORDS + 2) * 8;
        cluster.flip(node, at, 3);
        assert_eq!(only_flaw(&db), (node as u16, Wrong::Damaged), "the first word");
        cluster.flip(node, at, 3);
        let head = cluster.read(node, at + 16, HEAD_WORDS as usize * 8);
        cluster.write(node, at + 16, &[0; HEAD_WORDS as usize]);
        assert_eq!(only_flaw(&db), (node as u16, Wrong::Damaged), "zeroes");
        cluster.write(node, at + 16, &head);
    }
    assert!(scrub(&db).flaws.is_empty());
    let last = db.connection().block_on(db.connection().last_scrub()).unwrap();
    assert_eq!((last.passes, last.flawed), (2 + 3 * (10 + 2), 0));
}

#[test]
fn a_copy_that_was_left_behind_is_found() {
    let cluster = Cluster::start();
    let (db, table) = with_rows(&cluster);
    db.put(&table, KEY, b"before").unwrap();
    let bytes = (HEAD_WORDS as usize + 3) * 8;
    let places = [0, 1, 2].map(|node| cluster.find(node, words(KEY)) - HEAD_WORDS * 8);
    let before = cluster.read(0, places[0], bytes);
    db.put(&table, KEY, b"after ").unwrap();
    assert!(scrub(&db).flaws.is_empty());
    let after = cluster.read(0, places[0], bytes);
    assert_ne!(before, after);
    // Also the primary.
    for (node, at) in places.into_iter().enumerate() {
        cluster.write(node, at, &before);
        assert_eq!(only_flaw(&db), (node as u16, Wrong::Different));
        cluster.write(node, at, &after);
    }
    assert!(scrub(&db).flaws.is_empty());
}

#[test]
fn a_large_value_is_looked_at_too() {
    let cluster = Cluster::start();
    let (db, table) = with_rows(&cluster);
    let mut value = vec![7; 100_000];
    value[50_000..50_016].copy_from_slice(b"in a large value");
    db.put(&table, b"large", &value).unwrap();
    assert!(scrub(&db).flaws.is_empty());
    for node in 0..NODES {
        let at = cluster.find(node, words(b"in a large value"));
        cluster.flip(node, at + 8, 40);
        assert_eq!(only_flaw(&db), (node as u16, Wrong::BodyDamaged));
        cluster.flip(node, at + 8, 40);
    }
    assert!(scrub(&db).flaws.is_empty());
}

/// Rows that are written, deleted and made again all the time, some of them large.
fn churn(db: &Blocking, table: &Table, stop: &AtomicBool) {
    for number in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = (number % 50).to_be_bytes();
        let value = vec![number as u8; [10, 300, 20_000][number as usize % 3]];
        db.transact(|tx| match number % 7 {
            0 => tx.delete(table, &key).map(|_| ()),
            _ => tx.put(table, &key, &value),
        })
        .unwrap();
    }
}

#[test]
fn what_others_write_meanwhile_is_no_flaw() {
    let cluster = Cluster::start();
    let (db, table) = with_rows(&cluster);
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    let others = Database::open(&cluster.url()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| churn(&others.blocking().unwrap(), &table, &stop));
        }
        while start.elapsed() < Duration::from_secs(2) {
            let scrub = scrub(&db);
            assert!(scrub.flaws.is_empty(), "{:?}", scrub.flaws);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A process that stays does it by itself.
#[test]
fn it_is_done_now_and_then() {
    let cluster = Cluster::start();
    let (db, _) = with_rows(&cluster);
    let passes = || db.connection().block_on(db.connection().last_scrub()).unwrap().passes;
    assert_eq!(passes(), 0, "not before an hour is over");
    let often = Database::open(&format!("{}&scrub=50ms", cluster.url())).unwrap();
    let start = Instant::now();
    while passes() < 2 {
        assert!(start.elapsed() < Duration::from_secs(30), "{} passes", passes());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(often);
}

/// One that is in the middle of it leaves nothing behind when it is closed.
#[test]
fn it_ends_with_its_database() {
    let path = std::env::temp_dir().join(format!("farside-scrub-end-{}", std::process::id()));
    let url = format!("file:{}?memory=64MiB&lease=50ms&durability=none", path.display());
    for time in 0..5 {
        let database = Database::open(&format!("{url}&scrub=10ms")).unwrap();
        let db = database.blocking().unwrap();
        let name = format!("rows {time}");
        let table = db.create_table(&name).unwrap();
        for number in 0u64..300 {
            db.put(&table, &number.to_be_bytes(), &[1; 5000]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(30));
        drop(db);
        drop(database);
        // Whoever finds that it is not there any more, though its process lives, would end that.
        let next = Database::open(&url).unwrap().blocking().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(next.open_table(&name).is_ok());
    }
    std::fs::remove_file(path).unwrap();
}
