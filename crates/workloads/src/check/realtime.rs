//! Who ended before whom began: as many edges as attempts, through a chain of moments.

use super::graph::{Edges, Kind};
use super::load::{History, TxnId};

/// Adds the order of time among those who count.
pub(super) fn add(history: &History, counts: &dyn Fn(TxnId) -> bool, edges: &mut Edges) {
    let ids = || (0..history.txns.len() as TxnId).filter(|id| counts(*id));
    // Who never knew its end may have ended later than anybody.
    let mut ends: Vec<(u64, TxnId)> = ids()
        .map(|id| (history.txns[id as usize], id))
        .filter(|(txn, _)| !txn.endless)
        .map(|(txn, id)| (txn.end, id))
        .collect();
    ends.sort_unstable();
    let mut begins: Vec<(u64, TxnId)> =
        ids().map(|id| (history.txns[id as usize].begin, id)).collect();
    begins.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    // The latest moment, and whether somebody ended there since it was last used.
    let mut moment: Option<u32> = None;
    let mut fresh: Vec<TxnId> = Vec::new();
    for (begin, id) in begins {
        while let Some((_, ended)) = ends.next_if(|(end, _)| *end < begin) {
            fresh.push(ended);
        }
        if !fresh.is_empty() {
            let next = edges.add_node();
            fresh.drain(..).for_each(|ended| edges.add(ended, Kind::Rt, next));
            if let Some(before) = moment.replace(next) {
                edges.add(before, Kind::Link, next);
            }
        }
        if let Some(moment) = moment {
            edges.add(moment, Kind::Link, id);
        }
    }
}
