//! Cycles in words.

use std::collections::BTreeMap;

use super::graph::{Cycle, Kind};
use super::load::{History, TxnId, What};

/// What the attempts of a cycle did to each other.
pub(super) fn explain(history: &History, cycle: &Cycle) -> String {
    let next = cycle.iter().cycle().skip(1).map(|(txn, _)| *txn);
    let steps: Vec<String> = cycle
        .iter()
        .zip(next)
        .map(|((txn, kind), next)| edge(history, *txn, *kind, next))
        .collect();
    format!("{}: a cycle", steps.join("; "))
}

fn edge(history: &History, one: TxnId, kind: Kind, other: TxnId) -> String {
    let (a, b) = (history.txns[one as usize], history.txns[other as usize]);
    let key = shared_key(history, one, kind, other).map(|key| history.name(key));
    let on = key.map(|key| format!(" key {key:?}")).unwrap_or_default();
    let (a_id, b_id) = (a.id, b.id);
    match kind {
        Kind::Ww => format!("{a_id} -ww-> {b_id}: {a_id} wrote{on} before {b_id} did"),
        Kind::Wr => format!("{a_id} -wr-> {b_id}: {b_id} read{on} as {a_id} wrote it"),
        Kind::Rw | Kind::Turn => {
            format!("{a_id} -rw-> {b_id}: {a_id} read{on} as it was before {b_id} wrote it")
        }
        Kind::Rt | Kind::Link => {
            format!("{a_id} -rt-> {b_id}: {a_id} ended at {}, {b_id} began at {}", a.end, b.begin)
        }
    }
}

/// A key that an edge is about.
fn shared_key(history: &History, one: TxnId, kind: Kind, other: TxnId) -> Option<u32> {
    let (by_one, by_other) = (places(history, one), places(history, other));
    let reads = |txn: TxnId| {
        history.ops_of(txn).iter().filter_map(|op| match op.what {
            What::List(length) if length != u32::MAX => Some((op.key, length)),
            What::Read(..) => Some((op.key, 0)),
            _ => None,
        })
    };
    match kind {
        Kind::Ww => {
            let mut keys = by_one.iter();
            let later = |(key, (first, _)): &(&u32, &(u32, u32))| {
                by_other.get(key).is_some_and(|(_, last)| *first <= *last)
            };
            keys.find(later).map(|(key, _)| *key)
        }
        Kind::Wr => reads(other).map(|(key, _)| key).find(|key| by_one.contains_key(key)),
        Kind::Rw | Kind::Turn => {
            let missed = |(key, length): &(u32, u32)| {
                by_other.get(key).is_some_and(|(_, last)| last >= length)
            };
            reads(one).find(missed).map(|(key, _)| key)
        }
        Kind::Rt | Kind::Link => None,
    }
}

/// Of each key that an attempt writes the first and the last place in the spine; those of registers, and
/// those that nobody saw, are the last of all.
fn places(history: &History, txn: TxnId) -> BTreeMap<u32, (u32, u32)> {
    let mut places: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for op in history.ops_of(txn) {
        let place = match op.what {
            What::Append(element) => match history.writers[&(op.key, element)].place {
                0 => u32::MAX,
                place => place,
            },
            What::Write(_) => u32::MAX,
            _ => continue,
        };
        let known = places.entry(op.key).or_insert((place, place));
        *known = (known.0.min(place), known.1.max(place));
    }
    places
}
