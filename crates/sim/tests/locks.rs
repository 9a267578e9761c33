//! Locks under skew (`sherman` Figs. 2 and 16), programmed as the paper and its published benchmark have them
//! (§3.2.2, §4.3). Not a clean prediction: the number of processing units was chosen after looking at Fig. 16
//! (`docs/simulator.md`).

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use farside_fabric::{Queue, Worker};
use farside_sim::{Faults, Profile, Sim};

const LOCKS: u64 = 10_240;
/// The published benchmark draws keys, and hashes them to locks.
const KEYS: u64 = 64 << 20;
const SEEDS: u64 = 4;
/// A cache line that moves from one core to another: what local locks cost. Added after a first run
/// without it.
const LINE: Duration = Duration::from_nanos(100);
/// How often in a row a lock is handed over within a compute server.
const MAX_HANDOVERS: u32 = 4;

#[derive(Clone, Copy)]
struct Experiment {
    machines: usize,
    threads: usize,
    skew: f64,
    on_chip: bool,
    local: Local,
    release: Release,
}

#[derive(Clone, Copy, PartialEq)]
enum Release {
    /// An FAA that is waited for, as in Fig. 2.
    Faa,
    /// A WRITE that is posted and not waited for, as HOCL has it.
    Write,
}

/// The lock tables of a compute server.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Local {
    /// None: every thread retries remotely.
    None,
    /// One thread per server and lock goes remote, the others spin.
    Table,
    /// They wait in line.
    Queue,
    /// And the lock is handed to the next in line.
    Handover,
}

struct Measured {
    mops: f64,
    p50: f64,
    p99: f64,
}

/// How likely each lock is, cumulated: keys by Zipf, hashed to locks.
fn shares(skew: f64) -> Rc<Vec<f64>> {
    const EXACT: u64 = 1 << 20;
    // Rare keys are so many that each lock has the same share of them.
    let area = |rank: f64| rank.powf(1.0 - skew) / (1.0 - skew);
    let rare = area(KEYS as f64 + 0.5) - area(EXACT as f64 + 0.5);
    let mut locks = vec![rare / LOCKS as f64; LOCKS as usize];
    for rank in 1..=EXACT {
        let hash = (rank ^ (rank << 21)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        locks[((hash ^ (hash >> 32)) % LOCKS) as usize] += (rank as f64).powf(-skew);
    }
    let sum: f64 = locks.iter().sum();
    let mut cumulated = 0.0;
    locks.iter_mut().for_each(|share| {
        cumulated += *share / sum;
        *share = cumulated;
    });
    Rc::new(locks)
}

fn draw(worker: &Worker, shares: &[f64]) -> u64 {
    let random = worker.random() as f64 / u64::MAX as f64;
    (shares.partition_point(|share| *share < random) as u64).min(LOCKS - 1)
}

impl Experiment {
    /// Several worlds together: tails of one are a matter of luck.
    fn run(self) -> Measured {
        let span = Duration::from_millis(25);
        let shares = shares(self.skew);
        let run = |seed| self.run_one(seed, span, &shares);
        let mut latencies: Vec<_> = (1..=SEEDS).flat_map(run).collect();
        latencies.sort();
        let at = |share: f64| {
            latencies[(latencies.len() as f64 * share) as usize].as_nanos() as f64 / 1e3
        };
        let mops = latencies.len() as f64 / SEEDS as f64 / span.as_secs_f64() / 1e6;
        Measured { mops, p50: at(0.5), p99: at(0.99) }
    }

    fn run_one(self, seed: u64, span: Duration, shares: &Rc<Vec<f64>>) -> Vec<Duration> {
        let sim = Sim::new(Profile::named("connectx-5").unwrap(), seed, Faults::none());
        let node = sim.add_node(1 << 20);
        let base = if self.on_chip { 1 << 20 } else { 0 };
        let measuring = Rc::new(Cell::new(false));
        let latencies = Rc::new(RefCell::new(Vec::new()));
        let mut clients = Vec::new();
        for machine in 0..self.machines {
            let process = sim.add_process();
            let table = Rc::new(Table::default());
            for _ in 0..self.threads {
                let worker = sim.add_thread(process);
                let queue = sim.connect(process, &worker, node).unwrap();
                let client = Client {
                    worker: worker.clone(),
                    queue,
                    id: machine as u64 + 1,
                    table: Rc::clone(&table),
                    shares: Rc::clone(shares),
                    base,
                };
                let (measuring, latencies) = (Rc::clone(&measuring), Rc::clone(&latencies));
                clients.push(worker.spawn(async move {
                    loop {
                        let start = client.worker.now();
                        client.lock_and_unlock(self).await;
                        if measuring.get() {
                            latencies.borrow_mut().push(client.worker.now() - start);
                        }
                    }
                }));
            }
        }
        let process = sim.add_process();
        let observer = sim.add_thread(process);
        observer.block_on(async {
            observer.sleep(Duration::from_millis(3)).await;
            measuring.set(true);
            observer.sleep(span).await;
        });
        latencies.take()
    }
}

struct Client {
    worker: Worker,
    queue: Queue,
    id: u64,
    table: Rc<Table>,
    shares: Rc<Vec<f64>>,
    base: u64,
}

impl Client {
    async fn lock_and_unlock(&self, experiment: Experiment) {
        let lock = draw(&self.worker, &self.shares);
        let handed = self.table.enter(&self.worker, lock, experiment.local).await;
        if !handed {
            self.lock_remotely(lock).await;
        }
        if experiment.local == Local::Handover && self.table.hand_over(lock) {
            return;
        }
        self.unlock_remotely(lock, experiment.release).await;
        self.table.leave(lock, experiment.local);
    }

    async fn lock_remotely(&self, lock: u64) {
        loop {
            let mut round = self.worker.round();
            let old = round.to(&self.queue).cas(self.base + lock * 8, 0, self.id);
            if round.ring().await.unwrap()[old] == 0 {
                return;
            }
        }
    }

    async fn unlock_remotely(&self, lock: u64, release: Release) {
        let mut round = self.worker.round();
        let mut bell = round.to(&self.queue);
        match release {
            Release::Faa => {
                bell.faa(self.base + lock * 8, self.id.wrapping_neg());
                round.ring().await.unwrap();
            }
            Release::Write => {
                bell.write(self.base + lock * 8, &[0]);
                drop(round.post());
            }
        }
    }
}

/// The local lock table of a compute server.
#[derive(Default)]
struct Table {
    held: RefCell<HashMap<u64, Entry>>,
}

#[derive(Default)]
struct Entry {
    held: bool,
    handed_over: u32,
    spinning: u32,
    /// Set for the one at the head of the line: whether the remote lock comes with it.
    turn: Option<bool>,
    waiting: VecDeque<(u64, Waker)>,
    tickets: u64,
}

impl Table {
    /// Takes the local lock; `true` if the remote one came with it.
    async fn enter(&self, worker: &Worker, lock: u64, local: Local) -> bool {
        match local {
            Local::None => false,
            Local::Table => {
                self.entry(lock).spinning += 1;
                loop {
                    // All who spin pull the lock's cache line back and forth.
                    let spinning = self.entry(lock).spinning;
                    worker.sleep(LINE * spinning).await;
                    let mut entry = self.entry(lock);
                    if !std::mem::replace(&mut entry.held, true) {
                        entry.spinning -= 1;
                        return false;
                    }
                }
            }
            Local::Queue | Local::Handover => {
                worker.sleep(LINE).await;
                let handed = self.stand_in_line(lock).await;
                // All who wait look at the head of the line, and fetch its cache line one after the other.
                let waiting = self.entry(lock).waiting.len() as u64;
                let before = worker.random() % (waiting + 1);
                worker.sleep(LINE * (1 + before as u32)).await;
                handed
            }
        }
    }

    async fn stand_in_line(&self, lock: u64) -> bool {
        let mut mine = None;
        poll_fn(|cx| {
            let mut entry = self.entry(lock);
            match mine {
                None if !entry.held => {
                    entry.held = true;
                    Poll::Ready(false)
                }
                None => {
                    entry.tickets += 1;
                    let ticket = entry.tickets;
                    mine = Some(ticket);
                    entry.waiting.push_back((ticket, cx.waker().clone()));
                    Poll::Pending
                }
                Some(ticket) => match (entry.turn, entry.waiting.front()) {
                    (Some(handed), Some((first, _))) if *first == ticket => {
                        entry.turn = None;
                        entry.waiting.pop_front();
                        Poll::Ready(handed)
                    }
                    _ => Poll::Pending,
                },
            }
        })
        .await
    }

    /// Gives lock and turn to the next in line; `false` if there is none, or it is others' turn.
    fn hand_over(&self, lock: u64) -> bool {
        let mut entry = self.entry(lock);
        if entry.waiting.is_empty() || entry.handed_over >= MAX_HANDOVERS {
            entry.handed_over = 0;
            return false;
        }
        entry.handed_over += 1;
        entry.call_next(true);
        true
    }

    fn leave(&self, lock: u64, local: Local) {
        if local == Local::None {
            return;
        }
        let mut entry = self.entry(lock);
        if entry.waiting.is_empty() {
            entry.held = false;
        } else {
            entry.call_next(false);
        }
    }

    fn entry(&self, lock: u64) -> std::cell::RefMut<'_, Entry> {
        std::cell::RefMut::map(self.held.borrow_mut(), |held| held.entry(lock).or_default())
    }
}

impl Entry {
    fn call_next(&mut self, handed: bool) {
        self.turn = Some(handed);
        if let Some((_, waker)) = self.waiting.front() {
            waker.wake_by_ref();
        }
    }
}

/// Within 30 % of the paper.
#[track_caller]
fn agrees(what: &str, measured: f64, expected: f64) {
    println!("{what}: {measured:.2} simulated, {expected:.2} in the paper");
    let off = (measured / expected - 1.0).abs();
    assert!(off <= 0.30, "{what}: {measured:.2} simulated, {expected:.2} in the paper");
}

/// In the paper's direction, but more than 30 % off: `docs/simulator.md` says by how much, and what may be
/// missing in the model.
#[track_caller]
fn differs(what: &str, measured: f64, expected: f64) {
    println!("{what}: {measured:.2} simulated, {expected:.2} in the paper (differs)");
    assert!((measured / expected - 1.0).abs() > 0.30, "{what}: {measured:.2} agrees now, say so");
    assert!(measured > 1.2 && measured < expected * 2.5, "{what}: {measured:.2} simulated");
}

/// Fig. 16: what each technique brings, with 176 threads and Zipf 0.99.
#[test]
fn hierarchical_locks_bring_what_the_paper_measured() {
    let plain = Experiment {
        machines: 8,
        threads: 22,
        skew: 0.99,
        on_chip: false,
        local: Local::None,
        release: Release::Write,
    };
    let host = plain.run();
    let on_chip = Experiment { on_chip: true, ..plain };
    let chip = on_chip.run();
    let table = Experiment { local: Local::Table, ..on_chip }.run();
    let queue = Experiment { local: Local::Queue, ..on_chip }.run();
    let handover = Experiment { local: Local::Handover, ..on_chip }.run();
    for (name, it) in [
        ("host", &host),
        ("on-chip", &chip),
        ("table", &table),
        ("queue", &queue),
        ("handover", &handover),
    ] {
        println!("{name:<9} {:7.3} M/s  p50 {:7.1} µs  p99 {:8.1} µs", it.mops, it.p50, it.p99);
    }
    agrees("on-chip, throughput", chip.mops / host.mops, 2.89);
    agrees("on-chip, p50", host.p50 / chip.p50, 3.01);
    agrees("on-chip, p99", host.p99 / chip.p99, 2.88);
    differs("local tables, throughput", table.mops / chip.mops, 3.85);
    agrees("local tables, p50", chip.p50 / table.p50, 5.39);
    differs("local tables, p99", chip.p99 / table.p99, 3.65);
    agrees("before wait queues, p99 in µs", table.p99, 414.0);
    agrees("with wait queues, p99 in µs", queue.p99, 372.0);
    agrees("handover, throughput", handover.mops / queue.mops, 2.34);
    differs("handover, p99", queue.p99 / handover.p99, 3.19);
}

/// Fig. 2: throughput collapses and latency grows with the skew.
#[test]
fn locks_collapse_under_skew() {
    let at = |skew| {
        let (on_chip, local, release) = (false, Local::None, Release::Faa);
        Experiment { machines: 7, threads: 22, skew, on_chip, local, release }.run()
    };
    let (uniform, skewed) = (at(0.0), at(0.99));
    println!(
        "uniform {:.2} M/s p99 {:.1}, skewed {:.2} M/s p99 {:.1}",
        uniform.mops, uniform.p99, skewed.mops, skewed.p99
    );
    assert!(skewed.mops < uniform.mops / 10.0);
    assert!(skewed.p99 > uniform.p99 * 10.0);
}
