//! Probes: which rare branches a set of runs has reached.
//!
//! `probe!("name")` in production code notes that the place was reached. Probes are there in debug
//! builds, and in release builds with the feature `probes`; otherwise they are nothing at all.

use std::collections::BTreeMap;
use std::sync::Mutex;

static REACHED: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Notes that a rare branch was reached.
///
/// ```
/// # fn lost() -> bool { true }
/// if lost() {
///     farside_fabric::probe!("lock lost to another");
/// }
/// # if farside_fabric::probe::enabled() {
/// assert!(farside_fabric::probe::reached()["lock lost to another"] >= 1);
/// # }
/// ```
#[macro_export]
macro_rules! probe {
    ($name:literal) => {
        if $crate::probe::enabled() {
            $crate::probe::note($name);
        }
    };
}

/// Whether this build has probes.
#[inline(always)]
pub const fn enabled() -> bool {
    cfg!(any(debug_assertions, feature = "probes"))
}

/// What `probe!` calls.
#[cold]
pub fn note(name: &'static str) {
    *REACHED.lock().expect("no panic while held").entry(name).or_default() += 1;
}

/// The probes that this process has reached so far, and how often.
pub fn reached() -> BTreeMap<&'static str, u64> {
    REACHED.lock().expect("no panic while held").clone()
}
