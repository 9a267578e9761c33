//! Cycles in words.

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
        Kind::Rw => {
            format!("{a_id} -rw-> {b_id}: {a_id} read{on} as it was before {b_id} wrote it")
        }
        Kind::Rt | Kind::Link => {
            format!("{a_id} -rt-> {b_id}: {a_id} ended at {}, {b_id} began at {}", a.end, b.begin)
        }
    }
}

/// A key that an edge is about.
fn shared_key(history: &History, one: TxnId, kind: Kind, other: TxnId) -> Option<u32> {
    let wrote = |txn: TxnId, key: u32| {
        history.ops_of(txn).iter().any(|op| op.key == key && op.what.writes())
    };
    let places = |txn: TxnId, key: u32| -> Vec<u32> {
        let ops = history.ops_of(txn).iter().filter(|op| op.key == key);
        let place = |element| match history.writers[&(key, element)].place {
            0 => u32::MAX,
            place => place,
        };
        ops.filter_map(|op| match op.what {
            What::Append(element) => Some(place(element)),
            _ => None,
        })
        .collect()
    };
    let reads = |txn: TxnId| {
        history.ops_of(txn).iter().filter_map(|op| match op.what {
            What::List(length) if length != u32::MAX => Some((op.key, Some(length))),
            What::Read(..) => Some((op.key, None)),
            _ => None,
        })
    };
    match kind {
        Kind::Ww => history.ops_of(one).iter().map(|op| op.key).find(|key| {
            let (mine, its) = (places(one, *key), places(other, *key));
            let later = mine.iter().any(|at| its.iter().any(|other| at < other));
            wrote(one, *key) && wrote(other, *key) && (mine.is_empty() || later)
        }),
        Kind::Wr => reads(other).find_map(|(key, length)| {
            let seen = |at: &u32| length.is_none_or(|length| *at <= length);
            let mine = places(one, key);
            (wrote(one, key) && (mine.is_empty() || mine.iter().any(seen))).then_some(key)
        }),
        Kind::Rw => reads(one).find_map(|(key, length)| {
            let missed = |at: &u32| length.is_none_or(|length| *at > length);
            let its = places(other, key);
            (wrote(other, key) && (its.is_empty() || its.iter().any(missed))).then_some(key)
        }),
        Kind::Rt | Kind::Link => None,
    }
}
