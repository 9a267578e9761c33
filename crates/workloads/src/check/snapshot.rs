//! Snapshot isolation: only cycles with two neighbouring edges that read what is written over may be.
//!
//! So a cycle that must not be is one over steps of the form "depends on, and then perhaps reads what is
//! written over". In a graph with two layers those are the only ways: every dependency leads to both
//! layers, and only from the second one an anti-dependency leads back.

use std::collections::{BTreeMap, BTreeSet};

use super::cycles::name;
use super::explain::explain;
use super::graph::{Cycle, Edges, Graph, Kind, Kinds, Search};
use super::load::{History, TxnId};
use super::report::Findings;

const PATIENCE: usize = 20_000_000;

/// How many nodes are looked at for one read.
const NEAR: usize = 256;

fn dependencies() -> Kinds {
    Kinds::of(&[Kind::Ww, Kind::Wr, Kind::Rw, Kind::Turn])
}

/// Finds cycles that snapshot isolation forbids.
pub(super) fn find(history: &History, edges: &Edges, findings: &mut Findings) {
    let mut more = in_turn(history, edges);
    let search = &mut Search::new(PATIENCE);
    if tell(history, &layered(edges, &more, history.txns.len() as u32), search, findings) {
        return;
    }
    // Appends that nobody saw came in some order. If there are few, all orders are tried.
    let Some(orders) = orders(history) else { return };
    let certain = more.len();
    let mut last = None;
    for order in &orders {
        more.truncate(certain);
        more.extend(order.iter().map(|(one, other)| (*one, Kind::Ww, *other)));
        let graph = layered(edges, &more, history.txns.len() as u32);
        if graph.components(0..graph.nodes() as u32, dependencies(), &|_| true, search).is_empty() {
            return;
        }
        last = Some(graph);
    }
    if let Some(graph) = last {
        tell(history, &graph, search, findings);
    }
}

/// How many orders are tried at most.
const ORDERS: usize = 720;

/// All ways in which appends that nobody saw can follow each other: pairs of neighbours. `None` if there is
/// but one, or too many.
fn orders(history: &History) -> Option<Vec<Vec<(TxnId, TxnId)>>> {
    let mut unseen: BTreeMap<u32, BTreeSet<TxnId>> = BTreeMap::new();
    for ((key, _), writer) in &history.writers {
        let is_list = history.keys[*key as usize].is_list == Some(true);
        if is_list && writer.place == 0 && history.is_committed(writer.txn) {
            unseen.entry(*key).or_default().insert(writer.txn);
        }
    }
    let mut orders = vec![Vec::new()];
    for txns in unseen.into_values().filter(|txns| txns.len() > 1) {
        let ways = permutations(&txns.into_iter().collect::<Vec<_>>(), ORDERS)?;
        orders = orders
            .iter()
            .flat_map(|order: &Vec<(TxnId, TxnId)>| {
                ways.iter().map(move |way| {
                    let neighbours = way.windows(2).map(|pair| (pair[0], pair[1]));
                    order.iter().copied().chain(neighbours).collect()
                })
            })
            .take(ORDERS + 1)
            .collect();
        if orders.len() > ORDERS {
            return None;
        }
    }
    (orders.len() > 1).then_some(orders)
}

/// All orders of some attempts; `None` if there are more than `most`.
fn permutations(txns: &[TxnId], most: usize) -> Option<Vec<Vec<TxnId>>> {
    let mut ways: Vec<Vec<TxnId>> = vec![Vec::new()];
    for txn in txns {
        if ways.len() * (ways[0].len() + 1) > most {
            return None;
        }
        let insert = |way: &Vec<TxnId>, at: usize| {
            let mut next = way.clone();
            next.insert(at, *txn);
            next
        };
        ways = ways.iter().flat_map(|way| (0..=way.len()).map(move |at| insert(way, at))).collect();
    }
    Some(ways)
}

/// Tells of each component the shortest cycle; whether there is one.
fn tell(history: &History, graph: &Graph, search: &mut Search, findings: &mut Findings) -> bool {
    let attempts = history.txns.len() as u32;
    let mut any = false;
    let all = dependencies();
    let mut left = PATIENCE;
    for component in graph.components(0..graph.nodes() as u32, all, &|_| true, search) {
        let inside: BTreeSet<u32> = component.iter().copied().collect();
        let here = |node: u32| inside.contains(&node);
        let mut best: Option<Cycle> = None;
        for start in component.iter().copied().filter(|node| node / 2 < attempts && node % 2 == 0) {
            for (kind, next) in graph.edges_of(start).filter(|(_, next)| here(*next)) {
                // The first way of all is always looked for: there is one.
                search.patience = if best.is_none() { PATIENCE } else { left };
                let way = graph.shortest_way(next, start, all, &here, search);
                left = left.saturating_sub(search.looked_at());
                let Some(way) = way else { continue };
                let steps = [(start, kind)].into_iter().chain(way);
                let cycle: Cycle = steps
                    .map(|(node, kind)| (node / 2, kind))
                    .filter(|(node, _)| *node < attempts)
                    .collect();
                if best.as_ref().is_none_or(|best| cycle.len() < best.len()) {
                    best = Some(cycle);
                }
            }
            if best.as_ref().is_some_and(|best| best.len() <= 2) {
                break;
            }
        }
        let Some(cycle) = best else { continue };
        let over = |kind| matches!(kind, Kind::Rw | Kind::Turn);
        let overs = cycle.iter().filter(|(_, kind)| over(*kind)).count();
        let name = name(history, &cycle);
        let kind = if overs > 1 && name != "lost update" { "G-nonadjacent" } else { name };
        let txns: Vec<TxnId> = cycle.iter().map(|(txn, _)| *txn).collect();
        findings.add(history, kind, &txns, explain(history, &cycle));
        any = true;
    }
    any
}

/// Two that write the same key do not overlap. So if one has read what the other wrote over, it had ended
/// before the other began.
fn in_turn(history: &History, edges: &Edges) -> Vec<(u32, Kind, u32)> {
    let attempts = history.txns.len() as u32;
    let mut written: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); attempts as usize];
    for txn in 0..attempts {
        let writes = history.ops_of(txn).iter().filter(|op| op.what.writes());
        written[txn as usize] = writes.map(|op| op.key).collect();
    }
    // Who is reached through the nodes between, of which only those near are looked at.
    let mut links: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (from, _, to) in edges.iter().filter(|(_, kind, _)| *kind == Kind::Link) {
        links.entry(from).or_default().push(to);
    }
    let mut found = Vec::new();
    for (reader, _, to) in edges.iter().filter(|(_, kind, _)| *kind == Kind::Rw) {
        let mut ahead = vec![to];
        for _ in 0..NEAR {
            let Some(node) = ahead.pop() else { break };
            if node >= attempts {
                ahead.extend(links.get(&node).into_iter().flatten());
            } else if node != reader
                && !written[node as usize].is_disjoint(&written[reader as usize])
            {
                found.push((reader, Kind::Turn, node));
            }
        }
    }
    found
}

fn layered(edges: &Edges, more: &[(u32, Kind, u32)], attempts: u32) -> Graph {
    let mut layers = Edges::new(2 * edges.nodes() as usize);
    for (from, kind, to) in edges.iter().chain(more.iter().copied()) {
        let to_attempt = to < attempts;
        match kind {
            Kind::Ww | Kind::Wr | Kind::Turn if to_attempt => {
                layers.add(2 * from, kind, 2 * to);
                layers.add(2 * from, kind, 2 * to + 1);
            }
            // A node between says in which way it was reached.
            Kind::Ww | Kind::Wr | Kind::Turn => layers.add(2 * from, kind, 2 * to + 1),
            Kind::Rw => layers.add(2 * from + 1, kind, 2 * to),
            Kind::Link if to_attempt => {
                layers.add(2 * from, kind, 2 * to);
                layers.add(2 * from + 1, kind, 2 * to);
                layers.add(2 * from + 1, kind, 2 * to + 1);
            }
            Kind::Link => {
                layers.add(2 * from, kind, 2 * to);
                layers.add(2 * from + 1, kind, 2 * to + 1);
            }
            Kind::Rt => {}
        }
    }
    layers.into_graph()
}
