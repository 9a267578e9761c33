//! Rows that were missed, and who may have deleted them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::load::{History, TxnId, What};
use super::registers::as_of;
use crate::history::Outcome;

/// A row that was there is missed as of a time that the store claims, and only somebody of unknown outcome can have deleted it: it did so, just before it was missed
/// first. Of several the one that began first is taken: whatever is possible with another is possible with that one.
pub(super) fn inferred(history: &History, judges: impl Fn(TxnId) -> bool) -> Vec<(TxnId, u64)> {
    let mut deleters: HashMap<u32, Vec<TxnId>> = HashMap::new();
    for (id, txn) in (0..).zip(&history.txns) {
        if txn.outcome == Outcome::Unknown && txn.commit_ts.is_none() {
            let deletes = |what| matches!(what, What::Write(None));
            let deleted = history.ops_of(id).iter().filter(|op| deletes(op.what));
            deleted.for_each(|op| deleters.entry(op.key).or_default().push(id));
        }
    }
    if deleters.is_empty() {
        return Vec::new();
    }
    // Whether each of those rows was there, from each time on; and when it was missed.
    let (mut known, mut missed) = (BTreeMap::new(), Vec::new());
    for id in 0..history.txns.len() as TxnId {
        let time = history.txns[id as usize].commit_ts;
        for op in history.ops_of(id).iter().filter(|op| deleters.contains_key(&op.key)) {
            match (op.what, as_of(history, id)) {
                (What::Read(Some(_), Some(0)), _) => _ = known.insert((op.key, 0), true),
                (What::Read(None, None), Some(time)) if judges(id) => {
                    missed.push((time, op.key, id));
                }
                (What::Write(value), _) if let Some(time) = time => {
                    known.insert((op.key, time), value.is_some());
                }
                _ => {}
            }
        }
    }
    missed.sort_unstable();
    let (mut found, mut taken) = (Vec::new(), BTreeSet::new());
    for (time, key, reader) in missed {
        let last = known.range((key, 0)..=(key, time)).next_back();
        if last.is_none_or(|(_, is_there)| !is_there) {
            continue;
        }
        let end = history.txns[reader as usize].end;
        let may = |id: &&TxnId| {
            let begin = history.txns[**id as usize].begin;
            !taken.contains(*id)
                && **id != reader
                && begin <= end
                && newest_read(history, **id) < time
        };
        let begin = |id: &&TxnId| history.txns[**id as usize].begin;
        let Some(deleter) = deleters[&key].iter().filter(may).min_by_key(begin) else { continue };
        taken.insert(*deleter);
        found.push((*deleter, time));
        for op in history.ops_of(*deleter) {
            if let What::Write(value) = op.what {
                known.insert((op.key, time), value.is_some());
            }
        }
    }
    found
}

/// The newest version that an attempt has read: it commits later.
pub(super) fn newest_read(history: &History, id: TxnId) -> u64 {
    let version = |what: &What| match what {
        What::Read(_, Some(version)) => *version,
        _ => 0,
    };
    history.ops_of(id).iter().map(|op| version(&op.what)).max().unwrap_or(0)
}
