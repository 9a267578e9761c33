//! Round trips, verbs and lock durations of each preset, as the papers count them (`ford.txt` §4.2, §4.6, Figs. 2, 5, 6, 8, 9, 10).

use farside_fabric::Persistence;
use farside_sim::Profile;
use farside_txn::{EXECUTE, INSTALL, LOG, Protocol, RELEASE, Technique, VALIDATE};
use farside_workloads::shapes::{Bed, Shape, Taken, measure};

const UPDATE: Shape = Shape { updates: 1, reads: 0 };
const UPDATES: Shape = Shape { updates: 3, reads: 0 };
const MIXED: Shape = Shape { updates: 1, reads: 1 };
const READ: Shape = Shape { updates: 0, reads: 1 };
const READS: Shape = Shape { updates: 0, reads: 3 };

fn bed(protocol: Protocol) -> Bed {
    let profile = Profile::named("connectx-5").expect("a profile of the table");
    Bed { profile, protocol, copies: 2, durable: false }
}

fn take(protocol: Protocol, shape: Shape) -> Taken {
    measure(bed(protocol), shape).unwrap()
}

fn without(protocol: Protocol, technique: Technique) -> Protocol {
    protocol.without(technique).expect("it has that")
}

#[test]
fn every_preset_takes_the_round_trips_of_its_paper() {
    let trips =
        |protocol| [UPDATE, UPDATES, MIXED, READ, READS].map(|it| take(protocol, it).round_trips);
    assert_eq!(trips(Protocol::FARSIDE), [2, 2, 3, 1, 1]);
    assert_eq!(trips(Protocol::FARSIDE_LV), [2, 2, 2, 1, 1]);
    assert_eq!(trips(Protocol::FORD), [2, 2, 3, 2, 2], "also what is read alone is validated");
    assert_eq!(trips(Protocol::FORD_LV), [2, 2, 2, 1, 1]);
    assert_eq!(
        trips(Protocol::FORD_LV_NODE),
        [2, 2, 3, 2, 2],
        "one of three is to a node that is near"
    );
    assert_eq!(trips(Protocol::FARM), [5, 5, 5, 2, 2]);
    assert_eq!(
        trips(Protocol::DRTM_H),
        [4, 4, 5, 2, 2],
        "what is only read is looked at after all locks"
    );
}

#[test]
fn every_technique_is_worth_what_its_paper_says() {
    let trips = |protocol, technique, shape| take(without(protocol, technique), shape).round_trips;
    assert_eq!(
        trips(Protocol::FORD, Technique::HitchhikedLocking, UPDATE),
        4,
        "read, lock, validate, commit"
    );
    assert_eq!(trips(Protocol::FORD, Technique::CoalescentCommit, UPDATE), 3);
    assert_eq!(trips(Protocol::FORD, Technique::ParallelUndo, UPDATE), 3);
    assert_eq!(trips(Protocol::FARSIDE, Technique::CombinedUndo, UPDATE), 3);
    assert_eq!(trips(Protocol::FORD_LV, Technique::VersionCache, MIXED), 3);
    assert_eq!(trips(Protocol::FARSIDE, Technique::Opacity, READS), 2);
    assert!(trips(Protocol::FORD, Technique::AddressCache, UPDATE) > 2);
    let reads_backups = |protocol| {
        let taken = measure(Bed { copies: 2, ..bed(protocol) }, Shape { updates: 0, reads: 32 });
        taken.unwrap().round_trips
    };
    assert_eq!(reads_backups(without(Protocol::FORD, Technique::BackupReads)), 2);
}

#[test]
fn verbs_are_those_of_the_papers() {
    let ford = take(Protocol::FORD, UPDATE);
    let execute = ford.phase(EXECUTE);
    assert_eq!((execute.cas, execute.reads), (2, 1), "a CAS for each copy, a READ at the primary");
    assert_eq!(ford.phase(LOG).writes, 2, "an undo record for each copy");
    let commit = ford.phase(INSTALL);
    assert_eq!((commit.writes, commit.cas, commit.flushes), (2, 0, 0));
    assert_eq!(ford.phase(RELEASE).cas, 2);
    assert_eq!(
        take(Protocol::FORD, MIXED).phase(VALIDATE).reads,
        1,
        "lock and version, in one line"
    );
    let profile = Profile { line_atomic: false, ..bed(Protocol::FORD).profile };
    let words = measure(Bed { profile, ..bed(Protocol::FORD) }, MIXED).unwrap();
    assert_eq!(words.phase(VALIDATE).reads, 2, "the lock, and then the version");
    assert_eq!(take(Protocol::FORD_LV, MIXED).phase(VALIDATE).reads, 0);
    let near = take(Protocol::FORD_LV_NODE, MIXED);
    assert_eq!(near.phase(VALIDATE).reads, 1, "a place of the cache, and no copy");
    assert_eq!(
        (near.phase(EXECUTE).faa, near.phase(RELEASE).faa),
        (1, 1),
        "marked, and not marked"
    );
    assert_eq!(near.phase(INSTALL).writes, 3, "a body for each copy, and a print");

    let farside = take(Protocol::FARSIDE, UPDATE);
    assert_eq!(farside.phase(INSTALL).writes, 4, "a record and a body for each copy");
    assert_eq!(farside.phase(INSTALL).doorbells, 2);

    let farm = take(Protocol::FARM, UPDATE);
    assert_eq!((farm.phase(EXECUTE).reads, farm.phase(EXECUTE).cas), (1, 2));
    assert_eq!(farm.phase(VALIDATE).reads, 1);
    assert_eq!(
        (farm.phase(INSTALL).writes, farm.phase(INSTALL).cas),
        (4, 1),
        "unlocked with the body"
    );
    assert_eq!(farm.phase(RELEASE).cas, 1, "the backup");
    let drtm_h = take(Protocol::DRTM_H, UPDATE);
    assert_eq!((drtm_h.phase(EXECUTE).reads, drtm_h.phase(EXECUTE).cas), (2, 2));
    assert_eq!(drtm_h.phase(VALIDATE).reads, 0);
}

#[test]
fn locks_are_held_for_the_phases_of_the_papers() {
    let phases = |protocol, shape| {
        let holding = take(protocol, shape).holding;
        assert_eq!(holding.transactions, 1);
        holding.phases
    };
    assert_eq!(phases(Protocol::FARM, UPDATE), 4);
    assert_eq!(phases(Protocol::DRTM_H, UPDATE), 3);
    assert_eq!(phases(Protocol::FORD, UPDATE), 3);
    assert_eq!(phases(Protocol::FORD, MIXED), 4);
    assert_eq!(phases(Protocol::FORD_LV, MIXED), 3);
    assert_eq!(phases(Protocol::FARSIDE, UPDATE), 3);
    // What is to be flushed first is unlocked in the background.
    let profile = Profile::named("tcp-10g+pm").expect("a profile of the table");
    let durable = Bed { profile, durable: true, ..bed(Protocol::FARM) };
    assert_eq!(measure(durable, UPDATE).unwrap().holding.phases, 5);
}

#[test]
fn only_what_the_protocol_says_is_flushed() {
    let profile = Profile::named("tcp-10g+pm").expect("a profile of the table");
    let take =
        |protocol, shape| measure(Bed { profile, durable: true, ..bed(protocol) }, shape).unwrap();
    let flushes = |protocol, shape| {
        let taken = take(protocol, shape);
        (taken.round_trips, taken.phase(INSTALL).flushes)
    };
    assert_eq!(flushes(Protocol::FARSIDE, UPDATE), (2, 2), "each node once");
    assert_eq!(flushes(Protocol::FORD, UPDATE), (2, 1), "the backup alone");
    let full = without(Protocol::FORD, Technique::SelectiveFlush);
    assert_eq!(flushes(full, UPDATE), (3, 2));
    assert_eq!(flushes(full, Shape { updates: 2, reads: 0 }), (3, 4), "each write");
    // Where persistence has no order, records are there before bodies.
    let profile = Profile::named("connectx-5+pm").expect("a profile of the table");
    let profile = Profile { persistence: Persistence::Unordered, ..profile };
    let unordered = Bed { profile, durable: true, ..bed(Protocol::FORD) };
    let taken = measure(unordered, MIXED).unwrap();
    assert_eq!(taken.round_trips, 3, "they are flushed while it validates");
}
