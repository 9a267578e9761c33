//! Processes that share a file, and die (`kill -9`) in the middle of everything: nothing is lost, nobody waits for long.
//! `FARSIDE_KILLS` says how many.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farside::{Blocking, Database, Error, Outcome, Table, TransactionId};

const ACCOUNTS: u64 = 20;
const BEGINNING: i64 = 1000;

/// Which database a process of this test works on; it is this program.
const CLIENT: &str = "FARSIDE_TEST_CLIENT";

/// One test at a time: they measure how long somebody waits.
static ONE: Mutex<()> = Mutex::new(());

const LEASE: Duration = Duration::from_millis(250);

struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        File(folder.join(format!("farside-{name}-{}", std::process::id())))
    }

    fn url(&self) -> String {
        let lease = LEASE.as_millis();
        format!("file:{}?memory=128MiB&lease={lease}ms", self.0.display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn transfer(db: &Blocking, table: &Table, random: u64) -> Result<(), Error> {
    let from = random % ACCOUNTS;
    let to = (from + 1 + random / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS;
    db.transact(|tx| {
        tx.add(table, &from.to_be_bytes(), -1)?;
        tx.add(table, &to.to_be_bytes(), 1)?;
        Ok(())
    })
}

fn next(random: u64) -> u64 {
    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// Not a test by itself: a process that moves money until it is killed.
#[test]
fn client() {
    let Ok(url) = std::env::var(CLIENT) else { return };
    let db = Database::open(&url).unwrap().blocking().unwrap();
    let table = db.table("accounts").unwrap();
    let mut random = u64::from(std::process::id());
    loop {
        random = next(random);
        transfer(&db, &table, random >> 33).unwrap();
    }
}

/// A process, which is killed when this is dropped.
struct Process(Child);

impl Process {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["client", "--exact", "--test-threads=1"]).env(CLIENT, url);
        Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sum(db: &Blocking, table: &Table) -> i64 {
    let mut sum = 0;
    let each = |_: &[u8], value: &[u8]| sum += i64::from_le_bytes(value.try_into().unwrap());
    db.snapshot().unwrap().scan(table, each).unwrap();
    sum
}

/// Moves money for a time; the longest that one transfer took.
fn work(db: &Blocking, table: &Table, random: &mut u64, span: Duration) -> Duration {
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < span {
        *random = next(*random);
        let begin = Instant::now();
        transfer(db, table, *random >> 33).unwrap();
        longest = longest.max(begin.elapsed());
    }
    longest
}

#[test]
fn processes_that_are_killed_lose_nothing_and_block_nobody_for_long() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let kills = std::env::var("FARSIDE_KILLS").map_or(15, |kills| kills.parse().unwrap());
    let file = File::new("deaths");
    let url = file.url();
    let database = Database::open(&url).unwrap();
    let db = database.blocking().unwrap();
    let table = db.create_table("accounts").unwrap();
    for account in 0..ACCOUNTS {
        db.transact(|tx| tx.put(&table, &account.to_be_bytes(), &BEGINNING.to_le_bytes())).unwrap();
    }
    let total = ACCOUNTS as i64 * BEGINNING;
    let mut random = 7;
    // As many processes at a time, but nobody dies.
    let mut others = [Process::start(&url), Process::start(&url)];
    let control = work(&db, &table, &mut random, Duration::from_millis(1500));
    let mut longest = Duration::ZERO;
    let mut blocked = 0;
    for number in 0..kills {
        let other = &mut others[number % 2];
        // One after the other: when the one before is repaired.
        let span = LEASE + Duration::from_micros(50_000 + random % 30_000);
        let took = work(&db, &table, &mut random, span);
        assert!(other.0.try_wait().unwrap().is_none(), "a process ended by itself");
        *other = Process::start(&url);
        longest = longest.max(took);
        blocked += u32::from(took > LEASE / 2);
    }
    longest = longest.max(work(&db, &table, &mut random, 2 * LEASE));
    println!(
        "{kills} kills: longest wait {longest:?} ({blocked} were blocked), without kills {control:?}"
    );
    assert!(longest < LEASE + Duration::from_millis(50) + control, "{longest:?}");
    assert_eq!(sum(&db, &table), total);
    drop(others);
    // Locks that nobody has met so far are nobody's, too.
    std::thread::sleep(2 * LEASE);
    for account in 0..ACCOUNTS {
        db.transact(|tx| tx.add(&table, &account.to_be_bytes(), 0).map(drop)).unwrap();
    }
    assert_eq!(sum(&db, &table), total);
}

/// A process that does nothing for longer than a lease is taken for dead; and then it is.
#[test]
fn a_process_that_is_stopped_is_ended_by_the_fence() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = File::new("stopped");
    let url = file.url();
    let db = Database::open(&url).unwrap().blocking().unwrap();
    let table = db.create_table("accounts").unwrap();
    for account in 0..ACCOUNTS {
        db.transact(|tx| tx.put(&table, &account.to_be_bytes(), &BEGINNING.to_le_bytes())).unwrap();
    }
    let mut random = 3;
    for _ in 0..3 {
        let mut other = Process::start(&url);
        work(&db, &table, &mut random, Duration::from_millis(200));
        let stop = Command::new("kill").args(["-STOP", &other.0.id().to_string()]).status();
        assert!(stop.unwrap().success());
        let longest = work(&db, &table, &mut random, 2 * LEASE);
        assert!(longest < LEASE + Duration::from_millis(100), "{longest:?}");
        let ended = other.0.try_wait().unwrap();
        assert!(ended.is_some_and(|status| !status.success()), "it is still there");
    }
    assert_eq!(sum(&db, &table), ACCOUNTS as i64 * BEGINNING);
}

const NAMED_CLIENT: &str = "FARSIDE_TEST_NAMED_CLIENT";

/// Not a test by itself: a process that counts, and says the id of what it does before it does it.
#[test]
fn named_client() {
    let Ok(url) = std::env::var(NAMED_CLIENT) else { return };
    let db = Database::open(&url).unwrap().blocking().unwrap();
    let table = db.table("counter").unwrap();
    loop {
        let id = TransactionId::fresh().unwrap();
        println!("\nid {id}");
        db.transact(|tx| {
            tx.remember(id)?;
            tx.add(&table, b"count", 1)
        })
        .unwrap();
    }
}

/// Whoever is killed does not know whether its last transaction has committed; others do, and are right.
#[test]
fn the_outcomes_of_a_dead_process_can_be_asked_for() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = File::new("outcomes");
    let db = Database::open(&file.url()).unwrap().blocking().unwrap();
    let table = db.create_table("counter").unwrap();
    let (mut committed, mut aborted) = (0, 0);
    for round in 0..6 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["named_client", "--exact", "--nocapture"]).env(NAMED_CLIENT, file.url());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut child = Process(child);
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut ids: Vec<TransactionId> = Vec::new();
        let parse =
            |line: String| line.strip_prefix("id ").and_then(|id| id.parse::<TransactionId>().ok());
        while ids.len() < 50 + 7 * round {
            ids.extend(lines.next().unwrap().ok().and_then(parse));
        }
        drop(child);
        ids.extend(lines.map_while(|line| line.ok()).filter_map(parse));
        // Also one that it never began.
        ids.push(TransactionId::fresh().unwrap());
        for id in ids {
            match db.outcome(id).unwrap() {
                Outcome::Committed => committed += 1,
                Outcome::Aborted => aborted += 1,
            }
        }
        let count = db.transact(|tx| tx.add(&table, b"count", 0)).unwrap();
        assert_eq!(count, committed, "round {round}");
    }
    println!("{committed} committed, {aborted} aborted");
    assert!(committed >= 300 && aborted >= 6);
}
