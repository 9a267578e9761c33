//! A directed graph of many nodes: components, and short cycles in them.

use std::collections::VecDeque;

/// What an edge says. The first four cost a step; a link only leads on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// One wrote, and the other wrote over it.
    Ww = 0,
    /// One wrote, and the other read it.
    Wr = 1,
    /// One read, and the other wrote over what it had read.
    Rw = 2,
    /// One ended before the other began.
    Rt = 3,
    /// From one node between attempts to the next, or to an attempt.
    Link = 4,
    /// Both write a key, and one has read it as it was before the other wrote: where two that overlap do not
    /// write the same, it had ended before the other began.
    Turn = 5,
}

const KINDS: [Kind; 6] = [Kind::Ww, Kind::Wr, Kind::Rw, Kind::Rt, Kind::Link, Kind::Turn];

/// Some kinds of edges. Links are always among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) fn of(kinds: &[Kind]) -> Self {
        Kinds(kinds.iter().fold(1 << Kind::Link as u8, |all, kind| all | 1 << *kind as u8))
    }

    pub(super) fn has(self, kind: Kind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }
}

/// Edges, while they are collected.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    nodes: u32,
    edges: Vec<(u32, u32)>,
}

const KIND_SHIFT: u32 = 29;
const NODE_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl Edges {
    pub(super) fn new(nodes: usize) -> Self {
        assert!(nodes < NODE_MASK as usize / 4, "more attempts than a graph has room for");
        Edges { nodes: nodes as u32, edges: Vec::new() }
    }

    /// A node between attempts.
    pub(super) fn add_node(&mut self) -> u32 {
        self.nodes += 1;
        assert!(self.nodes < NODE_MASK, "more nodes than a graph has room for");
        self.nodes - 1
    }

    pub(super) fn add(&mut self, from: u32, kind: Kind, to: u32) {
        if from != to {
            self.edges.push((from, to | (kind as u32) << KIND_SHIFT));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Kind, u32)> + '_ {
        self.edges.iter().map(|(from, to)| (*from, kind_of(*to), to & NODE_MASK))
    }

    pub(super) fn nodes(&self) -> u32 {
        self.nodes
    }

    pub(super) fn into_graph(mut self) -> Graph {
        self.edges.sort_unstable();
        self.edges.dedup();
        let mut first = vec![0u32; self.nodes as usize + 1];
        for (from, _) in &self.edges {
            first[*from as usize + 1] += 1;
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        Graph { first, to: self.edges.into_iter().map(|(_, to)| to).collect() }
    }
}

fn kind_of(to: u32) -> Kind {
    KINDS[(to >> KIND_SHIFT) as usize]
}

#[derive(Debug)]
pub(super) struct Graph {
    /// For each node where its edges begin.
    first: Vec<u32>,
    to: Vec<u32>,
}

/// A cycle: each attempt with the kind of the edge that leads to the next.
pub(super) type Cycle = Vec<(u32, Kind)>;

impl Graph {
    pub(super) fn nodes(&self) -> usize {
        self.first.len() - 1
    }

    pub(super) fn edges_of(&self, node: u32) -> impl Iterator<Item = (Kind, u32)> + '_ {
        let range = self.first[node as usize] as usize..self.first[node as usize + 1] as usize;
        self.to[range].iter().map(|to| (kind_of(*to), to & NODE_MASK))
    }

    /// The components of more than one node, over edges of some kinds between nodes that are `inside`.
    ///
    /// Tarjan's, without recursion.
    pub(super) fn components(
        &self,
        starts: impl Iterator<Item = u32>,
        kinds: Kinds,
        inside: &dyn Fn(u32) -> bool,
        search: &mut Search,
    ) -> Vec<Vec<u32>> {
        let mut found = Vec::new();
        // Of each node its number, and the lowest that it reaches; 0: not seen, MAX: done. It is all 0 when
        // this begins, and again when it ends.
        let mut low = std::mem::take(&mut search.low);
        low.resize(self.nodes(), 0);
        let mut seen = Vec::new();
        let mut stack = Vec::new();
        let mut calls: Vec<(u32, u32, u32)> = Vec::new();
        let mut next = 1;
        for start in starts {
            if low[start as usize] != 0 || !inside(start) {
                continue;
            }
            calls.push((start, self.first[start as usize], next));
            low[start as usize] = next;
            next += 1;
            stack.push(start);
            seen.push(start);
            while let Some((node, at, number)) = calls.last_mut() {
                let (node, number) = (*node as usize, *number);
                if *at < self.first[node + 1] {
                    let edge = self.to[*at as usize];
                    *at += 1;
                    let to = (edge & NODE_MASK) as usize;
                    if !kinds.has(kind_of(edge)) || !inside(to as u32) {
                        continue;
                    }
                    if low[to] == 0 {
                        low[to] = next;
                        calls.push((to as u32, self.first[to], next));
                        next += 1;
                        stack.push(to as u32);
                        seen.push(to as u32);
                    } else if low[to] != u32::MAX {
                        low[node] = low[node].min(low[to]);
                    }
                    continue;
                }
                calls.pop();
                if let Some((parent, ..)) = calls.last() {
                    let parent = *parent as usize;
                    low[parent] = low[parent].min(low[node]);
                }
                if low[node] == number {
                    let begin = stack.iter().rposition(|n| *n as usize == node).expect("pushed");
                    let component = stack.split_off(begin);
                    component.iter().for_each(|member| low[*member as usize] = u32::MAX);
                    if component.len() > 1 {
                        found.push(component);
                    }
                }
            }
        }
        seen.into_iter().for_each(|node| low[node as usize] = 0);
        search.low = low;
        found
    }

    /// All attempts among the first so many that a node reaches.
    pub(super) fn reach(&self, from: u32, attempts: u32, search: &mut Search) -> Vec<u32> {
        search.begin(self.nodes());
        search.reach(from, from, Kind::Link, 0);
        let (mut open, mut found) = (vec![from], Vec::new());
        while let Some(node) = open.pop() {
            for (_, next) in self.edges_of(node) {
                if search.is_new(next) {
                    search.reach(next, node, Kind::Link, 0);
                    open.push(next);
                    found.extend((next < attempts).then_some(next));
                }
            }
        }
        found
    }

    /// A shortest way between two nodes, over edges of some kinds between nodes that are `inside`; its edges,
    /// each with the node that it comes from.
    pub(super) fn shortest_way(
        &self,
        from: u32,
        to: u32,
        kinds: Kinds,
        inside: &dyn Fn(u32) -> bool,
        search: &mut Search,
    ) -> Option<Cycle> {
        search.begin(self.nodes());
        let mut queue = VecDeque::from([from]);
        search.reach(from, from, Kind::Link, 0);
        while let Some(node) = queue.pop_front() {
            if node == to && search.steps > 0 {
                break;
            }
            search.steps += 1;
            if search.steps > search.patience {
                return None;
            }
            let cost = search.cost[node as usize];
            for (kind, next) in self.edges_of(node) {
                if !kinds.has(kind) || !inside(next) {
                    continue;
                }
                let step = u32::from(kind != Kind::Link);
                if search.is_new(next) || search.cost[next as usize] > cost + step {
                    search.reach(next, node, kind, cost + step);
                    if step == 0 { queue.push_front(next) } else { queue.push_back(next) }
                }
            }
        }
        if search.is_new(to) {
            return None;
        }
        let mut way = Vec::new();
        let mut at = to;
        while at != from {
            let (before, kind) = search.came[at as usize];
            way.push((before, kind));
            at = before;
        }
        way.reverse();
        Some(way)
    }
}

/// What a search remembers, kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Search {
    round: u32,
    seen: Vec<u32>,
    cost: Vec<u32>,
    came: Vec<(u32, Kind)>,
    low: Vec<u32>,
    /// Nodes that this search has looked at, and may look at.
    steps: usize,
    pub(super) patience: usize,
}

impl Search {
    pub(super) fn new(patience: usize) -> Self {
        Search { patience, ..Search::default() }
    }

    /// How many nodes the last search has looked at.
    pub(super) fn looked_at(&self) -> usize {
        self.steps
    }

    fn begin(&mut self, nodes: usize) {
        self.round += 1;
        self.steps = 0;
        self.seen.resize(nodes, 0);
        self.cost.resize(nodes, 0);
        self.came.resize(nodes, (0, Kind::Link));
    }

    fn is_new(&self, node: u32) -> bool {
        self.seen[node as usize] != self.round
    }

    fn reach(&mut self, node: u32, before: u32, kind: Kind, cost: u32) {
        self.seen[node as usize] = self.round;
        self.cost[node as usize] = cost;
        self.came[node as usize] = (before, kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_and_ways_are_found() {
        let mut edges = Edges::new(6);
        for (from, kind, to) in [
            (0, Kind::Ww, 1),
            (1, Kind::Wr, 2),
            (2, Kind::Rw, 0),
            (2, Kind::Ww, 3),
            (3, Kind::Rt, 4),
            (4, Kind::Rt, 3),
            (4, Kind::Ww, 5),
        ] {
            edges.add(from, kind, to);
        }
        let graph = edges.into_graph();
        let all = Kinds::of(&[Kind::Ww, Kind::Wr, Kind::Rw, Kind::Rt]);
        let mut search = Search::new(100);
        let mut found = graph.components(0..6, all, &|_| true, &mut search);
        found.iter_mut().for_each(|component| component.sort_unstable());
        found.sort();
        assert_eq!(found, [vec![0, 1, 2], vec![3, 4]]);
        let no_time = Kinds::of(&[Kind::Ww, Kind::Wr, Kind::Rw]);
        let none = graph.components(0..6, no_time, &|node| node != 1, &mut search);
        assert_eq!(none, Vec::<Vec<u32>>::new());
        assert_eq!(graph.reach(3, 6, &mut search).len(), 2);
        let way = graph.shortest_way(0, 2, all, &|_| true, &mut search);
        assert_eq!(way, Some(vec![(0, Kind::Ww), (1, Kind::Wr)]));
        assert_eq!(graph.shortest_way(5, 0, all, &|_| true, &mut search), None);
    }
}
