//! Everything that happens to a pool in its life, at random: histories stay clean, and space comes back.

use std::process::Command;
use std::time::{Duration, Instant};

use farside::{Connection, Error, Table};
use farside_fabric::runtime::Random;
use farside_workloads::check::{Level, check};
use rustix::process::Signal;
use serde_json::json;

use crate::client::{self, Client, History, PUT_OUT};
use crate::cluster::{Cluster, LIMIT, lease};
use crate::kills::connect;
use crate::node_process::signal;

#[derive(Clone, Copy, Debug)]
enum Event {
    KillClient,
    PauseClient,
    KillNode,
    PauseNode,
    Drain,
    Join,
}

const ALL: [Event; 6] = [
    Event::KillClient,
    Event::PauseClient,
    Event::KillNode,
    Event::PauseNode,
    Event::Drain,
    Event::Join,
];

/// Space that the last client, this process, may hold back in the end: its rings of records in each region, and slabs that it
/// keeps for what it needs next.
const KEPT: u64 = 6 << 20;

struct Soak {
    cluster: Cluster,
    url: String,
    clients: Vec<Client>,
    started: u64,
    history: History,
    random: Random,
    db: Connection,
    table: Table,
    /// How often this process, or a client that was not stopped, was put out: on a busy machine some get no time.
    put_out: usize,
}

impl Soak {
    fn start(name: &str, nodes: usize, clients: usize) -> Option<Self> {
        let cluster = Cluster::start(name, nodes)?;
        let url = format!("{}?copies=3", cluster.url);
        let db = connect(&url);
        let table = db.block_on(db.create_table("lists")).unwrap();
        let mut soak = Soak {
            cluster,
            url,
            clients: Vec::new(),
            started: 0,
            history: History::default(),
            random: Random::new(u64::from(std::process::id())),
            db,
            table,
            put_out: 0,
        };
        (0..clients).for_each(|_| soak.add_client());
        Some(soak)
    }

    fn add_client(&mut self) {
        self.started += 1;
        let client = Client::start(self.started, &self.url);
        client.wait_for_work(&mut self.history);
        self.clients.push(client);
    }

    fn any_client(&mut self) -> Client {
        let number = self.random.below(self.clients.len() as u64) as usize;
        self.clients.swap_remove(number)
    }

    /// One thing happens, and is over when everything is as it should be.
    fn strike(&mut self, event: Event) {
        match event {
            Event::KillClient => {
                let mut client = self.any_client();
                client.child.kill().unwrap();
                client.wait(&mut self.history);
                self.add_client();
            }
            Event::PauseClient => {
                let mut client = self.any_client();
                signal(&client.child, Signal::STOP);
                std::thread::sleep(4 * lease());
                signal(&client.child, Signal::CONT);
                // The others have gone on without it: it is told so, and nothing else.
                let status = client.wait(&mut self.history);
                assert_eq!(status.code(), Some(PUT_OUT), "a client that was stopped: {status}");
                self.add_client();
            }
            Event::KillNode => {
                let busiest = self.cluster.busiest();
                drop(self.cluster.nodes.swap_remove(busiest));
                self.cluster.add_node();
            }
            Event::PauseNode => {
                let node = self.random.below(self.cluster.nodes.len() as u64) as usize;
                let child = &self.cluster.nodes[node].child;
                signal(child, Signal::STOP);
                std::thread::sleep(4 * lease());
                // It begins another life.
                signal(child, Signal::CONT);
            }
            Event::Drain => self.drain(),
            Event::Join => self.cluster.add_node(),
        }
        self.cluster.wait_until_whole(&format!("{event:?}"));
        self.free();
    }

    /// How many bytes of the pool are free. There are moments in which it cannot be used; they pass.
    fn free(&mut self) -> u64 {
        self.persist(|db| db.block_on(db.space())).0
    }

    /// Does something that may be done twice, until it succeeds.
    fn persist<T>(&mut self, act: impl Fn(&Connection) -> Result<T, Error>) -> T {
        let start = Instant::now();
        loop {
            match act(&self.db) {
                Ok(done) => return done,
                Err(Error::Fenced) => {
                    self.put_out += 1;
                    self.db = connect(&self.url);
                }
                Err(error) => {
                    assert!(error.is_passing(), "{error}");
                    std::thread::sleep(lease() / 10);
                }
            }
            assert!(start.elapsed() < LIMIT, "it does not succeed");
        }
    }

    /// By the command that people use; the node's process ends by itself.
    fn drain(&mut self) {
        let mut node = self.cluster.nodes.swap_remove(0);
        let drained = Command::new(env!("CARGO_BIN_EXE_farside"))
            .args(["drain", "--timeout", "120", "--connect", &self.cluster.url, &node.address])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&drained.stderr);
        assert!(drained.status.success(), "{said}, with {:?}", self.cluster.config());
        let start = Instant::now();
        while node.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < LIMIT, "a node that has drained does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Hears what the clients did. One that got no time was put out: another one takes its place.
    fn listen(&mut self) {
        for mut client in std::mem::take(&mut self.clients) {
            client.listen(&mut self.history);
            match client.child.try_wait().unwrap() {
                None => self.clients.push(client),
                Some(status) => {
                    assert_eq!(status.code(), Some(PUT_OUT), "a client ended: {status}");
                    client.wait(&mut self.history);
                    self.put_out += 1;
                    self.add_client();
                }
            }
        }
    }

    /// What is in the lists that are older, and is deleted.
    fn clear(&mut self, before: u64) -> Vec<(String, Vec<u64>)> {
        let table = self.table;
        let mut rows = self.persist(|db| {
            let mut rows = Vec::new();
            let scanned = db.transact(async |tx| {
                rows.clear();
                tx.scan(&table, |key, value| rows.push((key.to_vec(), value.to_vec()))).await
            });
            db.block_on(scanned).map(|()| rows)
        });
        rows.retain(|(key, _)| client::generation_of(key) < before);
        for some in rows.chunks(16) {
            self.persist(|db| {
                db.block_on(db.transact(async |tx| {
                    for (key, _) in some {
                        tx.delete(&table, key).await?;
                    }
                    Ok::<_, Error>(())
                }))
            });
        }
        let name = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap()).to_string();
        let rows = rows.iter();
        rows.map(|(key, value)| (name(key), client::elements(Some(value)))).collect()
    }

    /// All clients end, and what is there in the end belongs to the history.
    fn finish(mut self, free_at_first: u64) {
        self.listen();
        self.clients.drain(..).for_each(|client| client.finish(&mut self.history));
        let begin = client::now_ns();
        let rows = self.clear(u64::MAX);
        let ops: Vec<_> =
            rows.iter().map(|(key, list)| json!({"f": "r", "k": key, "v": list})).collect();
        let end = client::now_ns();
        self.history.add(json!({
            "id": 1, "proc": 0, "begin": begin, "end": end, "outcome": "committed", "ops": ops
        }));
        let (committed, unknown) = self.history.counts();
        let text = std::mem::take(&mut self.history).text();
        if let Ok(path) = std::env::var("FARSIDE_HISTORY") {
            std::fs::write(path, &text).unwrap();
        }
        let report = check(text.as_bytes(), Level::Strict).unwrap();
        println!("{committed} committed, {unknown} unknown: {}", report.verdict);
        assert_eq!(report.verdict, "strict-serializable", "{:?}", report.anomalies.first());
        assert!(committed > 10 * unknown, "{committed} committed, {unknown} unknown");
        // What the last clients had is free once others have seen that they are gone.
        let start = Instant::now();
        let free = loop {
            let free = self.free();
            if free + KEPT >= free_at_first || start.elapsed() > LIMIT {
                break free;
            }
            std::thread::sleep(lease());
        };
        println!("{free} bytes are free, and {free_at_first} were at first");
        assert!(free + KEPT >= free_at_first, "{free} of {free_at_first} bytes are free again");
    }
}

/// None of what it does late takes effect, and it learns why.
#[test]
fn a_client_that_was_stopped_is_told_that_it_was_put_out() {
    let Some(mut soak) = Soak::start("paused", 3, 2) else { return };
    let free = soak.free();
    (0..3).for_each(|_| soak.strike(Event::PauseClient));
    soak.finish(free);
}

#[test]
fn whatever_happens_nothing_is_lost_and_space_comes_back() {
    let Some(mut soak) = Soak::start("soak", 4, 3) else { return };
    let seconds = std::env::var("FARSIDE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let (start, span) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(15)));
    let free = soak.free();
    let mut struck = std::collections::BTreeMap::new();
    for number in 0.. {
        // Each of them at least once.
        let event = match ALL.get(number) {
            Some(event) => *event,
            None if start.elapsed() > span => break,
            None => ALL[soak.random.below(6) as usize],
        };
        // Four or five nodes.
        let event = match (event, soak.cluster.nodes.len()) {
            (Event::Drain, 4) => Event::Join,
            (Event::Join, 5) => Event::Drain,
            (event, _) => event,
        };
        *struck.entry(format!("{event:?}")).or_insert(0) += 1;
        soak.strike(event);
        soak.listen();
        std::thread::sleep(Duration::from_millis(200 + soak.random.below(800)));
        if number % 20 == 0 {
            let old = client::generation().saturating_sub(client::OLD);
            soak.clear(old);
            let free = soak.free();
            println!("{:.0?}: {struck:?}, {free} bytes are free", start.elapsed());
        }
    }
    println!("{struck:?}, and {} were put out without being stopped", soak.put_out);
    assert!(soak.put_out <= 2 + struck.values().sum::<usize>() / 10);
    soak.finish(free);
}
