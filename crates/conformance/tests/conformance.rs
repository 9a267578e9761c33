//! The suite on every backend, a test per case.

use std::path::Path;

use farside_conformance::{beds, cases, for_each_case, run};
use farside_sim::Faults;

fn check(fabric: &str, case: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_farside-conformance"));
    let bed = beds::fresh(fabric, program).expect("a bed");
    let case = cases::named(case).expect("listed");
    if let Err(error) = run(case, &*bed) {
        panic!("{fabric}: {error:#}");
    }
}

macro_rules! on_local {
    ($($module:ident: $name:ident),* $(,)?) => {
        mod local {
            $(#[test] fn $name() { super::check("local", stringify!($name)); })*
        }
    };
}
for_each_case!(on_local);

macro_rules! on_sim {
    ($($module:ident: $name:ident),* $(,)?) => {
        mod sim {
            $(#[test] fn $name() { super::check("sim:connectx-5", stringify!($name)); })*
        }
    };
}
for_each_case!(on_sim);

/// Other hardware, other seeds: the suite holds in every world.
#[test]
fn the_suite_holds_in_other_worlds() {
    let worlds =
        [("cxl", 2), ("tcp-10g+pm", 3), ("connectx-3", 4), ("connectx-6+pm", 5), ("connectx-4", 6)];
    for (profile, seed) in worlds {
        for case in cases::CASES {
            let bed = beds::SimBed::new(profile, seed, Faults::order()).expect("a bed");
            if let Err(error) = run(case, &bed) {
                panic!("{} on sim:{profile} with seed {seed}: {error:#}", case.name);
            }
        }
    }
}

macro_rules! on_tcp {
    ($($module:ident: $name:ident),* $(,)?) => {
        mod tcp {
            $(#[test] fn $name() { super::check("tcp", stringify!($name)); })*
        }
    };
}
for_each_case!(on_tcp);

macro_rules! on_shm {
    ($($module:ident: $name:ident),* $(,)?) => {
        mod shm {
            $(#[test] fn $name() { super::check("shm", stringify!($name)); })*
        }
    };
}
for_each_case!(on_shm);
