//! The default protocol on tables, in the simulator: reordering, tearing, delay, clocks that are off, three
//! copies, reads from backups; nobody dies.

use crate::common;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use farside_fabric::runtime::Random;
use farside_sim::{Faults, Profile, Sim};
use farside_txn::{Level, Protocol as Phases, Technique, Trap};
use farside_workloads::engine::{
    Engine, Failure, Intent, Rows, Session, SimTables, Table, TableShape, Transaction, Want,
};
use farside_workloads::history::Recorder;
use farside_workloads::load::{Effect, Kind, Shape, SmallBank, Tatp, Tx, Workload};
use farside_workloads::trial::{Protocol, Trial};

fn trial(seed: u64, copies: usize, trap: Option<Trap>) -> Trial {
    let faults = FAULTS.parse().expect("names of faults");
    Trial {
        seed,
        txns: 200,
        protocol: Protocol::Farside { phases: Phases::FARSIDE, copies, trap, level: Level::Strict },
        faults,
    }
}

const FAULTS: &str = "reorder,tear,delay=2000";

/// Found on the way: a thread that told on the board that its oldest snapshot is 0 told nothing, and what it
/// read was overwritten (list-append, seed 114); a writer that waited for room in its ring held a lock that
/// the reader waited for whose snapshot kept the ring full (list-append, seed 212).
#[test]
fn histories_are_strictly_serializable_and_opaque() {
    for kind in Kind::ALL {
        common::all_are_sound(kind, &kind.small(), 20, |seed| {
            trial(seed, 1 + seed as usize % 5, None)
        });
    }
    common::all_are_reached(&BRANCHES);
}

/// What a conflict can lead to: all of it happens.
const BRANCHES: [&str; 18] = [
    "a backup's bit is asked for again",
    "a bucket is for other hashes",
    "a bucket is split",
    "a lock is lost",
    "a lock-read is newer than the snapshot",
    "a reader finds a torn object",
    "a reader follows to an older version",
    "a reader that holds locks gives way",
    "a reader waits for a lock that is older than its snapshot",
    "a snapshot moves on",
    "a transaction asks for locks again",
    "a record is outside of the ring",
    "a transaction gives way to an older one",
    "a transaction that holds locks asks for others again",
    "a transaction waits for its turn",
    "an object that was only read has changed",
    "an object that was only read is locked",
    "an object was overtaken before it was locked",
];

/// Seeds that went wrong, with the shapes of `farside sim`: list-append 734, where a transaction had read a bucket on
/// its way to a row, moved on to a newer snapshot, and took the old bucket for a proof that another key was not
/// there.
#[test]
fn seeds_that_went_wrong_do_not_any_more() {
    let seeds = [(Kind::ListAppend, 734), (Kind::ListAppend, 114), (Kind::ListAppend, 212)];
    for (kind, seed) in seeds {
        let trial = Trial { txns: 500, ..trial(seed, 3, None) };
        let outcome = kind.visit(&kind.simulated(), trial).unwrap().unwrap();
        assert_eq!(outcome.report.verdict, "strict-serializable", "{} seed {seed}", kind.name());
    }
}

/// What goes wrong with a seed when a rule is left out.
fn goes_wrong(trap: Trap, seed: u64) -> Option<(Kind, String)> {
    let pairs = Shape { objects: Some(2), keys: Some(4), read_share: Some(50), ..Shape::default() };
    let kinds =
        [Kind::ListAppend, Kind::SmallBank, Kind::Kvs, Kind::Transfer, Kind::Counter, Kind::Tatp];
    let tight = kinds.map(|kind| (kind, common::tight(kind)));
    tight.into_iter().chain([(Kind::Kvs, pairs)]).find_map(|(kind, shape)| {
        // Some seeds have verbs that are late more often.
        let faults = ["reorder,tear,delay=20000", FAULTS, "reorder,tear,delay=200000"];
        let faults = faults[seed as usize % 3].parse().expect("names of faults");
        // What is seen only with clocks that are not so good is looked for there.
        let seed = if trap == Trap::EarlyRelease { 4 * seed + 3 } else { seed };
        let trial = Trial { faults, ..trial(seed, 3, Some(trap)) };
        Some((kind, common::goes_wrong(kind, &shape, trial)?))
    })
}

/// Two machines insert and delete a few keys in turn, whose rows take each other's places; what they read must be what
/// was written there last.
fn churn(seed: u64, trap: Option<Trap>) -> Result<(), String> {
    let profile = Profile::named("connectx-5").expect("a profile of the table");
    let sim = Rc::new(Sim::new(profile, seed, FAULTS.parse().expect("names of faults")));
    let engine = SimTables::new(&sim, 2, trap);
    let workers = [engine.add_machine(0).1, engine.add_machine(1).1];
    let table = Table(1);
    let shape = TableShape { table, keys: 6, value_bytes: 8 };
    workers[0].block_on(engine.create(&workers[0], &[shape])).map_err(|why| why.to_string())?;
    let (mut model, mut random) = (BTreeMap::new(), Random::new(seed));
    let mut rows = Rows::default();
    for number in 0..100u64 {
        let worker = &workers[random.below(2) as usize];
        let (key, what) = (random.below(6), random.below(3));
        let done: Result<(), Failure> = worker.block_on(async {
            let mut session = engine.session(worker);
            let mut tx = session.begin().await?;
            match what {
                0 => tx.write(table, key, Some(&number.to_le_bytes())).await?,
                1 => tx.write(table, key, None).await?,
                _ => tx.read(&[Want { table, key, intent: Intent::Read }], &mut rows).await?,
            }
            tx.commit().await?;
            engine.client(worker).agent().quiesce().await;
            Ok(())
        });
        done.map_err(|why| why.to_string())?;
        match what {
            0 => _ = model.insert(key, number),
            1 => _ = model.remove(&key),
            _ => {
                let expected = model.get(&key).map(|number| number.to_le_bytes());
                if rows.get(0) != expected.as_ref().map(|bytes| &bytes[..]) {
                    return Err(format!("key {key} is {:?}, not {expected:?}", rows.get(0)));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn rows_take_each_others_places_and_nobody_mistakes_them() {
    (1..=50).for_each(|seed| assert_eq!(churn(seed, None), Ok(()), "seed {seed}"));
}

/// One machine writes a number to two rows, again and again; another reads both, where no two words are of one moment. Whether they are
/// always the same.
fn pair(seed: u64, trap: Option<Trap>) -> Result<(), String> {
    let profile = Profile::named("connectx-5").expect("a profile of the table");
    let profile = Profile { line_atomic: false, ..profile };
    let faults = "reorder,tear=1000000".parse().expect("names of faults");
    let sim = Rc::new(Sim::new(profile, seed, faults));
    // Whose snapshots are of now: those of a little before miss less.
    let late = Phases::FARSIDE.without(Technique::EarlySnapshots).expect("it has that");
    let engine = SimTables::new(&sim, 2, trap).with_clocks(200);
    let engine = engine.with_limits(|limits| *limits = limits.following(late));
    let [reader, writer] = [0, 1].map(|number| engine.add_machine(number).1);
    let table = Table(1);
    let shape = TableShape { table, keys: 2, value_bytes: 8 };
    reader.block_on(engine.create(&reader, &[shape])).map_err(|why| why.to_string())?;
    let over = Rc::new(Cell::new(false));
    let writing = writer.spawn({
        let (mut session, over) = (engine.session(&writer), Rc::clone(&over));
        async move {
            for number in 0..300u64 {
                let mut tx = session.begin().await?;
                for key in 0..2 {
                    tx.write(table, key, Some(&number.to_le_bytes())).await?;
                }
                tx.commit().await?;
            }
            over.set(true);
            Ok::<_, Failure>(())
        }
    });
    let read = reader.block_on(async {
        let (mut session, mut rows) = (engine.session(&reader), Rows::default());
        while !over.get() {
            let mut tx = session.begin().await?;
            let wants = [0, 1].map(|key| Want { table, key, intent: Intent::Read });
            tx.read(&wants, &mut rows).await?;
            if rows.get(0) != rows.get(1) {
                return Ok(Err(format!("{:?} and {:?}", rows.get(0), rows.get(1))));
            }
            tx.commit().await?;
        }
        writing.await.map(Ok)
    });
    read.unwrap_or_else(|failure: Failure| Err(failure.to_string()))
}

#[test]
fn two_rows_that_are_written_together_are_read_together() {
    (1..=50).for_each(|seed| assert_eq!(pair(seed, None), Ok(()), "seed {seed}"));
}

/// Each rule prevents something: without it the simulator finds that.
#[test]
fn every_rule_is_there_for_something() {
    common::each_is_needed(&Trap::OF_THE_LIVING, |trap, seed| match trap {
        Trap::StaleAddress => Some((Kind::Kvs, churn(seed, Some(trap)).err()?)),
        Trap::LinesAreWhole => Some((Kind::Kvs, pair(seed, Some(trap)).err()?)),
        _ => goes_wrong(trap, seed),
    });
}

/// The round trips of each kind of transaction, without anybody in the way: with a write, and without.
fn round_trips<W: Workload>(workload: &W) -> BTreeMap<&'static str, BTreeSet<(bool, u64)>> {
    let profile = Profile::named("connectx-5").expect("a profile of the table");
    let sim = Rc::new(Sim::new(profile, 1, Faults::none()));
    let engine = SimTables::new(&sim, 3, None);
    let (_, worker) = engine.add_machine(0);
    worker.block_on(async {
        engine.create(&worker, &workload.tables()).await.unwrap();
        workload.setup(&engine, &worker).await.unwrap();
        let mut session = engine.session(&worker);
        let (mut log, mut rows, mut random) = (Recorder::deaf(), Rows::default(), Random::new(5));
        let mut found: BTreeMap<&'static str, BTreeSet<(bool, u64)>> = BTreeMap::new();
        for number in 0..12_000 {
            let (kind, input) = workload.draw(&mut random);
            let before = engine.counts(&worker).round_trips;
            let mut tx = Tx::new(session.begin().await.unwrap(), &mut log, &mut rows);
            let _: Effect = workload.attempt(&mut tx, &input).await.unwrap();
            let time = tx.commit().await.unwrap();
            let trips = engine.counts(&worker).round_trips - before;
            if number > 10_000 {
                // Addresses are known by now.
                found.entry(workload.kinds()[kind]).or_default().insert((time.is_some(), trips));
            }
            // The locks are given back behind the report.
            worker.sleep(std::time::Duration::from_micros(50)).await;
        }
        found
    })
}

/// Steps, one more where something is only read and something written, and one to install.
#[test]
fn transactions_take_as_many_round_trips_as_the_protocol_says() {
    let bank = round_trips(&SmallBank::new(1000));
    let only = |trips: &[(bool, u64)]| trips.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(bank["amalgamate"], only(&[(true, 2)]));
    assert_eq!(bank["balance"], only(&[(false, 1)]));
    assert_eq!(bank["deposit-checking"], only(&[(true, 2)]));
    assert!(bank["send-payment"].is_subset(&only(&[(true, 2), (false, 1)])));
    assert_eq!(bank["transact-savings"], only(&[(true, 2)]));
    assert_eq!(bank["write-check"], only(&[(true, 3)]), "the savings are only read");
    let tatp = round_trips(&Tatp::new(1000));
    assert_eq!(tatp["get-subscriber-data"], only(&[(false, 1)]));
    assert_eq!(tatp["get-access-data"], only(&[(false, 1)]));
    assert_eq!(tatp["get-new-destination"], only(&[(false, 1)]));
    assert_eq!(tatp["update-subscriber-data"], only(&[(true, 2), (false, 1)]));
    // The number is read first, and only read: two steps, a second look, and the install.
    assert_eq!(tatp["update-location"], only(&[(true, 4)]));
    assert_eq!(tatp["insert-call-forwarding"], only(&[(true, 4), (false, 2)]));
    assert_eq!(tatp["delete-call-forwarding"], only(&[(true, 4), (false, 2)]));
}
