//! A model of the commit protocol: writers, a reader, repairers and a change of the configuration,
//! each verb at each replica a step of its own, and every order of steps that can be. With all
//! rules nothing is broken; without any of them something is.
//!
//! `cargo test --test protocol_model -- --nocapture` tells how many states there are; with
//! `FARSIDE_RUNS` set also the shortest run that breaks each rule. The largest searches are run
//! with `FARSIDE_LARGE=1`, in a release build.

#[path = "protocol_model/reader.rs"]
mod reader;
#[path = "protocol_model/repairer.rs"]
mod repairer;
#[path = "protocol_model/rules.rs"]
mod rules;
#[path = "protocol_model/search.rs"]
mod search;
#[path = "protocol_model/step.rs"]
mod step;
#[path = "protocol_model/world.rs"]
mod world;
#[path = "protocol_model/writer.rs"]
mod writer;

use std::time::Instant;

use rules::{Broken, CALM, ONLY_X, ONLY_Y, Rule, Scope, XY};

/// Everybody lives.
const LIVING: Scope = Scope { name: "two writers and a reader", reader: true, ..CALM };

/// The first writer dies anywhere; two repairers race, and one of them may die.
const DEATH: Scope = Scope {
    name: "a writer dies, of two repairers one may",
    dies: [true, false],
    repairs: [Some(0), Some(0)],
    repairer_dies: true,
    ..CALM
};

/// The same with a smaller second writer, which can go on when the first has given back one object.
const SMALL_DEATH: Scope = Scope { writes: [XY, ONLY_Y], ..DEATH };

/// One object only.
const TINY_DEATH: Scope = Scope { writes: [ONLY_Y, ONLY_Y], repairer_dies: false, ..DEATH };

/// Somebody reads while a writer dies and is repaired.
const READ_DEATH: Scope = Scope {
    name: "a writer dies, somebody reads",
    repairs: [Some(0), None],
    repairer_dies: false,
    reader: true,
    ..SMALL_DEATH
};

const BOTH_DIE: Scope =
    Scope { name: "both writers die", dies: [true; 2], repairs: [Some(0), Some(1)], ..CALM };

/// The same thread runs one transaction after the other.
const ONE_THREAD: Scope = Scope {
    name: "a thread dies between two transactions",
    one_thread: true,
    writes: [XY, ONLY_X],
    ..BOTH_DIE
};

const TORN: Scope = Scope { name: "WRITEs are torn", tears: true, ..SMALL_DEATH };

const TORN_READ: Scope =
    Scope { name: "WRITEs are torn, somebody reads", tears: true, ..READ_DEATH };

/// A writer that lives is taken for dead.
const SUSPICION: Scope = Scope {
    name: "a writer is suspected",
    suspected: [true, false],
    repairs: [Some(0), None],
    ..CALM
};

const READ_SUSPICION: Scope =
    Scope { name: "a writer is suspected, somebody reads", reader: true, ..SUSPICION };

const BOTH_SUSPECTED: Scope = Scope {
    name: "both writers are suspected",
    suspected: [true; 2],
    repairs: [Some(0), Some(1)],
    ..CALM
};

/// Queues break, too.
const BROKEN_QUEUES: Scope =
    Scope { name: "a writer is suspected, queues break", breaks: true, ..SUSPICION };

/// A node fails while a writer is suspected.
const FAILURE: Scope =
    Scope { name: "a writer is suspected, a node fails", fails: true, ..SUSPICION };

/// A node fails while a writer and a repairer die.
const FAILURE_AND_DEATH: Scope =
    Scope { name: "a writer, a repairer and a node die", fails: true, ..SMALL_DEATH };

/// One object, and a node fails.
const PROMOTION: Scope =
    Scope { name: "one object, a node fails", writes: [ONLY_X, ONLY_X], fails: true, ..CALM };

/// A node is taken for failed and lives: whoever does not know of that still uses it.
const REMOVAL: Scope =
    Scope { name: "a writer is suspected, a node is removed", removed: true, ..SUSPICION };

const REMOVAL_AND_DEATH: Scope =
    Scope { name: "a writer and a repairer die, a node is removed", removed: true, ..SMALL_DEATH };

const REMOVAL_AND_READ: Scope = Scope {
    name: "a node is removed, somebody reads",
    writes: [XY, ONLY_Y],
    removed: true,
    reader: true,
    ..CALM
};

/// Repairers take the newest configuration after they have fenced.
const NEWEST: Scope = Scope {
    newest: true,
    name: "a writer is suspected, a node is removed, repair by the newest configuration",
    ..REMOVAL
};

const NEWEST_AND_DEATH: Scope = Scope {
    newest: true,
    name: "a writer and a repairer die, a node is removed, repair by the newest configuration",
    ..REMOVAL_AND_DEATH
};

fn explore(scope: Scope) -> Option<Broken> {
    let start = Instant::now();
    let found = search::search(&scope);
    let seconds = start.elapsed().as_secs_f64();
    let rule = scope.without.map_or("all rules".into(), |rule| format!("without {rule:?}"));
    let end = match &found.broken {
        None => "nothing is broken".into(),
        Some((broken, run)) => format!("{broken}, after {} steps", run.len()),
    };
    let [first, second] = scope.writes.map(|writes| ["none", "X", "Y", "XY"][usize::from(writes)]);
    let name = format!("{} ({first}, {second})", scope.name);
    println!("{name}, {rule}: {} states, {seconds:.1} s: {end}", found.states);
    let Some((broken, run)) = found.broken else {
        // Nothing is broken, and that is not because nothing happens.
        let repairs = scope.repairs.iter().any(Option::is_some);
        let moves = scope.fails || scope.removed;
        assert_eq!(found.sights, [true, repairs, repairs, moves, scope.reader], "{scope:?}");
        return None;
    };
    if scope.without.is_none() || std::env::var_os("FARSIDE_RUNS").is_some() {
        run.iter().for_each(|step| println!("    {step}"));
    }
    Some(broken)
}

fn hold(scopes: &[Scope]) {
    for scope in scopes {
        assert_eq!(explore(*scope), None, "{scope:?}");
    }
}

/// Something is broken without a rule, and nothing with it.
fn needed(rules: &[(Rule, Scope, Broken)]) {
    for (rule, scope, broken) in rules {
        // What is done is worse than what is said.
        let outcomes = *broken == Broken::TwoOutcomes;
        let scope = Scope { outcomes, ..scope.without(*rule) };
        assert_eq!(explore(scope), Some(*broken), "{scope:?}");
    }
}

#[test]
fn nothing_is_broken_while_everybody_lives() {
    hold(&[LIVING, Scope { writes: [XY, ONLY_Y], ..LIVING }]);
}

#[test]
fn nothing_is_broken_when_writers_and_repairers_die() {
    hold(&[DEATH, SMALL_DEATH, TINY_DEATH, READ_DEATH, BOTH_DIE, ONE_THREAD, TORN]);
    hold(&[TORN_READ]);
}

#[test]
fn nothing_is_broken_when_the_living_are_taken_for_dead() {
    hold(&[SUSPICION, BOTH_SUSPECTED, BROKEN_QUEUES]);
    hold(&[Scope { writes: [XY, ONLY_Y], ..READ_SUSPICION }]);
}

#[test]
fn nothing_is_broken_when_a_node_fails() {
    hold(&[FAILURE, FAILURE_AND_DEATH, PROMOTION]);
    let name = "a writer is suspected, queues break, a node fails";
    hold(&[Scope { name, writes: [XY, ONLY_Y], breaks: true, ..FAILURE }]);
}

#[test]
fn nothing_is_broken_when_a_node_is_removed_that_lives() {
    hold(&[REMOVAL, REMOVAL_AND_DEATH, REMOVAL_AND_READ]);
    hold(&[NEWEST, NEWEST_AND_DEATH]);
}

/// Where repairers take the newest configuration, nobody need wait for repairs before that counts.
#[test]
fn the_newest_configuration_need_not_wait_for_repairs() {
    hold(&[NEWEST, NEWEST_AND_DEATH].map(|scope| scope.without(Rule::CountsAfterRepairs)));
}

#[test]
fn nothing_is_broken_in_the_largest_worlds() {
    // Minutes, and some gigabytes: only where somebody asks for it.
    if std::env::var_os("FARSIDE_LARGE").is_none() {
        return;
    }
    let read = |name, scope| Scope { name, reader: true, ..scope };
    let both =
        |name, scope| Scope { name, suspected: [true; 2], repairs: [Some(0), Some(1)], ..scope };
    hold(&[Scope { writes: [XY, XY], ..READ_DEATH }, READ_SUSPICION]);
    let queues = read("a writer is suspected, queues break, somebody reads", BROKEN_QUEUES);
    hold(&[Scope { writes: [XY, ONLY_Y], ..queues }]);
    hold(&[read("a writer is suspected, a node fails, somebody reads", FAILURE)]);
    hold(&[read("a writer is suspected, a node is removed, somebody reads", REMOVAL)]);
    hold(&[both("both writers are suspected, a node fails", FAILURE)]);
    hold(&[both("both writers are suspected, a node is removed", REMOVAL)]);
}

#[test]
fn rules_of_writers_are_needed() {
    let small = Scope { writes: [XY, ONLY_Y], ..LIVING };
    needed(&[
        (Rule::TimeAfterAllBits, small, Broken::MissedCommit),
        (Rule::NeverSteal, small, Broken::MissedCommit),
        (Rule::ReleaseOwnOnly, small, Broken::MissedCommit),
        (Rule::ReleaseAfterAcks, SMALL_DEATH, Broken::ReplicasDiffer),
        (Rule::ReportAfterAcks, SMALL_DEATH, Broken::ReportedIsLost),
        (Rule::ReuseAfterReleases, ONE_THREAD, Broken::ReplicasDiffer),
    ]);
}

#[test]
fn rules_of_readers_are_needed() {
    let small = Scope { writes: [XY, ONLY_Y], ..LIVING };
    needed(&[
        (Rule::ReaderWaits, small, Broken::MissedCommit),
        (Rule::LockReadFirst, small, Broken::MissedCommit),
        (Rule::ReadWhole, TORN_READ, Broken::TornRead),
    ]);
}

#[test]
fn rules_of_repairers_are_needed() {
    needed(&[
        (Rule::FenceFirst, SMALL_DEATH, Broken::ReplicasDiffer),
        (Rule::ExclusiveClaim, TINY_DEATH, Broken::ReplicasDiffer),
        (Rule::RestoreAllFirst, SMALL_DEATH, Broken::HalfCommitted),
        (Rule::RecordWithN, SMALL_DEATH, Broken::HalfCommitted),
        (Rule::DecideByTime, SMALL_DEATH, Broken::ReportedIsLost),
        (Rule::NothingLeftToDecide, DEATH, Broken::TwoOutcomes),
        (Rule::DecideByWhole, TORN, Broken::TornLeft),
        (Rule::RestoreWhateverIsThere, TORN, Broken::TornLeft),
    ]);
}

#[test]
fn rules_of_configurations_are_needed() {
    needed(&[
        (Rule::ReadBack, FAILURE, Broken::ReportedIsLost),
        (Rule::ReadBack, NEWEST, Broken::ReportedIsLost),
        (Rule::TimeWhenItCounts, REMOVAL_AND_READ, Broken::NotStrict),
        (Rule::ReportWhenItCounts, REMOVAL, Broken::ReportedIsLost),
        (Rule::AbortOnPromotion, PROMOTION, Broken::ReportedIsLost),
        (Rule::CountsAfterRepairs, REMOVAL, Broken::ReportedIsLost),
        (Rule::OrphansWhereRepaired, NEWEST, Broken::HalfCommitted),
    ]);
}
