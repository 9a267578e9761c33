//! The suite on every backend, a test per case.

use std::path::Path;

use farside_conformance::{beds, cases, for_each_case, run};

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

macro_rules! on_shm {
    ($($module:ident: $name:ident),* $(,)?) => {
        mod shm {
            $(#[test] fn $name() { super::check("shm", stringify!($name)); })*
        }
    };
}
for_each_case!(on_shm);
