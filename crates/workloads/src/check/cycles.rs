//! Cycles have names (Adya): by what their edges say.

use std::collections::HashSet;

use super::explain::explain;
use super::graph::{Cycle, Graph, Kind, Kinds, Search};
use super::load::{History, TxnId, What};
use super::report::Findings;

/// How many nodes all searches for one kind of cycle may look at.
const PATIENCE: usize = 20_000_000;

/// Which edges a kind of cycle has: any number of some kinds, and perhaps exactly one that reads what
/// is written over.
struct Pattern {
    kinds: Kinds,
    one_rw: bool,
    /// Only among committed attempts.
    committed: bool,
}

/// Finds cycles, and tells the shortest of each kind in each component.
pub(super) fn find(history: &History, graph: &Graph, strict: bool, findings: &mut Findings) {
    use Kind::{Rt, Rw, Wr, Ww};
    let all = Kinds::of(&[Ww, Wr, Rw, Rt]);
    let mut inside = vec![0u32; graph.nodes()];
    let mut search = Search::new(PATIENCE);
    let components = graph.components(0..graph.nodes() as u32, all, &|_| true, &mut search);
    for (number, component) in (1..).zip(&components) {
        component.iter().for_each(|node| inside[*node as usize] = number);
    }
    let pattern =
        |kinds: &[Kind], one_rw, committed| Pattern { kinds: Kinds::of(kinds), one_rw, committed };
    let timeless = [
        pattern(&[Ww], false, true),
        pattern(&[Ww, Wr], false, true),
        pattern(&[Ww, Wr], true, true),
        pattern(&[Ww, Wr, Rw], false, true),
    ];
    let timely = [
        pattern(&[Ww, Wr, Rt], false, true),
        pattern(&[Ww, Wr, Rt], true, true),
        pattern(&[Ww, Wr, Rw, Rt], false, true),
    ];
    let any = [pattern(&[Ww, Wr, Rw, Rt], false, false)];
    for (number, component) in (1..).zip(&components) {
        let here = |node: u32| inside[node as usize] == number;
        let mut tell = |patterns: &[Pattern], findings: &mut Findings| {
            tell(history, graph, component, &here, patterns, &mut search, findings)
        };
        let mut found = tell(&timeless, findings);
        // Longer ones always follow from shorter ones; time and opacity are looked at only where all else
        // is well.
        if !found && strict {
            found = tell(&timely, findings);
        }
        if !found {
            found = tell(&any, findings);
        }
        if !found {
            let why = "a cycle that is too long to be told".to_owned();
            findings.add(history, "cycle", &[], why);
        }
    }
}

fn tell(
    history: &History,
    graph: &Graph,
    component: &[u32],
    here: &dyn Fn(u32) -> bool,
    patterns: &[Pattern],
    search: &mut Search,
    findings: &mut Findings,
) -> bool {
    let mut names = Vec::new();
    for pattern in patterns {
        let Some(cycle) = shortest(history, graph, component, here, pattern, search) else {
            continue;
        };
        let name = name(history, &cycle);
        if !names.contains(&name) {
            names.push(name);
            let txns: Vec<TxnId> = cycle.iter().map(|(txn, _)| *txn).collect();
            findings.add(history, name, &txns, explain(history, &cycle));
        }
    }
    !names.is_empty()
}

fn shortest(
    history: &History,
    graph: &Graph,
    component: &[u32],
    here: &dyn Fn(u32) -> bool,
    pattern: &Pattern,
    search: &mut Search,
) -> Option<Cycle> {
    let is_attempt = |node: u32| (node as usize) < history.txns.len();
    let inside = |node: u32| {
        here(node) && !(pattern.committed && is_attempt(node) && !history.is_committed(node))
    };
    let mut left = PATIENCE;
    let mut best: Option<Cycle> = None;
    let parts = if pattern.one_rw {
        vec![component.to_vec()]
    } else {
        graph.components(component.iter().copied(), pattern.kinds, &inside, search)
    };
    for start in parts.iter().flatten().copied().filter(|node| is_attempt(*node) && inside(*node)) {
        for (kind, next) in graph.edges_of(start) {
            let wanted = if pattern.one_rw { kind == Kind::Rw } else { pattern.kinds.has(kind) };
            if !wanted || !inside(next) || left == 0 {
                continue;
            }
            search.patience = left;
            let way = graph.shortest_way(next, start, pattern.kinds, &inside, search);
            left = left.saturating_sub(search.looked_at());
            let Some(way) = way else { continue };
            let cycle: Cycle = [(start, kind)]
                .into_iter()
                .chain(way)
                .filter(|(node, _)| is_attempt(*node))
                .collect();
            if best.as_ref().is_none_or(|best| cycle.len() < best.len()) {
                best = Some(cycle);
            }
        }
        if best.as_ref().is_some_and(|best| best.len() <= 2) {
            break;
        }
    }
    best
}

/// The name of a cycle.
pub(super) fn name(history: &History, cycle: &Cycle) -> &'static str {
    let count = |kind| cycle.iter().filter(|(_, known)| *known == kind).count();
    let (reads, times) = (count(Kind::Wr), count(Kind::Rt));
    let overs = count(Kind::Rw) + count(Kind::Turn);
    if cycle.iter().any(|(txn, _)| !history.is_committed(*txn)) {
        return "non-opaque read";
    }
    match (times, overs) {
        (0, 0) if reads == 0 => "G0",
        (0, 0) => "G1c",
        (0, _) if is_lost_update(history, cycle) => "lost update",
        (0, 1) => "G-single",
        (0, _) if is_about_absence(history, cycle) => "G2",
        (0, _) => "G2-item",
        (_, 0) if reads == 0 => "G0-realtime",
        (_, 0) => "G1c-realtime",
        (_, 1) => "stale read",
        _ => "G2-item-realtime",
    }
}

/// Two write a key, and one of them has read it before the other wrote.
fn is_lost_update(history: &History, cycle: &Cycle) -> bool {
    let [(one, first), (other, second)] = cycle[..] else { return false };
    let (by_one, by_other) = (written(history, one), written(history, other));
    let loses = |reader: TxnId| {
        history.ops_of(reader).iter().any(|op| {
            let reads = matches!(op.what, What::List(_) | What::Read(..));
            reads && by_one.contains(&op.key) && by_other.contains(&op.key)
        })
    };
    let over = |kind| matches!(kind, Kind::Rw | Kind::Turn);
    over(first) && loses(one) || over(second) && loses(other)
}

/// The keys that an attempt writes.
pub(super) fn written(history: &History, txn: TxnId) -> HashSet<u32> {
    let writes = history.ops_of(txn).iter().filter(|op| op.what.writes());
    writes.map(|op| op.key).collect()
}

/// All that was written over are registers that were absent when they were read: nobody had a version
/// to check.
fn is_about_absence(history: &History, cycle: &Cycle) -> bool {
    let next = cycle.iter().cycle().skip(1).map(|(txn, _)| *txn);
    cycle.iter().zip(next).filter(|((_, kind), _)| *kind == Kind::Rw).all(
        |((reader, _), writer)| {
            let absent = |op: &&super::load::Op| {
                let is_list = history.keys[op.key as usize].is_list == Some(true);
                !is_list && matches!(op.what, What::Read(None, _))
            };
            let written = written(history, writer);
            history.ops_of(*reader).iter().filter(absent).any(|op| written.contains(&op.key))
        },
    )
}
