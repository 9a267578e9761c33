//! The slots of a worker, and who holds each of them.
//!
//! Slots are never moved or freed while the worker lives; a free list runs through them. Each slot is
//! either in that list or held by exactly one [`Held`], from the first verb of a round to the moment
//! its results are dropped. While the round is in flight the backend reaches the slot too, by its
//! [`Token`]: both live on the worker's thread, each borrows the slot for the length of one call, and
//! neither calls the other, so no two borrows ever overlap.
//!
//! A round, and what becomes of it, is one such pointer and nothing else. That is what keeps it
//! cheap: boxes would bring drop glue wherever they are handed on, and structs of several words are
//! copied through memory by async code, 16 bytes behind two 8-byte stores, which stalls the CPU.
//! Both were measured, and each cost as much as the verbs themselves.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::task::Waker;

use super::doorbell::RoundMark;
use super::slot::{Bell, Slot};
use crate::Result;

/// After this many rounds that completed at once, a task lets the others run.
const ROUNDS_PER_TURN: i32 = 64;

/// Names one doorbell in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    pub(super) index: u32,
    pub(super) round: RoundMark,
    pub(super) bell: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Slots {
    free: Cell<Option<NonNull<Slot>>>,
    /// Every slot there is, by its index.
    all: RefCell<Vec<NonNull<Slot>>>,
    rounds: Cell<RoundMark>,
    /// How many more rounds may complete at once before a task must yield.
    at_once: Cell<i32>,
}

/// Holds one slot. It is handed from a round to what becomes of it, and given back by the last:
/// copies are for handing on, never for keeping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<'w> {
    slot: NonNull<Slot>,
    worker: PhantomData<&'w Slots>,
}

impl Slots {
    /// A slot for a new round.
    #[inline(always)]
    pub(super) fn take(&self) -> Held<'_> {
        let slot = match self.free.get() {
            Some(slot) => slot,
            None => self.make(),
        };
        let mut held = Held { slot, worker: PhantomData };
        self.free.set(held.next_free);
        let round = self.rounds.get();
        held.round = round;
        self.rounds.set(round.next());
        held
    }

    #[cold]
    fn make(&self) -> NonNull<Slot> {
        let mut all = self.all.borrow_mut();
        let slot = Box::new(Slot::new(NonNull::from(self), all.len() as u32));
        let slot = NonNull::from(Box::leak(slot));
        all.push(slot);
        slot
    }

    /// Whether the current task has had its share of rounds that completed at once.
    #[inline(always)]
    fn must_yield(&self) -> bool {
        let left = self.at_once.get() - 1;
        self.at_once.set(left);
        if left < 0 {
            self.at_once.set(ROUNDS_PER_TURN);
        }
        left < 0
    }
}

impl<'w> Held<'w> {
    /// The worker's slots that this one belongs to.
    #[inline(always)]
    fn home(&self) -> &'w Slots {
        // SAFETY: slots are part of the worker that 'w borrows, and stay where they are.
        unsafe { self.home.as_ref() }
    }

    /// Whether the last completion has come; if not, it will wake `waker`.
    #[cold]
    pub(super) fn landed(&mut self, waker: &Waker) -> bool {
        if self.open > 0 {
            self.wait(waker);
            return false;
        }
        self.was_in_flight() || self.may_go_on(waker)
    }

    /// A completion that was there at once must not let one task keep the thread: now and then the
    /// others run first.
    #[inline(always)]
    pub(super) fn may_go_on(&self, waker: &Waker) -> bool {
        let yields = self.home().must_yield();
        if yields {
            waker.wake_by_ref();
        }
        !yields
    }

    /// Gives back a slot whose round is over.
    #[inline(always)]
    pub(super) fn give_back(mut self) {
        let home = self.home();
        self.clear();
        self.next_free = home.free.get();
        home.free.set(Some(self.slot));
    }

    /// The one who waited is gone; the slot is given back when its last completion has come.
    #[cold]
    pub(super) fn abandon(mut self) {
        if self.open == 0 {
            self.give_back();
        } else {
            self.abandoned = true;
            self.waker = None;
        }
    }
}

impl Deref for Held<'_> {
    type Target = Slot;

    #[inline(always)]
    fn deref(&self) -> &Slot {
        // SAFETY: slots live as long as the worker, which 'w borrows; this is the only Held of it,
        // and the backend's borrow by token never overlaps with another (see the module).
        unsafe { self.slot.as_ref() }
    }
}

impl DerefMut for Held<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Slot {
        // SAFETY: as in deref.
        unsafe { self.slot.as_mut() }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for slot in self.all.get_mut().drain(..) {
            // SAFETY: leaked from a box in `make`, and every Held borrowed these slots.
            drop(unsafe { Box::from_raw(slot.as_ptr()) });
        }
    }
}

/// Through which a backend hands in completions and the words that came with them.
#[derive(Debug)]
pub struct Completer<'a> {
    pub(crate) slots: &'a Slots,
}

impl<'a> Completer<'a> {
    /// Gives access to the words of a doorbell in flight, to be filled before its completion.
    pub fn with_bell<R>(&self, token: Token, visit: impl FnOnce(Bell<'_>) -> R) -> R {
        let mut held = self.held(token);
        visit(Bell { slot: &mut held, number: token.bell as usize })
    }

    /// Completes one doorbell. An error breaks its queue until it is reconnected.
    pub fn complete(&self, token: Token, result: Result<()>) {
        let mut held = self.held(token);
        let bell = &mut held.bells[token.bell as usize];
        assert!(!bell.completed, "a doorbell completes once");
        bell.completed = true;
        if let Err(error) = result {
            held.fail(token.bell as usize, error);
        }
        held.open -= 1;
        if held.open > 0 {
            return;
        }
        if held.abandoned {
            crate::probe!("a round landed after its task was gone");
            held.give_back();
        } else if let Some(waker) = held.waker.take() {
            waker.wake();
        }
    }

    /// A second handle to a slot in flight, for the length of one call.
    fn held(&self, token: Token) -> Held<'a> {
        let slot = self.slots.all.borrow()[token.index as usize];
        let held = Held { slot, worker: PhantomData };
        assert!(
            held.round == token.round && held.open > 0,
            "a completion for a doorbell that is not in flight"
        );
        held
    }
}
