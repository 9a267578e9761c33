//! A backup that is made under load is a snapshot: whoever reads what it restores has read at one moment, while it was made.

use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside::{Blocking, Database};
use farside_fabric::Worker;
use farside_workloads::check::{Level, check};
use farside_workloads::driver::{self, Control, Plan, Until};
use farside_workloads::engine::{DatabaseEngine, Engine};
use farside_workloads::history::{Ended, Outcome, Recorder, Sink};
use farside_workloads::load::{ListAppend, Workload};

const BACKUPS: u64 = 6;

/// A history that stays in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A backup, and when it was begun and finished.
struct Made {
    stream: Vec<u8>,
    begin: u64,
    end: u64,
}

fn back_up(db: &Database, made: &Sender<Made>) {
    let connection = db.connect().unwrap();
    let now = || connection.worker().now().0;
    for _ in 0..BACKUPS {
        std::thread::sleep(Duration::from_millis(150));
        let (begin, mut stream) = (now(), Vec::new());
        connection.block_on(connection.back_up(&mut stream, |_| true)).unwrap();
        made.send(Made { stream, begin, end: now() }).unwrap();
    }
}

/// Lists by their keys.
type Lists = Vec<(u64, Vec<u64>)>;

/// The lists of a backup, restored into a new database.
fn lists(stream: &[u8]) -> Lists {
    let db: Blocking = Database::open("mem:?memory=128MiB").unwrap().blocking().unwrap();
    db.connection().block_on(db.connection().restore(stream, |_| true)).unwrap();
    let mut lists = Vec::new();
    for name in db.tables().unwrap() {
        let table = db.table(&name).unwrap();
        let each = |key: &[u8], value: &[u8]| {
            let elements = value.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            lists.push((u64::from_be_bytes(key.try_into().unwrap()), elements.collect()));
        };
        db.snapshot().unwrap().scan(&table, each).unwrap();
    }
    lists.sort();
    lists
}

/// Somebody has read all lists, and those that are not there, too.
fn record(log: &mut Recorder, number: u64, made: &Made, lists: &Lists, most: u64) {
    let mut known = lists.iter().peekable();
    for key in 0..=most {
        match known.next_if(|list| list.0 == key) {
            Some((_, list)) => log.read_list(key, list),
            None => log.read_list(key, &[]),
        }
    }
    let Made { begin, end, .. } = *made;
    let (id, proc) = (1 << 40 | number, 1000 + number);
    log.end(&Ended { id, proc, begin, end, outcome: Outcome::Committed, commit_ts: None });
}

fn run(load: &DatabaseEngine, control: &Arc<Control>, sink: &Sink) -> u64 {
    let workload = Arc::new(ListAppend::new(20, 4, 50));
    let worker = Worker::new(1);
    worker.block_on(async {
        load.join(&worker).await.unwrap();
        load.create(&worker, &workload.tables()).await.unwrap();
        workload.setup(load, &worker).await.unwrap();
    });
    let plan = Plan {
        threads: 2,
        coordinators: 4,
        until: Until::Time(Duration::from_secs(60)),
        warmup: Duration::ZERO,
        rate: Some(4000.0),
        drops: false,
        seed: 7,
    };
    let tally = driver::run(load, &workload, &plan, control, Some(sink)).unwrap();
    load.leave(&worker);
    tally.committed()
}

/// What the checker says about what was recorded so far.
fn is_sound(history: &Memory) -> bool {
    let text = history.0.lock().unwrap();
    check(&text[..], Level::Strict).unwrap().anomalies.is_empty()
}

#[test]
fn a_backup_under_load_is_a_snapshot() {
    let db = Database::open("mem:?memory=512MiB&copies=2").unwrap();
    let (history, control) = (Memory::default(), Arc::new(Control::default()));
    let (send, made): (Sender<Made>, Receiver<Made>) = channel();
    let committed = std::thread::scope(|scope| {
        let (stop, other) = (Arc::clone(&control.stop), db.clone());
        scope.spawn(move || {
            back_up(&other, &send);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let sink = Sink::to(history.clone());
        let committed = run(&DatabaseEngine::new(db.clone()), &control, &sink);
        sink.finish().unwrap();
        committed
    });
    let all: Vec<(Made, Lists)> = made
        .iter()
        .map(|made| {
            let lists = lists(&made.stream);
            (made, lists)
        })
        .collect();
    assert_eq!(all.len() as u64, BACKUPS);
    let most = all.last().unwrap().1.last().unwrap().0;
    let note = |number, made: &Made, lists: &Lists| {
        let sink = Sink::to(history.clone());
        record(&mut sink.recorder(), number, made, lists, most);
        sink.finish().unwrap();
    };
    all.iter().zip(0..).for_each(|((made, lists), number)| note(number, made, lists));
    assert!(is_sound(&history));
    let seen: Vec<u64> =
        all.iter().map(|(_, lists)| lists.last().map_or(0, |list| list.0)).collect();
    println!("{committed} committed, {} backups, lists up to {seen:?}", all.len());
    assert!(committed > 1000 && seen.is_sorted() && seen[0] < most, "{seen:?}");

    // What is of two moments is no snapshot.
    let ((first, old), (last, new)) = (&all[0], &all[all.len() - 1]);
    let (even, odd) =
        (new.iter().filter(|list| list.0 % 2 == 0), old.iter().filter(|list| list.0 % 2 == 1));
    let mut mixed: Lists = even.chain(odd).cloned().collect();
    mixed.sort();
    note(BACKUPS, &Made { stream: Vec::new(), begin: first.begin, end: last.end }, &mixed);
    assert!(!is_sound(&history));
}
