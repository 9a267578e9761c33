//! Memory nodes with journals: what was committed is there after all of them were killed at once, and nothing by half.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use farside::Database;

const WRITERS: usize = 3;

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("farside-{name}-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Node {
    child: Child,
    address: String,
}

impl Node {
    fn start(data: &Path, listen: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_farside"))
            .args(["node", "--memory", "64MiB", "--listen", listen, "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
        let address = address.unwrap_or_else(|| {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("a node does not start: {said}")
        });
        Node { child, address }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn url(nodes: &[Node]) -> String {
    let all: Vec<_> = nodes.iter().map(|node| node.address.as_str()).collect();
    format!("tcp:{}?copies={}&durability=flush&lease=200ms", all.join(","), nodes.len())
}

/// How far each writer was told that its rows are.
type Known = [u64; WRITERS];

/// In another process, which dies with the nodes: each writer counts up two rows together, and says how far it is.
#[test]
fn client() {
    let Ok(url) = std::env::var("FARSIDE_DURABLE_URL") else { return };
    let database = Database::open(&url).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let database = &database;
            scope.spawn(move || {
                let db = database.blocking().unwrap();
                let table = db.open_table("counters").unwrap();
                let rows = [writer, writer + 100].map(|row| (row as u64).to_be_bytes());
                let known = db.get(&table, &rows[0]).unwrap();
                for number in known.map_or(0, |row| number_of(&row)) + 1.. {
                    db.transact(|tx| {
                        rows.iter().try_for_each(|row| tx.put(&table, row, &number.to_le_bytes()))
                    })
                    .unwrap();
                    println!("told {writer} {number}");
                }
            });
        }
    });
}

fn number_of(row: &[u8]) -> u64 {
    u64::from_le_bytes(row.try_into().unwrap())
}

/// A client works for a while, and all die.
fn work(url: &str, nodes: &mut [Node], known: &mut Known) {
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["client", "--exact", "--nocapture", "--test-threads=1"])
        .env("FARSIDE_DURABLE_URL", url)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = BufReader::new(client.stdout.take().unwrap());
    let mut lines = said.lines();
    let mut hear = |line: String| {
        if let Some((_, told)) = line.split_once("told ")
            && let Some((writer, number)) = told.split_once(' ')
            && let (Ok(writer), Ok(number)) = (writer.parse::<usize>(), number.parse())
        {
            known[writer] = number;
        }
    };
    lines.by_ref().take(60).for_each(|line| hear(line.unwrap()));
    nodes.iter_mut().for_each(|node| node.child.kill().unwrap());
    client.kill().unwrap();
    client.wait().unwrap();
    lines.map_while(Result::ok).for_each(hear);
}

/// What the rows say: together, and not less than was known.
fn check(url: &str, known: &mut Known) {
    let db = Database::open(url).unwrap().blocking().unwrap();
    let table = db.open_table("counters").unwrap();
    for (writer, known) in known.iter_mut().enumerate() {
        let rows = [writer, writer + 100].map(|row| (row as u64).to_be_bytes());
        let found = db.get_many(&table, &[&rows[0], &rows[1]]).unwrap();
        assert_eq!(found[0], found[1], "half of it is there");
        let there = found[0].as_deref().map_or(0, number_of);
        assert!(there >= *known, "{there} is there, and {known} was committed");
        *known = there;
    }
}

fn survive(name: &str, count: usize, times: usize) {
    let scratch = Scratch::new(name);
    let paths: Vec<PathBuf> = (0..count).map(|number| scratch.0.join(number.to_string())).collect();
    let mut nodes: Vec<Node> = paths.iter().map(|path| Node::start(path, "127.0.0.1:0")).collect();
    let url = url(&nodes);
    let mut known = Known::default();
    for _ in 0..times {
        work(&url, &mut nodes, &mut known);
        let addresses: Vec<String> = nodes.drain(..).map(|node| node.address.clone()).collect();
        let again = paths.iter().zip(&addresses).map(|(path, address)| Node::start(path, address));
        nodes = again.collect();
        check(&url, &mut known);
    }
    let all: u64 = known.iter().sum();
    println!("{count} nodes, killed {times} times: {all} commits are there");
    assert!(all > 30);
}

#[test]
fn what_was_committed_survives_the_death_of_the_only_node() {
    survive("durable-one", 1, 8);
}

#[test]
fn what_was_committed_survives_the_death_of_all_nodes_at_once() {
    survive("durable-three", 3, 8);
}

#[test]
fn whoever_wants_durability_is_told_where_there_is_none() {
    let path = PathBuf::from(format!("/dev/shm/farside-durable-{}", std::process::id()));
    let file = format!("file:{}?memory=32MiB&durability=flush", path.display());
    for url in ["mem:?durability=flush", &file] {
        let said = Database::open(url).unwrap_err().to_string();
        assert!(said.contains("started with --data"), "{said}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_damaged_journal_is_refused_by_its_name() {
    let scratch = Scratch::new("durable-damaged");
    let node = Node::start(&scratch.0, "127.0.0.1:0");
    let db = Database::open(&url(std::slice::from_ref(&node))).unwrap().blocking().unwrap();
    db.create_table("some").unwrap();
    drop((db, node));
    let name = scratch.0.join("journal-0000000000000001");
    let mut bytes = std::fs::read(&name).unwrap();
    bytes[700] ^= 4;
    std::fs::write(&name, bytes).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["node", "--memory", "64MiB", "--listen", "127.0.0.1:0", "--data"])
        .arg(&scratch.0)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("journal-0000000000000001, byte 512: a sector is damaged"), "{said}");
}
