//! Registers without claims, where a few attempts leave open who wrote first: all orders are tried.

use super::graph::{Edges, Search};
use super::load::{History, TxnId};
use super::registers::Registers;

/// As many attempts fit into a word.
pub(super) const MOST: usize = 64;

/// How many guesses are made before the question stays open.
const GUESSES: u32 = 200_000;

/// For each attempt those who come after it.
#[derive(Clone)]
struct Order {
    after: Vec<u64>,
}

impl Order {
    /// Adds that one comes before another; `false` if that closes a cycle.
    fn add(&mut self, one: TxnId, other: TxnId) -> bool {
        if one == other || self.after[other as usize] >> one & 1 == 1 {
            return false;
        }
        if self.after[one as usize] >> other & 1 == 1 {
            return true;
        }
        let reach = self.after[other as usize] | 1 << other;
        for (id, after) in self.after.iter_mut().enumerate() {
            if id == one as usize || *after >> one & 1 == 1 {
                *after |= reach;
            }
        }
        true
    }

    /// Adds that one has written a key before another: so have read it those who read its version.
    fn add_version(
        &mut self,
        registers: &Registers,
        key: u32,
        first: TxnId,
        second: TxnId,
    ) -> bool {
        let readers = registers[&key].readers.get(&Some(first)).map_or(&[][..], Vec::as_slice);
        let mut before = [first].into_iter().chain(readers.iter().copied());
        before.all(|id| id == second || self.add(id, second))
    }
}

/// Whether some order of the writes explains all reads; `None` if that takes too long to find out.
pub(super) fn is_orderable(
    history: &History,
    registers: &Registers,
    counts: &dyn Fn(TxnId) -> bool,
    strict: bool,
    edges: &Edges,
) -> Option<bool> {
    // All that is known already: of lists, and of commit times that are claimed.
    let (graph, mut search) = (edges.clone().into_graph(), Search::new(usize::MAX));
    let attempts = history.txns.len() as u32;
    let reach = |from: u32| {
        let reached = graph.reach(from, attempts, &mut search);
        reached.into_iter().fold(0, |all, to| all | 1 << to)
    };
    let mut order = Order { after: (0..attempts).map(reach).collect() };
    if (0..attempts).any(|id| order.after[id as usize] >> id & 1 == 1) {
        // A cycle already, which is told by its name.
        return Some(true);
    }
    let ids = || (0..history.txns.len() as TxnId).filter(|id| counts(*id));
    for one in ids().filter(|_| strict) {
        let txn = history.txns[one as usize];
        for other in ids() {
            let before = !txn.endless && txn.end < history.txns[other as usize].begin;
            if before && !order.add(one, other) {
                return Some(false);
            }
        }
    }
    for register in registers.values() {
        for (writer, readers) in &register.readers {
            for reader in readers {
                let sound = match writer {
                    Some(writer) => writer == reader || order.add(*writer, *reader),
                    None => register
                        .writers
                        .iter()
                        .all(|writer| writer == reader || order.add(*reader, *writer)),
                };
                if !sound {
                    return Some(false);
                }
            }
        }
    }
    // Versions that nobody reads may come in any order.
    let read = registers.iter().filter(|(_, register)| !register.readers.is_empty());
    let pairs: Vec<_> = read
        .flat_map(|(key, register)| {
            let writers = &register.writers;
            (0..writers.len()).flat_map(move |at| {
                writers[..at].iter().map(move |before| (*key, *before, writers[at]))
            })
        })
        .collect();
    let mut guesses = GUESSES;
    guess(order, &pairs, registers, &mut guesses)
}

/// Goes through pairs of writers of a key. Where their order is known, what follows is added; where it is
/// not, both are tried: as deep as there are pairs of attempts.
fn guess(
    mut order: Order,
    pairs: &[(u32, TxnId, TxnId)],
    registers: &Registers,
    guesses: &mut u32,
) -> Option<bool> {
    for (at, (key, one, other)) in pairs.iter().enumerate() {
        let known = |one: TxnId, other: TxnId| order.after[one as usize] >> other & 1 == 1;
        let sure = match (known(*one, *other), known(*other, *one)) {
            (true, _) => Some((*one, *other)),
            (_, true) => Some((*other, *one)),
            _ => None,
        };
        if let Some((first, second)) = sure {
            if !order.add_version(registers, *key, first, second) {
                return Some(false);
            }
            continue;
        }
        let mut open = false;
        for (first, second) in [(*one, *other), (*other, *one)] {
            *guesses = guesses.checked_sub(1)?;
            let mut next = order.clone();
            if !next.add_version(registers, *key, first, second) {
                continue;
            }
            match guess(next, &pairs[at + 1..], registers, guesses) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => open = true,
            }
        }
        return if open { None } else { Some(false) };
    }
    Some(true)
}
