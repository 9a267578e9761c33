//! What the code between verbs takes, where time is simulated. It is our own code, so that is measured: `cargo xtask txn-cost` counts
//! the instructions of SmallBank's transactions by each preset, and fits three figures to them, which come within 8 %.

use std::time::Duration;

use farside_sim::Code;
use farside_txn::Protocol;

/// Picoseconds that an instruction takes, caches included: SmallBank on `local`, two threads, 200,000 accounts, makes a million
/// transactions per second, of about 20 thousand instructions each (docs/performance.md).
const INSTRUCTION_PS: u64 = 100;

/// Instructions of a verb that is executed on `local`: that is done by NICs here.
const EXECUTION: u64 = 80;

/// Instructions of a transaction, whatever it does; of each of its round trips, those in the background included; and of each verb.
const INSTRUCTIONS: [(Protocol, [u64; 3]); 5] = [
    (Protocol::FARSIDE, [7331, 976, 659]),
    (Protocol::FORD_LV, [7877, 729, 810]),
    (Protocol::FORD, [3507, 1547, 833]),
    (Protocol::DRTM_H, [5000, 1430, 636]),
    (Protocol::FARM, [5113, 1343, 643]),
];

/// What a thread computes when a transaction begins, and until it ends.
pub(super) fn of(protocol: Protocol) -> (Duration, Code) {
    // `ford-lv-node` is about the same code as `ford-lv`.
    let known = INSTRUCTIONS.iter().find(|(known, _)| protocol.name.starts_with(known.name));
    let [transaction, round_trip, verb] = known.map_or([0; 3], |(_, instructions)| *instructions);
    let time = |instructions| Duration::from_nanos(instructions * INSTRUCTION_PS / 1000);
    (time(transaction), Code { step: time(round_trip), verb: time(verb.saturating_sub(EXECUTION)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_all_presets_is_known() {
        for preset in Protocol::PRESETS {
            let (begin, code) = of(preset);
            assert!(!begin.is_zero() && !code.step.is_zero() && !code.verb.is_zero());
        }
        assert_ne!(of(Protocol::FORD), of(Protocol::FORD_LV_NODE));
        assert_eq!(of(Protocol::FORD_LV), of(Protocol::FORD_LV_SWITCH));
    }
}
