//! Registers without claims, where a few attempts leave open who wrote first: all orders are tried.

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
        let reach = self.after[other as usize] | 1 << other;
        for (id, after) in self.after.iter_mut().enumerate() {
            if id == one as usize || *after >> one & 1 == 1 {
                *after |= reach;
            }
        }
        true
    }
}

/// Whether some order of the writes explains all reads; `None` if that takes too long to find out.
pub(super) fn is_orderable(
    history: &History,
    registers: &Registers,
    counts: &dyn Fn(TxnId) -> bool,
    strict: bool,
) -> Option<bool> {
    let mut order = Order { after: vec![0; history.txns.len()] };
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
    let pairs: Vec<_> = registers
        .iter()
        .flat_map(|(key, register)| {
            let writers = &register.writers;
            (0..writers.len()).flat_map(move |at| {
                writers[..at].iter().map(move |before| (*key, *before, writers[at]))
            })
        })
        .collect();
    let mut guesses = GUESSES;
    guess(&order, &pairs, registers, &mut guesses)
}

fn guess(
    order: &Order,
    pairs: &[(u32, TxnId, TxnId)],
    registers: &Registers,
    guesses: &mut u32,
) -> Option<bool> {
    let Some(((key, one, other), rest)) = pairs.split_first() else { return Some(true) };
    let mut open = false;
    for (first, second) in [(*one, *other), (*other, *one)] {
        *guesses = guesses.checked_sub(1)?;
        let mut next = order.clone();
        let readers = registers[key].readers.get(&Some(first)).map_or(&[][..], Vec::as_slice);
        let before = [first].into_iter().chain(readers.iter().copied());
        if before.filter(|id| *id != second).all(|id| next.add(id, second)) {
            match guess(&next, rest, registers, guesses) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => open = true,
            }
        }
    }
    if open { None } else { Some(false) }
}
