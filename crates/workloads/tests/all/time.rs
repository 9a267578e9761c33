//! Time and versions, in the simulator: levels, waits, snapshots that are handed on, and how much of the past is kept.

use crate::common;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::Worker;
use farside_index::{Client, Error, Table as Rows};
use farside_sim::{Faults, ProcessId, Profile, Sim};
use farside_txn::{Level, OldVersions, Protocol as Phases, Trap, TxnError};
use farside_workloads::engine::SimTables;
use farside_workloads::load::Kind;
use farside_workloads::losses::{LEASE, Loss, Victims, lose};
use farside_workloads::trial::{Protocol, Trial};

fn trial(seed: u64, level: Level, trap: Option<Trap>) -> Trial {
    let faults: Faults = "reorder,tear,delay=2000".parse().expect("names of faults");
    Trial {
        seed,
        txns: 200,
        protocol: Protocol::Farside { phases: Phases::FARSIDE, copies: 3, trap, level },
        faults,
    }
}

/// Whatever a level promises holds; and weaker ones are not stronger than they say.
#[test]
fn each_level_keeps_its_promise() {
    for level in [Level::Serializable, Level::StrictSnapshot, Level::Snapshot] {
        common::all_are_sound(Kind::ListAppend, &Kind::ListAppend.small(), 20, |seed| {
            trial(seed, level, None)
        });
    }
    let skewed = (1..100).any(|seed| {
        let strict = |outcome: farside_workloads::trial::Outcome| {
            let report = farside_workloads::check::check(
                &outcome.history[..],
                farside_workloads::check::Level::Serializable,
            );
            report.is_ok_and(|report| !report.anomalies.is_empty())
        };
        let trial = trial(seed, Level::StrictSnapshot, None);
        let run = Kind::ListAppend.visit(&common::tight(Kind::ListAppend), trial).unwrap();
        run.is_ok_and(strict)
    });
    assert!(skewed, "snapshot isolation allows write skew, which never happened");
}

/// `farmv2.txt` §7.3: without the wait, with one that is before the locks, or one that validation does not wait for.
#[test]
fn each_wait_is_there_for_something() {
    common::each_is_needed(&Trap::OF_TIME, |trap, seed| {
        [Kind::ListAppend, Kind::Kvs, Kind::SmallBank].into_iter().find_map(|kind| {
            let trial = Trial { txns: 1000, ..trial(4 * seed + 3, Level::Strict, Some(trap)) };
            Some((kind, common::goes_wrong(kind, &common::tight(kind), trial)?))
        })
    });
}

/// With many machines the master is asked less often by each, which costs little.
#[test]
fn many_machines_know_the_time_nearly_as_well_as_a_few() {
    let profile = Profile::named("connectx-5").expect("a profile of the table");
    let few = farside_workloads::clocks::mean_uncertainty(profile, 3, 1);
    let many = farside_workloads::clocks::mean_uncertainty(profile, 300, 1);
    println!("{few:?} with 3 machines, {many:?} with 300");
    assert!(few < Duration::from_micros(3) && many < 3 * few);
}

/// A few machines with a table.
struct World {
    sim: Rc<Sim>,
    machines: Vec<(ProcessId, Worker, Rc<Client>)>,
    rows: Rows,
}

const KEYS: u64 = 8;

impl World {
    fn new(
        seed: u64,
        count: u64,
        with: impl FnOnce(SimTables) -> SimTables,
        trap: Option<Trap>,
    ) -> Self {
        let profile = Profile::named("connectx-5").expect("a profile of the table");
        let sim = Rc::new(Sim::new(profile, seed, Faults::none()));
        let engine = with(SimTables::new(&sim, 2, trap));
        let machines: Vec<_> = (0..count)
            .map(|number| {
                let (process, worker) = engine.add_machine(number);
                let client = engine.client(&worker);
                (process, worker, client)
            })
            .collect();
        let (_, worker, client) = &machines[0];
        let rows = worker.block_on(async {
            let mut tx = client.begin().await.unwrap();
            let rows = tx.create_table("rows", &Default::default()).await.unwrap();
            for key in 0..KEYS {
                tx.put(&rows, &key.to_be_bytes(), &[0; 100]).await.unwrap();
            }
            tx.commit().await.unwrap();
            rows
        });
        World { sim, machines, rows }
    }

    /// Writes something to all keys.
    async fn write(&self, machine: usize, number: u64) -> Result<(), Error> {
        let mut tx = self.machines[machine].2.begin().await?;
        let mut value = [0; 100];
        value[..8].copy_from_slice(&number.to_be_bytes());
        let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
        let rows: Vec<_> = keys.iter().map(|key| (&key[..], &value[..])).collect();
        tx.put_many(&self.rows, &rows).await?;
        tx.commit().await.map(drop)
    }
}

/// What all rows say, one after the other, which must be the same.
async fn read(tx: &mut farside_index::Tx, rows: &Rows) -> Result<u64, Error> {
    let mut all = Vec::new();
    for key in 0..KEYS {
        let value = tx.get(rows, &key.to_be_bytes()).await?.unwrap_or_default();
        all.push(u64::from_be_bytes(value[..8].try_into().unwrap()));
    }
    tx.forget_reads();
    assert!(all.iter().all(|one| *one == all[0]), "of several moments: {all:?}");
    Ok(all[0])
}

/// A reader that never ends, and a writer: how much old versions take at the most, how the writer fares, and the reader.
fn stuck(old_versions: OldVersions, span: Duration) -> (u64, Vec<Error>, Result<u64, Error>) {
    const BOUND: u64 = 64 << 10;
    let world = World::new(
        1,
        2,
        |engine| {
            engine.with_limits(|limits| {
                limits.ring_bytes = 4 << 10;
                (limits.old_bytes, limits.old_versions) = (BOUND, old_versions);
            })
        },
        None,
    );
    let (_, reader, client) = &world.machines[1];
    let mut tx = reader.block_on(client.begin()).unwrap();
    reader.block_on(tx.take_snapshot()).unwrap();
    let (_, writer, _) = &world.machines[0];
    let (mut most, mut errors) = (0, Vec::new());
    writer.block_on(async {
        let start = writer.now();
        // As often as it takes to fill all there is soon, and then now and then.
        for number in 1.. {
            if writer.now() - start > span {
                break;
            }
            errors.extend(world.write(0, number).await.err());
            most = most.max(world.machines[0].2.agent().old_bytes());
            let pause = if number < 1000 { span / 100_000 } else { span / 2000 };
            writer.sleep(pause).await;
        }
    });
    assert!(most <= BOUND, "{old_versions:?}: {most} bytes");
    let read = reader.block_on(read(&mut tx, &world.rows));
    drop(tx);
    (most, errors, read)
}

/// For so long that everything has happened; `FARSIDE_VIRTUAL_SECONDS=3600` for an hour.
fn span() -> Duration {
    let seconds = std::env::var("FARSIDE_VIRTUAL_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

#[test]
fn old_versions_stay_within_their_bound() {
    let (most, errors, read) = stuck(OldVersions::Block, span());
    assert_eq!(read, Ok(0), "readers are not disturbed");
    assert!(
        most > 0 && errors.iter().any(|error| matches!(error, Error::Txn(TxnError::TimedOut(_))))
    );
    let (most, errors, read) = stuck(OldVersions::Abort, span());
    assert_eq!(read, Ok(0), "readers are not disturbed");
    assert!(
        most > 0 && errors.iter().all(|error| matches!(error, Error::Txn(TxnError::Conflict(_))))
    );
    let (_, errors, read) = stuck(OldVersions::Truncate, span());
    assert_eq!((read, errors), (Err(Error::Txn(TxnError::TooOld)), Vec::new()));
    let (most, errors, read) = stuck(OldVersions::None, span());
    assert_eq!((most, read, errors), (0, Err(Error::Txn(TxnError::TooOld)), Vec::new()));
    common::all_are_reached(&[
        "a writer is aborted for lack of room for old versions",
        "a writer waits for room for old versions",
        "old versions are given up",
        "the horizon moves on",
    ]);
}

/// One hands its snapshot on, and dies; the other begins with it some time later. Either that is refused, or it reads all of it.
fn hand_on(seed: u64, trap: Option<Trap>) -> Result<bool, String> {
    let lease = Duration::from_millis(2);
    let world = World::new(
        seed,
        3,
        |engine| engine.with_limits(|limits| limits.ring_bytes = 4 << 10).with_lease(lease),
        trap,
    );
    let (master, first, client) = &world.machines[1];
    let mut tx = first.block_on(client.begin()).unwrap();
    first.block_on(tx.take_snapshot()).unwrap();
    let moment = tx.snapshot().unwrap();
    std::mem::forget(tx);
    world.sim.kill(*master);
    let (_, writer, _) = &world.machines[0];
    let (_, other, client) = &world.machines[2];
    let client = Rc::clone(client);
    let rows = world.rows;
    let after = Duration::from_nanos(1_500_000 + seed * 7_919 % 1_000_000);
    let reading = other.spawn({
        let other = other.clone();
        async move {
            other.sleep(after).await;
            let mut tx = client.begin().await.unwrap();
            match tx.take_snapshot_of(moment).await {
                Err(Error::Txn(TxnError::TooOld)) => return Ok(false),
                taken => taken.unwrap(),
            }
            for _ in 0..20 {
                match read(&mut tx, &rows).await {
                    Ok(0) => {}
                    other => return Err(format!("{other:?}")),
                }
                other.sleep(Duration::from_micros(50)).await;
            }
            Ok(true)
        }
    });
    writer.block_on(async {
        for number in 1..400 {
            let _ = world.write(0, number).await;
            writer.sleep(Duration::from_micros(10)).await;
        }
        reading.await
    })
}

/// Reads one row, forgets what it has read, and reads another, while both are written together.
fn forgetful(seed: u64) -> Result<(), String> {
    // Clocks that are so far apart that what is committed later may be of before.
    let world = World::new(seed, 2, |engine| engine.with_clocks(60_000), None);
    let (_, reader, client) = &world.machines[1];
    let (client, rows) = (Rc::clone(client), world.rows);
    let over = Rc::new(std::cell::Cell::new(false));
    let reading = reader.spawn({
        let over = Rc::clone(&over);
        async move {
            while !over.get() {
                let mut tx = client.begin().await.unwrap();
                let first = tx.get(&rows, &0u64.to_be_bytes()).await.unwrap();
                tx.forget_reads();
                let second = tx.get(&rows, &1u64.to_be_bytes()).await.unwrap();
                if first != second {
                    return Err(format!("{first:?} and {second:?}"));
                }
            }
            Ok(())
        }
    });
    let (_, writer, _) = &world.machines[0];
    writer.block_on(async {
        for number in 1..200 {
            // Who begins now finds nothing that is locked, or new.
            let pause = Duration::from_nanos(10_000 + writer.random_below(10_000));
            writer.sleep(pause).await;
            world.write(0, number).await.unwrap();
        }
        over.set(true);
        reading.await
    })
}

/// What an early snapshot has shown was forgotten, and so was not looked at again when the snapshot moved on.
#[test]
fn whoever_forgets_what_it_has_read_reads_from_one_moment_all_the_same() {
    (1..=20).for_each(|seed| assert_eq!(forgetful(seed), Ok(()), "seed {seed}"));
}

/// One who will write has seen a row by an early snapshot, the row changes, and it wants a later one. It may begin to read again only as long as it
/// has seen nothing: when that was forgotten it looked for a later snapshot for ever.
#[test]
fn a_writer_whose_row_has_changed_gives_up() {
    let world = World::new(1, 4, |engine| engine.with_clocks(60_000), None);
    let (_, writer, _) = &world.machines[0];
    // Its clock is ahead: what is committed next may be of before it began.
    let (_, worker, client) = &world.machines[3];
    writer.block_on(writer.sleep(Duration::from_millis(1)));
    let (key, rows) = (0u64.to_be_bytes(), world.rows);
    let mut tx = worker.block_on(async {
        // Where the row is, so that the first step finds it.
        client.begin().await.unwrap().get(&rows, &key).await.unwrap();
        let mut tx = client.begin().await.unwrap();
        tx.expect_writes();
        tx.get(&rows, &key).await.unwrap();
        tx
    });
    writer.block_on(world.write(0, 1)).unwrap();
    let taken = worker.block_on(tx.take_snapshot());
    assert!(matches!(taken, Err(Error::Txn(TxnError::Conflict(_)))), "{taken:?}");
}

#[test]
fn a_snapshot_that_was_handed_on_is_whole_or_refused() {
    let begun =
        (1..60).map(|seed| hand_on(seed, None).unwrap_or_else(|why| panic!("{seed}: {why}")));
    let begun: Vec<bool> = begun.collect();
    assert!(begun.contains(&true) && begun.contains(&false), "{begun:?}");
    let wrong = (1..200).find_map(|seed| hand_on(seed, Some(Trap::OneRound)).err());
    println!("with one round: {}", wrong.expect("goes wrong"));
}

#[test]
fn the_clock_goes_on_when_its_node_dies() {
    let profile = Profile::named("connectx-5").expect("a profile of the table");
    for other in [false, true] {
        let lose = |seed| lose(profile, Victims { home: true, other }, seed);
        let losses: Vec<_> = (1..20).map(|seed| lose(seed).unwrap()).collect();
        let leases = |loss: &Loss| loss.clock_off.as_secs_f64() / LEASE.as_secs_f64();
        let mut off: Vec<f64> = losses.iter().map(leases).collect();
        off.sort_by(f64::total_cmp);
        println!("with another one {other}: without a time for {off:.2?} leases");
        assert!(losses.iter().all(|loss| loss.recovery().is_some()), "as fast as before");
        // A lease, and three trips to the store of 100 us each (`farmv2.txt` §4.3); its manager died, too.
        assert!(off.last().is_some_and(|longest| *longest < 1.03), "{off:?}");
    }
}
