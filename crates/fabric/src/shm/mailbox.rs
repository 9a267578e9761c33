//! Calls over a segment: slots that a client fills, a server answers, and the client empties.
//!
//! ```text
//!  free ──client──▶ filling ──client──▶ asked ──server──▶ serving ──server──▶ answered ──client──▶ free
//!    ▲                                    │ client gives up  │ client gives up
//!    └────────────────────────────────────┘                  ▼
//!    └───────────────────────────────server───────────── given up
//! ```
//! The state word names the client in every state, so that a slot whose client died is found.

use super::layout::{CALL_HEADER_WORDS, CALL_WORDS, CALLS, CALLS_AT};
use crate::ClientId;
use crate::memory::{load_words, store_words};
use crate::sync::{AtomicU64, Ordering};

const STATE: usize = 0;
const SERVICE: usize = 1;
const BYTES: usize = 2;
const STATUS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Stage {
    Free,
    Filling,
    Asked,
    Serving,
    Answered,
    GivenUp,
}

impl Stage {
    fn with(self, client: ClientId) -> u64 {
        self as u64 | client.0 << 8
    }

    fn of(word: u64) -> Option<Stage> {
        use Stage::{Answered, Asked, Filling, Free, GivenUp, Serving};
        [Free, Filling, Asked, Serving, Answered, GivenUp]
            .into_iter()
            .find(|stage| *stage as u64 == word & 0xff)
    }
}

/// How a service ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Status {
    Fine,
    NoService,
    Failed,
}

/// One slot of the mailbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallSlot<'a> {
    words: &'a [AtomicU64],
}

/// All slots of a segment.
pub(super) fn slots(control: &[AtomicU64]) -> impl Iterator<Item = CallSlot<'_>> {
    control[CALLS_AT..CALLS_AT + CALLS * CALL_WORDS]
        .chunks_exact(CALL_WORDS)
        .map(|words| CallSlot { words })
}

impl<'a> CallSlot<'a> {
    /// The stage and the client that the slot is for.
    pub(super) fn stage(&self) -> (Option<Stage>, ClientId) {
        let word = self.words[STATE].load(Ordering::Acquire);
        (Stage::of(word), ClientId(word >> 8))
    }

    fn step(&self, client: ClientId, from: Stage, to: Stage) -> bool {
        let nobody = ClientId(0);
        let owner = |stage| if stage == Stage::Free { nobody } else { client };
        let (from, to) = (from.with(owner(from)), to.with(owner(to)));
        let (ok, failed) = (Ordering::AcqRel, Ordering::Acquire);
        self.words[STATE].compare_exchange(from, to, ok, failed).is_ok()
    }

    /// Client: takes a free slot and asks.
    pub(super) fn ask(&self, client: ClientId, service: u16, request: &[u8]) -> bool {
        if !self.step(client, Stage::Free, Stage::Filling) {
            return false;
        }
        self.words[SERVICE].store(u64::from(service), Ordering::Relaxed);
        self.put(request);
        let asked = self.step(client, Stage::Filling, Stage::Asked);
        debug_assert!(asked, "nobody else changes a slot that is being filled");
        asked
    }

    /// Client: the answer, if there is one; the slot is free then.
    pub(super) fn answer(&self, client: ClientId) -> Option<(u64, Vec<u8>)> {
        if self.stage() != (Some(Stage::Answered), client) {
            return None;
        }
        let answer = (self.words[STATUS].load(Ordering::Relaxed), self.get());
        self.step(client, Stage::Answered, Stage::Free).then_some(answer)
    }

    /// Client: wants no answer any more.
    pub(super) fn give_up(&self, client: ClientId) {
        let _ = self.step(client, Stage::Asked, Stage::Free)
            || self.step(client, Stage::Serving, Stage::GivenUp)
            || self.step(client, Stage::Answered, Stage::Free);
    }

    /// Server: takes a request.
    pub(super) fn take(&self) -> Option<(ClientId, u16, Vec<u8>)> {
        let (stage, client) = self.stage();
        if stage != Some(Stage::Asked) || !self.step(client, Stage::Asked, Stage::Serving) {
            return None;
        }
        let service = self.words[SERVICE].load(Ordering::Relaxed) as u16;
        Some((client, service, self.get()))
    }

    /// Server: answers, unless the client gave up.
    pub(super) fn reply(&self, client: ClientId, status: Status, reply: &[u8]) {
        self.words[STATUS].store(status as u64, Ordering::Relaxed);
        self.put(reply);
        let _ = self.step(client, Stage::Serving, Stage::Answered)
            || self.step(client, Stage::GivenUp, Stage::Free);
    }

    /// Server: frees the slot of a client that is dead. A request that is being served is answered
    /// first, and freed the next time.
    pub(super) fn reap(&self, client: ClientId) {
        let _ = self.step(client, Stage::Filling, Stage::Free)
            || self.step(client, Stage::Asked, Stage::Free)
            || self.step(client, Stage::Answered, Stage::Free);
    }

    /// Server: cleans up after one that died in the middle of serving.
    pub(super) fn take_over(&self) {
        let (stage, client) = self.stage();
        match stage {
            Some(Stage::Serving) => self.reply(client, Status::Failed, b"the server died"),
            Some(Stage::GivenUp) => _ = self.step(client, Stage::GivenUp, Stage::Free),
            _ => {}
        }
    }

    fn put(&self, bytes: &[u8]) {
        self.words[BYTES].store(bytes.len() as u64, Ordering::Relaxed);
        let room = &self.words[CALL_HEADER_WORDS..];
        for (word, chunk) in room.iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            store_words(&[u64::from_le_bytes(padded)], std::slice::from_ref(word));
        }
    }

    fn get(&self) -> Vec<u8> {
        let room = &self.words[CALL_HEADER_WORDS..];
        let bytes = (self.words[BYTES].load(Ordering::Relaxed) as usize).min(room.len() * 8);
        let mut words = vec![0; bytes.div_ceil(8)];
        load_words(&room[..words.len()], &mut words);
        let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        out.truncate(bytes);
        out
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    const CLIENT: ClientId = ClientId(7);

    fn slot_words() -> Arc<Vec<AtomicU64>> {
        Arc::new((0..CALL_HEADER_WORDS + 1).map(|_| AtomicU64::new(0)).collect())
    }

    fn serve_once(words: &[AtomicU64]) {
        let slot = CallSlot { words };
        if let Some((client, service, request)) = slot.take() {
            assert_eq!((client, service, request.as_slice()), (CLIENT, 3, &b"ping"[..]));
            slot.reply(client, Status::Fine, b"pong!");
        }
    }

    #[test]
    fn an_answer_is_whole_and_the_slot_is_free_again() {
        loom::model(|| {
            let words = slot_words();
            let server = loom::thread::spawn({
                let words = Arc::clone(&words);
                move || serve_once(&words)
            });
            let slot = CallSlot { words: &words };
            assert!(slot.ask(CLIENT, 3, b"ping"));
            let early = slot.answer(CLIENT);
            server.join().unwrap();
            serve_once(&words);
            let answer = early.or_else(|| slot.answer(CLIENT));
            assert_eq!(answer, Some((Status::Fine as u64, b"pong!".to_vec())));
            assert_eq!(slot.stage().0, Some(Stage::Free));
        });
    }

    #[test]
    fn giving_up_frees_the_slot_however_far_the_server_is() {
        loom::model(|| {
            let words = slot_words();
            let slot = CallSlot { words: &words };
            assert!(slot.ask(CLIENT, 3, b"ping"));
            let server = loom::thread::spawn({
                let words = Arc::clone(&words);
                move || serve_once(&words)
            });
            slot.give_up(CLIENT);
            server.join().unwrap();
            assert_eq!(slot.stage().0, Some(Stage::Free));
        });
    }
}
