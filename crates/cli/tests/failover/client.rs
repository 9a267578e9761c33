//! A client process: it reads and appends to lists, and tells on its output what it is about to do, and what came of it. When
//! it is killed, what it told is there.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use farside::{Connection, Error, Table, Transaction};
use farside_fabric::runtime::Random;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::cluster::LIMIT;
use crate::kills::connect;

/// Which database such a process works on, and its number: it is this program.
const CLIENT: &str = "FARSIDE_TEST_CLIENT";

/// A client begins a transaction so often.
const PACE: Duration = Duration::from_millis(8);

/// How many lists there are at a time, and how long those are appended to.
const LISTS: u64 = 16;
const GENERATION: u64 = 2_000_000_000;

/// Nobody is at lists any more that are so old.
pub(crate) const OLD: u64 = 90_000_000_000 / GENERATION;

/// Nanoseconds on a clock that all processes share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Which lists are appended to now.
pub(crate) fn generation() -> u64 {
    now_ns() / GENERATION
}

/// The generation of a list.
pub(crate) fn generation_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().unwrap()) / LISTS
}

pub(crate) fn elements(value: Option<&[u8]>) -> Vec<u64> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    value.unwrap_or_default().chunks(8).map(word).collect()
}

/// How a process ends that was put out of the pool.
pub(crate) const PUT_OUT: i32 = 3;

/// Not a test by itself: a process that works until its input ends.
#[test]
fn client() {
    let Ok(asked) = std::env::var(CLIENT) else { return };
    let (number, url) = asked.split_once(' ').unwrap();
    let number: u64 = number.parse().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Relaxed);
    });
    let connection = connect(url);
    let put_out = connection.block_on(async {
        let table = connection.table("lists").await.unwrap();
        let mut random = Random::new(number);
        let mut attempts = 0;
        while !over.load(Ordering::Relaxed) {
            attempts += 1;
            let start = Instant::now();
            match attempt(&connection, &table, number, number << 32 | attempts, &mut random).await {
                Err(Error::Fenced) => return true,
                Err(Error::OutcomePending(_)) | Ok(()) => {}
                Err(passing) if passing.is_passing() => {}
                Err(other) => panic!("client {number}: {other}"),
            }
            connection.worker().sleep(PACE.saturating_sub(start.elapsed())).await;
        }
        false
    });
    if put_out {
        std::process::exit(PUT_OUT);
    }
}

fn tell(line: &Value) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

async fn attempt(
    connection: &Connection,
    table: &Table,
    proc: u64,
    id: u64,
    random: &mut Random,
) -> Result<(), Error> {
    let first = generation() * LISTS;
    let mut steps: Vec<(u64, Option<u64>)> = Vec::new();
    for number in 0..1 + random.below(3) {
        let element = (random.below(2) == 0).then_some(id << 2 | number);
        steps.push((first + random.below(LISTS), element));
    }
    let begin = now_ns();
    let line = |outcome: &str, ops: Vec<Value>| json!({ "id": id, "proc": proc, "begin": begin, "end": now_ns(), "outcome": outcome, "ops": ops });
    let append =
        |key: u64, element: u64| json!({"f": "append", "k": key.to_string(), "v": element});
    let appends = || -> Vec<Value> {
        steps.iter().filter_map(|(key, element)| Some(append(*key, (*element)?))).collect()
    };
    tell(&line("unknown", appends()));
    let done = connection.transact(async |tx: &mut Transaction| {
        let mut ops = Vec::new();
        for (key, element) in &steps {
            let name = key.to_be_bytes();
            let value = tx.get(table, &name).await?;
            let list = elements(value.as_deref());
            ops.push(json!({"f": "r", "k": key.to_string(), "v": list}));
            if let Some(element) = element {
                let mut value = value.unwrap_or_default();
                value.extend(element.to_le_bytes());
                tx.put(table, &name, &value).await?;
                ops.push(append(*key, *element));
            }
        }
        Ok::<_, Error>(ops)
    });
    let done = done.await;
    match &done {
        Ok(ops) => tell(&line("committed", ops.clone())),
        // Whether that one has committed is up to those who repair it.
        Err(Error::OutcomePending(_) | Error::Fenced) => {}
        Err(_) => tell(&line("aborted", appends())),
    }
    done.map(drop)
}

/// Such a process, seen from outside; killed when dropped.
pub(crate) struct Client {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    told: Receiver<Value>,
}

impl Client {
    pub(crate) fn start(number: u64, url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["client::client", "--exact", "--test-threads=1", "--nocapture"]);
        command.env(CLIENT, format!("{number} {url}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let (teller, told) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The last line of one that was killed may be a part only; and the test harness talks, too.
                let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
                let _ = teller.send(line);
            }
        });
        Client { child, input, told }
    }

    /// It has told something: it is at work.
    pub(crate) fn wait_for_work(&self, history: &mut History) {
        history.add(self.told.recv_timeout(LIMIT).expect("a client works"));
    }

    /// What it has told since the last time.
    pub(crate) fn listen(&self, history: &mut History) {
        self.told.try_iter().for_each(|line| history.add(line));
    }

    /// Waits for its end; what it told in the end is there.
    pub(crate) fn wait(&mut self, history: &mut History) -> ExitStatus {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LIMIT, "a client does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        self.told.iter().for_each(|line| history.add(line));
        status
    }

    /// Asks it to end, and waits.
    pub(crate) fn finish(mut self, history: &mut History) {
        drop(self.input.take());
        let status = self.wait(history);
        assert!(status.success(), "a client ended with {status}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What all have told: of each attempt the last.
#[derive(Default)]
pub(crate) struct History(std::collections::BTreeMap<u64, Value>);

impl History {
    pub(crate) fn add(&mut self, line: Value) {
        self.0.insert(line["id"].as_u64().unwrap(), line);
    }

    /// How many attempts have committed, and of how many that is not known.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |outcome| self.0.values().filter(|line| line["outcome"] == outcome).count();
        (count("committed"), count("unknown"))
    }

    /// One attempt a line. Those of which nobody knows may take effect until the end.
    pub(crate) fn text(mut self) -> String {
        let end = now_ns();
        let unknown = self.0.values_mut().filter(|line| line["outcome"] == "unknown");
        unknown.for_each(|line| line["end"] = end.into());
        self.0.values().map(|line| format!("{line}\n")).collect()
    }
}
