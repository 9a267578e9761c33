//! A simulated pool under faults.

use farside_sim::Faults;
use farside_workloads::pool::{Scenario, run};

#[test]
fn a_pool_survives_whatever_strikes_it() {
    let mut bad = 0;
    let range: Vec<u64> = std::env::var("SEEDS")
        .map(|s| s.split("..").map(|n| n.parse().unwrap()).collect())
        .unwrap_or(vec![1, 100]);
    let faults: Faults = std::env::var("FAULTS").map_or(Faults::none(), |f| f.parse().unwrap());
    let mut probes = std::collections::BTreeMap::new();
    for seed in range[0]..range[1] {
        let scenario = Scenario { seed, events: 12, faults, without: None };
        let outcome = run(&scenario, false);
        if let Some(why) = outcome.violation {
            bad += 1;
            println!(
                "{seed} {} writes, {} lost, {} changes, unserved {:?} {why:?}",
                outcome.writes, outcome.lost, outcome.changes, outcome.unserved
            );
        }
        probes = farside_fabric::probe::reached();
    }
    println!("{bad} bad {probes:#?}");
}
