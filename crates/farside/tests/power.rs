//! Memory nodes lose their power under load, on disks that forget what was not synced: what was committed is there again, and
//! nothing by half. `FARSIDE_POWER_LOSSES=200` has them lose it more often.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside::{Blocking, Database, Table};
use farside_fabric::tcp::{Node, NodeOptions, Stop};
use farside_journal::lossy::{Lossy, Random};

const WRITERS: usize = 3;

/// A node in this process, and its disk.
struct Running {
    disk: Lossy,
    address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(disk: Lossy, listen: SocketAddr) -> Self {
        let options = NodeOptions {
            listen,
            memory_bytes: 64 << 20,
            data: Some(Arc::new(disk.clone())),
            ..NodeOptions::default()
        };
        let node = Node::bind(options).unwrap();
        let (address, stop) = (node.address().unwrap(), Stop::new().unwrap());
        let asked = stop.clone();
        let thread = std::thread::spawn(move || node.run(&asked, |_| {}).unwrap());
        Running { disk, address, stop, thread }
    }

    /// As it is when there is power again, which must be off.
    fn again(self, random: &mut Random, off: &Arc<AtomicBool>) -> Self {
        let disk = self.disk.after_power_loss(random, off);
        self.stop.stop();
        self.thread.join().unwrap();
        Running::start(disk, self.address)
    }
}

/// Nodes, each with a switch.
struct Cluster {
    nodes: Vec<(Running, Arc<AtomicBool>)>,
    random: Random,
}

impl Cluster {
    fn new(count: usize, seed: u64) -> Self {
        let start = |_| {
            let off = Arc::default();
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            (Running::start(Lossy::with_switch(&off), any), off)
        };
        Cluster { nodes: (0..count).map(start).collect(), random: Random(seed) }
    }

    fn url(&self) -> String {
        let all: Vec<_> = self.nodes.iter().map(|node| node.0.address.to_string()).collect();
        let nodes = all.len();
        format!("tcp:{}?copies={nodes}&durability=flush&lease=200ms", all.join(","))
    }

    /// Some lose their power, at the same time.
    fn lose_power(&mut self, which: impl Fn(usize) -> bool) {
        let chosen = self.nodes.iter().enumerate().filter(|(number, _)| which(*number));
        chosen.for_each(|(_, (_, off))| off.store(true, Ordering::SeqCst));
        for (number, (node, off)) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            let again = if which(number) {
                let off = Arc::default();
                (node.again(&mut self.random, &off), off)
            } else {
                (node, off)
            };
            self.nodes.push(again);
        }
    }
}

/// What a writer does: two rows of it count up together, and each step leaves a row behind.
fn keys(writer: usize, number: u64) -> [Vec<u8>; 3] {
    let row = |row: usize| (row as u64).to_be_bytes().to_vec();
    let step = [writer as u64, number].map(u64::to_be_bytes).concat();
    [row(writer), row(writer + 100), step]
}

fn number_of(row: &[u8]) -> u64 {
    u64::from_le_bytes(row[..8].try_into().unwrap())
}

/// In another process, which ends with the nodes, or when it finds that one has begun again.
#[test]
fn client() {
    let Ok(url) = std::env::var("FARSIDE_POWER_URL") else { return };
    let database = Database::open(&url).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let database = &database;
            scope.spawn(move || write(&database.blocking().unwrap(), writer));
        }
    });
}

/// In a machine that has its power again: what is there of a database in a file, and whether it is on persistent memory.
#[test]
fn checker() {
    let Ok(url) = std::env::var("FARSIDE_POWER_CHECK") else { return };
    let db = Database::open(&url).unwrap().blocking().unwrap();
    let known = db.open_table("counters");
    let table = known.unwrap_or_else(|_| db.create_table("counters").unwrap());
    for writer in 0..WRITERS {
        println!("seen {writer} {}", check_writer(&db, &table, writer, 0, true));
    }
    let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let flags = mappings.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
    let synchronous = flags.flat_map(str::split_whitespace).any(|flag| flag == "sf");
    println!("checked, {}", if synchronous { "by lines" } else { "by the system" });
}

fn write(db: &Blocking, writer: usize) {
    let table = db.open_table("counters").unwrap();
    let known = db.get(&table, &keys(writer, 0)[0]).unwrap();
    for number in known.map_or(0, |row| number_of(&row)) + 1.. {
        // Rows of several sizes.
        let mut value = number.to_le_bytes().to_vec();
        value.resize(8 + (number % 40) as usize * 8, number as u8);
        let done = db.transact(|tx| {
            keys(writer, number).iter().try_for_each(|key| tx.put(&table, key, &value))
        });
        if let Err(error) = done {
            println!("ended {error}");
            std::process::exit(1);
        }
        println!("told {writer} {number}");
    }
}

/// How far each writer was told that its rows are.
type Known = [u64; WRITERS];

/// The process that writes.
struct Client {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Client {
    fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["client", "--exact", "--nocapture", "--test-threads=1"])
            .env("FARSIDE_POWER_URL", url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Client { child, said }
    }

    /// Listens for so many lines.
    fn hear(&mut self, lines: usize, known: &mut Known) {
        for _ in 0..lines {
            let mut line = String::new();
            self.said.read_line(&mut line).unwrap();
            hear(&line, known);
        }
    }

    /// What it says until it ends.
    fn end(mut self, known: &mut Known) -> String {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap();
        rest.lines().for_each(|line| hear(line, known));
        rest
    }
}

fn hear(line: &str, known: &mut Known) {
    let Some((_, told)) = line.split_once("told ") else { return };
    if let Some((writer, number)) = told.trim_end().split_once(' ')
        && let (Ok(writer), Ok(number)) = (writer.parse::<usize>(), number.parse())
    {
        known[writer] = number;
    }
}

/// What the rows say: together, and not less than was known.
fn check(url: &str, known: &mut Known, last: bool) {
    let db = Database::open(url).unwrap().blocking().unwrap();
    let table = db.open_table("counters").unwrap();
    for (writer, known) in known.iter_mut().enumerate() {
        *known = check_writer(&db, &table, writer, *known, last);
    }
}

fn check_writer(db: &Blocking, table: &Table, writer: usize, known: u64, last: bool) -> u64 {
    let [one, two, _] = keys(writer, 0);
    let found = db.get_many(table, &[&one, &two]).unwrap();
    assert_eq!(found[0], found[1], "half of it is there");
    let there = found[0].as_deref().map_or(0, number_of);
    assert!(there >= known, "{there} is there, and {known} was committed");
    let step = |number| db.get(table, &keys(writer, number)[2]).unwrap();
    assert_eq!(step(there + 1), None, "more than half of it is there");
    // All of them when it is over.
    for number in if last { 1 } else { there.max(20) - 19 }..=there {
        let row = step(number);
        assert_eq!(row.as_deref().map(number_of), Some(number), "a step is not there");
        assert_eq!(row.unwrap().len() as u64, 8 + number % 40 * 8);
    }
    there
}

fn losses() -> usize {
    let said = std::env::var("FARSIDE_POWER_LOSSES").ok();
    said.map_or(4, |text| text.parse().expect("FARSIDE_POWER_LOSSES: a number"))
}

/// They lose their power again and again; who of them, by the number of the time.
fn survive(name: &str, nodes: usize, which: impl Fn(usize, usize) -> bool) {
    let mut cluster = Cluster::new(nodes, 7);
    let (url, mut known, times) = (cluster.url(), Known::default(), losses());
    Database::open(&url).unwrap().blocking().unwrap().create_table("counters").unwrap();
    for time in 0..times {
        let mut client = Client::start(&url);
        client.hear(30 + cluster.random.below(90) as usize, &mut known);
        let all = (0..nodes).all(|node| which(time, node));
        cluster.lose_power(|node| which(time, node));
        let begun = Instant::now();
        if all {
            client.child.kill().unwrap();
            client.end(&mut known);
        } else {
            let said = client.end(&mut known);
            let why = ["put out", "was fenced"].iter().any(|why| said.contains(why));
            assert!(why, "it does not say why it ends: {said}");
            assert!(begun.elapsed() < Duration::from_secs(60), "it takes too long to end");
        }
        check(&url, &mut known, time + 1 == times);
    }
    println!("{name}, {times} times: {} commits are there", known.iter().sum::<u64>());
    assert!(known.iter().sum::<u64>() > 30 * times as u64 / 2);
}

#[test]
fn the_only_node_loses_its_power() {
    survive("the only node", 1, |_, _| true);
}

#[test]
fn all_nodes_lose_their_power_at_once() {
    survive("all of three", 3, |_, _| true);
}

#[test]
fn one_node_of_three_loses_its_power() {
    survive("one of three", 3, |time, node| time % 3 == node);
}
