//! C2 and C3: what is atomic, and what is not.

use std::cell::Cell;
use std::rc::Rc;

use super::order::client;
use super::{Stop, Style};
use crate::sim::Sim;

const AT: u64 = 128;

/// Somebody WRITEs i to two words at once, and a checksum behind them. A careful reader looks at the
/// checksum before it believes the words.
pub(super) fn two_words(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let checksum = |a: u64, b: u64| (a.rotate_left(7) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = move |i: u64| vec![vec![i, i, if i == 0 { 0 } else { checksum(i, i) }]];
    overwritten(sim, steps, words, move |found| {
        let (a, b, sum) = (found[0], found[1], found[2]);
        let believed = !style.is_careful() || sum == checksum(a, b);
        match a == b || !believed {
            true => Ok(()),
            false => Err(format!("one READ returned {found:?}")),
        }
    })
}

/// Somebody writes i to the first word of four lines; a reader that finds the last line new takes
/// the first for new, too. Careful: each line is a WRITE, and READs go the other way.
pub(super) fn lines_in_order(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let careful = style.is_careful();
    let lines = move |i: u64| if careful { vec![vec![i; 8]; 4] } else { vec![vec![i; 32]] };
    overwritten(sim, steps, lines, |found| {
        let (first, last) = (found[0], found[found.len() - 1]);
        if first < last {
            return Err(format!("the last line was {last} when the first was {first}"));
        }
        Ok(())
    })
}

/// A writer overwrites memory with pieces, one WRITE each; a reader READs the same pieces in the
/// opposite order and judges what it found, put together in ascending order.
fn overwritten(
    sim: &Sim,
    steps: u64,
    pieces: impl Fn(u64) -> Vec<Vec<u64>> + 'static,
    judge: impl Fn(&[u64]) -> Result<(), String>,
) -> Result<(), Stop> {
    let node = sim.add_node(1 << 16);
    let (writer, to_write) = client(sim, node);
    let (reader, to_read) = client(sim, node);
    let shape: Vec<usize> = pieces(0).iter().map(Vec::len).collect();
    let done = Rc::new(Cell::new(false));
    let writing = writer.spawn({
        let (me, done) = (writer.clone(), Rc::clone(&done));
        async move {
            for i in 1..=steps {
                let mut round = me.round();
                let mut at = AT;
                for piece in pieces(i) {
                    round.to(&to_write).write(at, &piece);
                    at += piece.len() as u64 * 8;
                }
                round.ring().await?;
            }
            done.set(true);
            Ok::<_, Stop>(())
        }
    });
    reader.block_on(async {
        while !done.get() {
            let mut round = reader.round();
            let mut at = AT + shape.iter().sum::<usize>() as u64 * 8;
            let mut tickets = Vec::new();
            for words in shape.iter().rev() {
                at -= *words as u64 * 8;
                tickets.push(round.to(&to_read).read(at, words * 8));
            }
            let words = round.ring().await?;
            let found: Vec<_> =
                tickets.into_iter().rev().map(|ticket| words[ticket].to_vec()).collect();
            judge(&found.concat())?;
        }
        writing.await
    })
}
