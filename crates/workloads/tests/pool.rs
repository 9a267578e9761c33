//! A simulated pool under faults.

use farside_sim::Faults;
use farside_workloads::pool::{Scenario, run};

#[test]
fn a_pool_survives_whatever_strikes_it() {
    let mut bad = 0;
    for seed in 1..=200 {
        let scenario = Scenario { seed, events: 12, faults: Faults::none(), without: None };
        let outcome = run(&scenario, false);
        if let Some(why) = outcome.violation { bad += 1; println!("{seed} {} writes, {} lost, {} changes, unserved {:?} {why:?}", outcome.writes, outcome.lost, outcome.changes, outcome.unserved); }
    }
    println!("{bad} bad");
}
