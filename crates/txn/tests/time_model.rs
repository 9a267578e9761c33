//! A model of time and versions: transactions whose clocks are uncertain, in every order of steps, with every time that they may
//! take for now; and of the safe point, with a snapshot that is handed on. With all rules nothing is broken; without any of them
//! something is. (`protocol_model.rs` has replicas, deaths and repair, and knows the time.)
//!
//! Column groups are objects of their own, so they are in it: each scene reads and writes two of them.

#[path = "time_model/rules.rs"]
mod rules;
#[path = "time_model/safe_point.rs"]
mod safe_point;
#[path = "time_model/search.rs"]
mod search;
#[path = "time_model/transactions.rs"]
mod transactions;

use rules::Rule;
use transactions::{Plan, World};

const X: u8 = 1;
const Y: u8 = 2;

const fn writes(objects: u8) -> Plan {
    Plan { reads: 0, writes: objects }
}

const fn reads(objects: u8) -> Plan {
    Plan { reads: objects, writes: 0 }
}

const SCENES: [(&str, &[Plan]); 6] = [
    ("a writer of both, and a reader of both", &[writes(X | Y), reads(X | Y)]),
    ("one reads and writes, another writes both", &[Plan { reads: Y, writes: X }, writes(X | Y)]),
    ("two writers of one, and a reader", &[writes(X), writes(X), reads(X)]),
    ("write skew", &[Plan { reads: Y, writes: X }, Plan { reads: X, writes: Y }]),
    ("each writes a group, and somebody reads both", &[writes(X), writes(Y), reads(X | Y)]),
    (
        "one reads and writes, another writes what it reads",
        &[Plan { reads: Y, writes: X }, writes(Y), reads(X | Y)],
    ),
];

#[test]
fn with_all_rules_nothing_is_broken() {
    for (name, plans) in SCENES {
        for world in [World::new(plans, None), World::new(plans, None).sharing()] {
            let found = search::search(world);
            println!("{name}: {} states", found.states);
            assert_eq!(found.broken, None, "{name}");
            assert!(found.states > 1000);
        }
    }
}

#[test]
fn every_rule_of_time_prevents_something() {
    for rule in Rule::ALL {
        let broken = SCENES.into_iter().find_map(|(name, plans)| {
            let world = World::new(plans, Some(rule));
            let world = if rule.is_of_sharing() { world.sharing() } else { world };
            search::search(world).broken.map(|broken| (name, broken))
        });
        let (name, (what, run)) = broken.unwrap_or_else(|| panic!("{rule:?} prevents nothing"));
        println!("without {rule:?}: {what} ({name}), after {} steps: {run:?}", run.len());
    }
}

#[test]
fn a_snapshot_that_is_handed_on_is_whole_or_refused() {
    let found = search::search(safe_point::World::new(2));
    println!("two rounds: {} states", found.states);
    assert_eq!(found.broken, None);
    let (what, run) = search::search(safe_point::World::new(1)).broken.expect("one is not enough");
    println!("with one round: {what}, after {} steps: {run:?}", run.len());
}
