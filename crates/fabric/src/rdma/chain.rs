//! A doorbell as work requests, within the room that there is in the queue and the buffer.
//!
//! Verbs that do not fit wait until earlier ones have completed; large ones travel in pieces. Pieces
//! complete in order, so one signaled request at the end of a chain tells of all of it.

use std::collections::VecDeque;

use super::ffi::{SendRequest, Sge, flag, opcode};
use super::region::Region;
use crate::link::{Bell, Completer, Op, Token, Verb};
use crate::memory::{WORD, load_words, store_words};
use crate::sync::Ordering;

/// Where the node's memory is, in the terms of its device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) base: u64,
    pub(super) key: u32,
}

/// How far a doorbell has been turned into requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    verb: u32,
    word: u32,
}

/// One work request in flight.
#[derive(Clone, Copy, Debug)]
struct Piece {
    token: Token,
    /// Whose words it brings, where they begin, and how many.
    verb: u32,
    word: u32,
    words: u32,
    /// Where in the buffer, and how much of it is free again when it has completed.
    at: u32,
    taken: u32,
    /// It is the last of its doorbell.
    last: bool,
}

/// The buffer is used round and round: what was taken first comes back first.
#[derive(Debug)]
struct Ring {
    bytes: u32,
    next: u32,
    used: u32,
}

impl Ring {
    /// Room for so many bytes in one piece: where it begins, and how much it takes with what is
    /// skipped at the end.
    fn take(&mut self, bytes: u32) -> Option<(u32, u32)> {
        if self.used == 0 {
            self.next = 0;
        }
        let to_end = self.bytes - self.next;
        let (at, taken) = if bytes <= to_end { (self.next, bytes) } else { (0, to_end + bytes) };
        if self.used + taken > self.bytes {
            return None;
        }
        self.used += taken;
        self.next = at + bytes;
        Some((at, taken))
    }

    fn give_back(&mut self, taken: u32) {
        self.used -= taken;
    }
}

/// What a queue has in flight, and the memory through which it passes.
#[derive(Debug)]
pub(super) struct Flight {
    buffer: Region,
    ring: Ring,
    depth: usize,
    inline: u32,
    remote: Remote,
    flying: VecDeque<Piece>,
    /// The id of the request at the front of those flying.
    first: u64,
    requests: Vec<SendRequest>,
    lists: Vec<Sge>,
    order: Order,
}

/// The latest requests that others may have to wait for.
#[derive(Debug, Default)]
struct Order {
    read: Option<u64>,
    atomic: Option<u64>,
    /// Where a FLUSH reads: behind the latest WRITE.
    written: u64,
}

impl Order {
    /// Whether a verb marked fenced needs the device's fence, which may stall it: only where earlier
    /// READs or atomics could still be overtaken ([C1](crate::contracts#c1-order)).
    fn needs_fence(&self, op: Op, oldest_in_flight: u64) -> bool {
        let flies = |request: Option<u64>| request.is_some_and(|id| id >= oldest_in_flight);
        match op {
            Op::Write => flies(self.read) || flies(self.atomic),
            Op::Cas | Op::Faa | Op::MaskedCas => flies(self.read),
            Op::Read | Op::Flush => false,
        }
    }

    fn note(&mut self, op: Op, id: u64, fenced: bool, at: u64) {
        if fenced {
            (self.read, self.atomic) = (None, None);
        }
        match op {
            Op::Read | Op::Flush => self.read = Some(id),
            Op::Cas | Op::Faa | Op::MaskedCas => self.atomic = Some(id),
            Op::Write => self.written = at,
        }
    }
}

/// Nothing more fits for now.
struct Full;

impl Flight {
    pub(super) fn new(buffer: Region, depth: usize, inline: u32, remote: Remote) -> Self {
        let bytes = size_of_val(buffer.memory.words()) as u32;
        Flight {
            buffer,
            ring: Ring { bytes, next: 0, used: 0 },
            depth,
            inline,
            remote,
            flying: VecDeque::new(),
            first: 0,
            requests: Vec::new(),
            lists: Vec::new(),
            order: Order::default(),
        }
    }

    /// Begins anew with another pair; the old one is gone, and nothing flies any more.
    pub(super) fn restart(&mut self, depth: usize, inline: u32, remote: Remote) {
        debug_assert!(self.flying.is_empty());
        (self.depth, self.inline, self.remote) = (depth, inline, remote);
        self.order = Order::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }

    /// Forgets all that flies; the doorbells whose last pieces were among it.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = Token> + use<> {
        self.ring.used = 0;
        self.first += self.flying.len() as u64;
        std::mem::take(&mut self.flying).into_iter().filter(|p| p.last).map(|p| p.token)
    }

    /// Turns a doorbell into requests from `cursor` on, as far as there is room; `true` if all of it is.
    pub(super) fn build(&mut self, mut bell: Bell<'_>, cursor: &mut Cursor) -> bool {
        self.requests.clear();
        self.lists.clear();
        let token = bell.token();
        let mut number = 0;
        let built = bell.try_each(|verb, words| {
            let mine = number;
            number += 1;
            if mine < cursor.verb {
                return Ok(());
            }
            self.build_verb(token, verb, words, cursor)?;
            *cursor = Cursor { verb: mine + 1, word: 0 };
            Ok::<_, Full>(())
        });
        if built.is_ok()
            && let Some(piece) = self.flying.back_mut().filter(|p| p.token == token)
        {
            piece.last = true;
        }
        if let Some(last) = self.requests.last_mut() {
            last.flags |= flag::SIGNALED;
        }
        built.is_ok()
    }

    fn build_verb(
        &mut self,
        token: Token,
        verb: Verb,
        words: &mut [u64],
        cursor: &mut Cursor,
    ) -> Result<(), Full> {
        let most = (self.ring.bytes / 4) as usize / WORD as usize;
        loop {
            let from = cursor.word as usize;
            let moved = match verb.op {
                Op::Read | Op::Write => (words.len() - from).min(most),
                _ => 1,
            };
            if self.flying.len() == self.depth {
                return Err(Full);
            }
            self.build_piece(token, verb, cursor, &words[from..], moved)?;
            cursor.word += moved as u32;
            let whole = match verb.op {
                Op::Read | Op::Write => cursor.word as usize == words.len(),
                _ => true,
            };
            if whole {
                return Ok(());
            }
        }
    }

    /// One request, which moves so many words.
    fn build_piece(
        &mut self,
        token: Token,
        verb: Verb,
        cursor: &Cursor,
        words: &[u64],
        moved: usize,
    ) -> Result<(), Full> {
        let id = self.first + self.flying.len() as u64;
        let bytes = (moved * WORD as usize) as u32;
        let inline = verb.op == Op::Write && bytes <= self.inline;
        let (at, taken) = if inline { (0, 0) } else { self.ring.take(bytes).ok_or(Full)? };
        // The pieces behind the first of a WRITE are ordered behind it anyway.
        let fenced = verb.fenced && cursor.word == 0 && self.order.needs_fence(verb.op, self.first);
        let flags = if fenced { flag::FENCE } else { 0 } | if inline { flag::INLINE } else { 0 };
        let far = match verb.op {
            Op::Flush => self.order.written,
            _ => verb.at + u64::from(cursor.word) * WORD,
        };
        self.order.note(verb.op, id, fenced, far);
        let (code, brings) = match verb.op {
            Op::Read => (opcode::READ, moved as u32),
            Op::Flush => (opcode::READ, 0),
            Op::Write => (opcode::WRITE, 0),
            Op::Cas => (opcode::CAS, 1),
            Op::Faa => (opcode::FAA, 1),
            Op::MaskedCas => unreachable!("refused when it was added to its round"),
        };
        let mut request = SendRequest::new(id, code, flags, self.remote.base + far);
        if matches!(verb.op, Op::Cas | Op::Faa) {
            request.key_or_operand = words[0];
            request.swap = if verb.op == Op::Cas { words[1] } else { 0 };
            request.atomic_key = self.remote.key;
        } else {
            request.key_or_operand = u64::from(self.remote.key);
        }
        let address = if inline {
            words.as_ptr() as u64
        } else {
            if verb.op == Op::Write {
                let first = (at / WORD as u32) as usize;
                store_words(&words[..moved], &self.buffer.memory.words()[first..first + moved]);
            }
            self.buffer.base() + u64::from(at)
        };
        self.requests.push(request);
        self.lists.push(Sge { address, bytes, key: self.buffer.local_key() });
        let (verb, word) = (cursor.verb, cursor.word);
        self.flying.push_back(Piece { token, verb, word, words: brings, at, taken, last: false });
        Ok(())
    }

    /// The chain that was built last, linked; `None` if nothing was. It is good until the doorbell or
    /// this flight changes.
    pub(super) fn chain(&mut self) -> Option<*mut SendRequest> {
        // What the words in the buffer are must be there before the device hears of them.
        crate::sync::fence(Ordering::Release);
        let count = self.requests.len();
        let (requests, lists) = (self.requests.as_mut_ptr(), self.lists.as_mut_ptr());
        for number in 0..count {
            // SAFETY: both vectors have `count` elements, and nothing else borrows them.
            unsafe {
                let request = requests.add(number);
                (*request).list = lists.add(number);
                if number + 1 < count {
                    (*request).next = requests.add(number + 1);
                }
            }
        }
        (count > 0).then_some(requests)
    }

    /// The device has done all requests up to `id`: what they brought goes where it was asked for.
    pub(super) fn retire(&mut self, id: u64, completer: &Completer<'_>) {
        crate::sync::fence(Ordering::Acquire);
        while self.first <= id
            && let Some(token) = self.flying.front().map(|piece| piece.token)
        {
            let most = (id - self.first + 1) as usize;
            let done = self.flying.iter().take(most).take_while(|p| p.token == token).count();
            self.bring(token, done, completer);
            let mut last = false;
            for piece in self.flying.drain(..done) {
                self.ring.give_back(piece.taken);
                last = piece.last;
            }
            self.first += done as u64;
            if last {
                completer.complete(token, Ok(()));
            }
        }
    }

    fn bring(&self, token: Token, done: usize, completer: &Completer<'_>) {
        let memory = self.buffer.memory.words();
        let mut pieces = self.flying.iter().take(done).filter(|piece| piece.words > 0).peekable();
        if pieces.peek().is_none() {
            return;
        }
        let mut number = 0;
        completer.with_bell(token, |mut bell| {
            let Ok(()) = bell.try_each(|_, words| {
                while let Some(piece) = pieces.next_if(|piece| piece.verb == number) {
                    let (from, count) = ((piece.at / WORD as u32) as usize, piece.words as usize);
                    let to = &mut words[piece.word as usize..][..count];
                    load_words(&memory[from..from + count], to);
                }
                number += 1;
                Ok::<_, std::convert::Infallible>(())
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_never_hands_out_what_is_in_use() {
        let mut ring = Ring { bytes: 64, next: 0, used: 0 };
        assert_eq!(ring.take(40), Some((0, 40)));
        assert_eq!(ring.take(32), None);
        assert_eq!(ring.take(16), Some((40, 16)));
        ring.give_back(40);
        // Eight bytes at the end are skipped, and come back with the piece.
        assert_eq!(ring.take(40), Some((0, 48)));
        assert_eq!(ring.take(8), None);
        ring.give_back(16);
        assert_eq!(ring.take(16), Some((40, 16)));
        ring.give_back(48);
        ring.give_back(16);
        assert_eq!(ring.take(64), Some((0, 64)));
    }

    #[test]
    fn the_device_fences_only_where_something_could_be_overtaken() {
        let mut order = Order::default();
        assert!(!order.needs_fence(Op::Write, 0));
        order.note(Op::Read, 5, false, 0);
        order.note(Op::Cas, 6, false, 0);
        assert!(order.needs_fence(Op::Write, 5) && order.needs_fence(Op::Faa, 5));
        // The READ has completed; atomics are ordered among each other.
        assert!(order.needs_fence(Op::Write, 6) && !order.needs_fence(Op::Faa, 6));
        assert!(!order.needs_fence(Op::Write, 7), "both have completed");
        order.note(Op::Write, 7, true, 64);
        assert!(!order.needs_fence(Op::Write, 5), "a fence covers what was before it");
        assert_eq!(order.written, 64);
    }
}
