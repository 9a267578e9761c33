//! The presets of the papers under faults: machines die, nodes die, verbs tear and are late. What commits is strictly serializable.

use farside_sim::Faults;
use farside_txn::{Level, Protocol as Phases, Technique, Trap};
use farside_workloads::load::Kind;
use farside_workloads::trial::{Protocol, Trial};

use crate::common;

fn trial(phases: Phases, faults: &str, trap: Option<Trap>, seed: u64) -> Trial {
    let faults: Faults = faults.parse().expect("names of faults");
    let protocol = Protocol::Farside { phases, copies: 3, trap, level: Level::Strict };
    Trial { seed, txns: 500, protocol, faults }
}

fn goes_wrong(phases: Phases, kind: Kind, seed: u64) -> Option<String> {
    match kind.visit(&kind.simulated(), trial(phases, "all", None, seed)).expect("a workload") {
        Ok(outcome) => outcome.wrong(),
        Err(failure) => Some(failure.to_string()),
    }
}

fn is_sound(phases: Phases, kind: Kind, seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let wrong = goes_wrong(phases, kind, seed);
        assert_eq!(wrong, None, "{} by {}, seed {seed}", kind.name(), phases.name);
    }
}

#[test]
fn what_ford_commits_is_strictly_serializable() {
    is_sound(Phases::FORD, Kind::ListAppend, 1..25);
    is_sound(Phases::FORD, Kind::SmallBank, 1..4);
}

#[test]
fn what_ford_commits_with_a_version_cache_is_strictly_serializable() {
    is_sound(Phases::FORD_LV, Kind::ListAppend, 1..25);
    is_sound(Phases::FORD_LV, Kind::SmallBank, 1..4);
}

#[test]
fn the_default_with_a_version_cache_is_strictly_serializable_and_opaque() {
    is_sound(Phases::FARSIDE_LV, Kind::ListAppend, 1..25);
    is_sound(Phases::FARSIDE_LV, Kind::Tatp, 1..9);
}

/// It does not wait for its commit time before it looks at the version cache: whoever is marked later commits later.
#[test]
fn who_shares_a_version_cache_shares_an_order_of_commit_times() {
    common::each_is_needed(&[Trap::TimesInNoOrder], |trap, seed| {
        [Kind::ListAppend, Kind::Kvs].into_iter().find_map(|kind| {
            let trial = trial(Phases::FARSIDE_LV, "reorder,tear,delay=2000", Some(trap), seed);
            let trial = Trial { txns: 1000, ..trial };
            Some((kind, common::goes_wrong(kind, &common::tight(kind), trial)?))
        })
    });
}

/// Also when the node with the cache dies, and comes back with nothing.
#[test]
fn what_ford_commits_with_a_version_cache_at_a_node_is_strictly_serializable() {
    is_sound(Phases::FORD_LV_NODE, Kind::ListAppend, 1..25);
    is_sound(Phases::FORD_LV_NODE, Kind::SmallBank, 1..4);
    common::all_are_reached(&[
        "a version is found in the cache of a node",
        "a version is not found in the cache of a node",
        "a place of the version cache is filled in",
    ]);
}

#[test]
fn each_rule_of_the_version_cache_at_a_node_is_there_for_something() {
    common::each_is_needed(&Trap::OF_VERSION_CACHE, |trap, seed| {
        [Kind::ListAppend, Kind::SmallBank].into_iter().find_map(|kind| {
            let trial = trial(Phases::FORD_LV_NODE, "all", Some(trap), seed);
            let trial = Trial { txns: 1000, ..trial };
            Some((kind, common::goes_wrong(kind, &common::tight(kind), trial)?))
        })
    });
}

#[test]
fn what_farm_commits_is_strictly_serializable() {
    is_sound(Phases::FARM, Kind::ListAppend, 1..25);
    is_sound(Phases::FARM, Kind::SmallBank, 1..4);
}

#[test]
fn what_drtm_h_commits_is_strictly_serializable() {
    is_sound(Phases::DRTM_H, Kind::ListAppend, 1..25);
    is_sound(Phases::DRTM_H, Kind::SmallBank, 1..4);
}

#[test]
fn a_technique_less_is_as_sound() {
    for preset in Phases::PRESETS {
        for technique in Technique::ALL {
            if let Some(phases) = preset.without(technique) {
                is_sound(phases, Kind::ListAppend, 30..32);
            }
        }
    }
}

/// Seeds that went wrong once.
#[test]
fn what_went_wrong_once_does_not_go_wrong_again() {
    // Read while it was locked: whoever had the lock had validated, and one who began after a third had ended read what was before.
    is_sound(Phases::FARM, Kind::ListAppend, [13]);
    // Backups, and with them copies in the making, were written before the primary: whoever made the copy took that back.
    is_sound(Phases::FARM, Kind::ListAppend, [110]);
    // A transaction without locks waited for one who seemed to be dead, gave back the place that it had allocated, and went on.
    is_sound(Phases::FARM, Kind::ListAppend, [255]);
    // Nobody met the lock of a dead one: all who found it were aborted at once.
    is_sound(Phases::FORD, Kind::ListAppend, [85]);
    // Records outside of the ring were written ahead of time, and their places given back as if they had not been.
    is_sound(Phases::FORD, Kind::SmallBank, [13]);
    // The version cache was told that nothing was written by one who had died in the middle of it.
    is_sound(Phases::FORD_LV, Kind::ListAppend, [2, 5]);
}
