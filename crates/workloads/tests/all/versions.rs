//! What versions are worth, and what they cost: simulated on connectx-5 (`farmv2.txt` §5.2, §5.3, Fig. 15).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside_sim::{Faults, Profile, Sim};
use farside_workloads::driver::{Plan, Tally, Until};
use farside_workloads::engine::{Limits, OldVersions, SimTables};
use farside_workloads::load::{Kvs, MultiGet, Workload};
use farside_workloads::trial::simulate;

const MACHINES: usize = 2;
const THREADS: usize = 4;

/// As many as it takes until more of them do not help.
const COORDINATORS: usize = 16;

fn run<W: Workload + Send + 'static>(
    workload: W,
    span: Duration,
    change: impl FnOnce(&mut Limits),
) -> Tally {
    let profile = Profile::named("connectx-5").expect("a profile of the table");
    let sim = Rc::new(Sim::new(profile, 1, Faults::none()));
    let engine = SimTables::new(&sim, 3, None).with_real_clocks().with_limits(|limits| {
        *limits = Limits::default();
        change(limits);
    });
    let plan = Plan {
        threads: MACHINES * THREADS,
        coordinators: COORDINATORS,
        until: Until::Time(span),
        warmup: span / 10,
        rate: None,
        drops: false,
        seed: 1,
    };
    let thread = |number: usize| engine.add_thread((number / THREADS) as u64);
    let ran = simulate(&sim, &thread, &engine, &Arc::new(workload), &plan, None).unwrap();
    ran.invariants.unwrap();
    ran.tally
}

/// Nobody looks for an old version.
fn single_version(limits: &mut Limits) {
    limits.old_versions = OldVersions::None;
}

fn without_opacity(limits: &mut Limits) {
    limits.protocol.opacity = false;
}

/// How many rows are read in a second.
fn long_reads(objects: u64, change: impl FnOnce(&mut Limits)) -> (f64, Tally) {
    let keys = 50_000;
    let span = Duration::from_micros(5_000 + objects * 4);
    let tally = run(MultiGet::new(keys, 40, objects), span, change);
    (objects as f64 * tally.kinds[0].committed as f64 / tally.seconds(), tally)
}

/// With old versions, readers are not disturbed by writers, however long they read.
#[test]
fn long_reads_are_as_fast_as_short_ones_with_old_versions_only() {
    let ratio = |change: fn(&mut Limits)| {
        let ((short, _), (long, tally)) = (long_reads(10, change), long_reads(10_000, change));
        (long / short, tally.kinds[0].aborted)
    };
    let (many, aborted) = ratio(|_| {});
    let (single, _) = ratio(single_version);
    let (baseline, _) = ratio(without_opacity);
    println!(
        "reads of 10,000 rows beside reads of 10: {many:.2} with old versions, {single:.2} with one, \
         {baseline:.2} without opacity (simulated, connectx-5)"
    );
    assert_eq!(aborted, 0, "readers are never aborted");
    assert!(many > 0.8 && single < 0.5 && baseline < 0.5);
}

/// All that is read is of one moment, and old versions are kept: at low contention that costs next to nothing.
#[test]
fn opacity_and_old_versions_cost_little() {
    let rate = |change: fn(&mut Limits)| {
        let tally =
            run(Kvs::new(50_000, 40, 0.0, 6, 4).mixing(50), Duration::from_millis(4), change);
        tally.committed() as f64 / tally.seconds()
    };
    let usual = rate(|_| {});
    let (opacity, old) = (rate(without_opacity) / usual, rate(single_version) / usual);
    println!("without opacity {opacity:.3}, without old versions {old:.3} (simulated, connectx-5)");
    assert!(opacity < 1.04 && old < 1.04);
}

/// Readers of what is written all the time wait now and then, or go back to an older version: they are not aborted.
#[test]
fn readers_are_not_aborted_in_a_storm_of_writes() {
    let tally = run(MultiGet::new(40, 40, 20), Duration::from_millis(5), |_| {});
    let readers = &tally.kinds[0];
    let share = |count: u64| 100.0 * count as f64 / readers.committed as f64;
    println!(
        "{} readers, {} updates: {:.1} % waited, {:.1} % read older versions, {} attempts aborted \
         (simulated, connectx-5)",
        readers.committed,
        tally.kinds[1].committed,
        share(readers.waited),
        share(readers.hopped),
        readers.aborted,
    );
    assert!(readers.committed > 100 && readers.aborted == 0);
    assert!(readers.waited > 0 && readers.hopped > 0);
}
