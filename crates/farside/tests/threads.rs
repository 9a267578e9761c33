//! Many threads, and several databases in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farside::{Database, Error, Options, RetryLimits, Table};

fn transfer(db: &farside::Blocking, table: &Table, from: u64, to: u64) -> Result<(), Error> {
    db.transact(|tx| {
        tx.add(table, &from.to_be_bytes(), -1)?;
        tx.add(table, &to.to_be_bytes(), 1)?;
        Ok(())
    })
}

#[test]
fn money_is_moved_by_threads_and_none_is_lost() {
    for url in ["mem:?memory=256MiB", "mem:?copies=3&memory=256MiB"] {
        let db = Database::open(url).unwrap();
        let table = db.blocking().unwrap().create_table("accounts").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let reader = {
            let (db, stop) = (db.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let db = db.blocking().unwrap();
                let mut looks = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut sum = 0;
                    let each = |_: &[u8], value: &[u8]| {
                        sum += i64::from_le_bytes(value.try_into().unwrap());
                    };
                    db.snapshot().unwrap().scan(&table, each).unwrap();
                    assert_eq!(sum, 0, "money comes from somewhere");
                    looks += 1;
                }
                looks
            })
        };
        let movers: Vec<_> = (0..4u64)
            .map(|thread| {
                let db = db.clone();
                std::thread::spawn(move || {
                    let db = db.blocking().unwrap();
                    for step in 0..2000 {
                        let from = (thread * 7 + step) % 50;
                        transfer(&db, &table, from, (from + 1 + step % 49) % 50).unwrap();
                    }
                })
            })
            .collect();
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    }
}

/// The first rows of an empty table, by all at once: none is lost, and no bucket is doubled.
#[test]
fn the_first_inserts_into_an_empty_table_do_not_lose_each_other() {
    for round in 0..20 {
        let db = Database::open("mem:?memory=64MiB").unwrap();
        let main = db.blocking().unwrap();
        let table = main.create_table("t").unwrap();
        let start = Arc::new(std::sync::Barrier::new(4));
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (db, start) = (db.clone(), Arc::clone(&start));
                std::thread::spawn(move || {
                    let db = db.blocking().unwrap();
                    start.wait();
                    (0..50u64).for_each(|n| {
                        db.insert(&table, &(n * 4 + thread).to_be_bytes(), b"x").unwrap();
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut rows = 0;
        main.snapshot().unwrap().scan(&table, |_, _| rows += 1).unwrap();
        assert_eq!(rows, 200, "round {round}");
    }
}

#[test]
fn threads_come_and_go_and_a_table_outlives_them() {
    let db = Database::open("mem:?memory=64MiB").unwrap();
    let table = db.blocking().unwrap().create_table("t").unwrap();
    for round in 0..60u64 {
        let db = db.clone();
        std::thread::spawn(move || db.blocking().unwrap().add(&table, b"count", 1).unwrap())
            .join()
            .map(|count| assert_eq!(count, round as i64 + 1))
            .unwrap();
    }
}

#[test]
fn too_many_threads_at_a_time_are_told() {
    let db = Database::open("mem:?memory=64MiB").unwrap();
    let (mut workers, mut connections) = (Vec::new(), Vec::new());
    let error = loop {
        let worker = farside_fabric::Worker::new(1);
        match worker.block_on(db.attach(&worker)) {
            Ok(connection) => connections.push(connection),
            Err(error) => break error,
        }
        workers.push(worker);
    };
    assert_eq!(connections.len(), 30);
    assert!(error.to_string().contains("at most 31 threads"), "{error}");
    connections.pop();
    assert!(db.connect().is_ok(), "one has gone");
}

#[test]
fn a_transaction_that_is_always_overtaken_is_told_so() {
    let retry = RetryLimits { tries: 3, ..RetryLimits::default() };
    let db = Database::open_with("mem:", &Options { retry, ..Options::default() }).unwrap();
    let db = db.blocking().unwrap();
    let table = db.create_table("t").unwrap();
    db.put(&table, b"k", b"v").unwrap();
    let mut tries = 0;
    let lost = db.transact(|tx| {
        tries += 1;
        tx.get(&table, b"k")?;
        db.put(&table, b"k", b"somebody else").unwrap();
        tx.put(&table, b"k", b"mine")
    });
    assert_eq!((lost, tries), (Err(Error::Conflict(3)), 3));
    assert_eq!(db.get(&table, b"k").unwrap().as_deref(), Some(&b"somebody else"[..]));
    // An error of one's own is nobody's business, and changes nothing.
    let own: Result<(), Error> = db.transact(|tx| {
        tx.put(&table, b"k", b"mine")?;
        Err(Error::Invalid("no".into()))
    });
    assert_eq!(own, Err(Error::Invalid("no".into())));
    assert_eq!(db.get(&table, b"k").unwrap().as_deref(), Some(&b"somebody else"[..]));
}

#[test]
fn what_is_too_large_is_refused_and_the_largest_is_not() {
    let db = Database::open("mem:?memory=64MiB").unwrap().blocking().unwrap();
    let table = db.create_table("t").unwrap();
    let (key, value) = (vec![7; farside::MAX_KEY_BYTES], vec![9; farside::MAX_VALUE_BYTES]);
    db.put(&table, &key, &value).unwrap();
    assert_eq!(db.get(&table, &key).unwrap(), Some(value.clone()));
    let (long, large) = ([&key[..], b"x"].concat(), [&value[..], b"x"].concat());
    assert!(matches!(db.put(&table, &long, b""), Err(Error::TooLarge(_))));
    assert!(matches!(db.put(&table, b"k", &large), Err(Error::TooLarge(_))));
    assert!(matches!(db.get(&table, &long), Err(Error::TooLarge(_))));
    for name in ["", "line\nbreak", &"x".repeat(201)] {
        assert!(matches!(db.create_table(name), Err(Error::Invalid(_))), "{name:?}");
    }
    // More than there is room for.
    let full = (0..200u64).find_map(|n| db.put(&table, &n.to_be_bytes(), &value).err());
    assert!(matches!(full, Some(Error::Full(_))), "{full:?}");
    assert_eq!(db.get(&table, &key).unwrap(), Some(value));
}

/// More than a record ring has room for, twice: once where nothing was, and once over all of it; while somebody reads
/// what was before.
#[test]
fn a_transaction_may_be_large() {
    let db = Database::open("mem:?copies=2&memory=256MiB").unwrap().blocking().unwrap();
    let table = db.create_table("t").unwrap();
    let fill = |value: u8| {
        db.transact(|tx| {
            (0..4000u64).try_for_each(|n| tx.put(&table, &n.to_be_bytes(), &[value; 60]))
        })
        .unwrap();
    };
    fill(1);
    let mut before = db.snapshot().unwrap();
    fill(2);
    let (mut then, mut now) = (0, 0);
    before.scan(&table, |_, value| then += u64::from(value[0])).unwrap();
    db.snapshot().unwrap().scan(&table, |_, value| now += u64::from(value[0])).unwrap();
    assert_eq!((then, now), (4000, 8000));
}
