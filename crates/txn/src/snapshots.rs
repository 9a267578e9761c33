//! The snapshots that a thread reads, and since when it uses no older addresses: noted for those who keep old versions, and places.

use std::sync::atomic::Ordering;

use crate::TxnError;
use crate::agent::Agent;
use crate::session::IDLE;

impl Agent {
    /// A snapshot to be read from now on. Others know of this session since it joined: before its line was on the
    /// board they would not have kept what it reads.
    /// `strict`: of now, and otherwise of a moment that is past for sure.
    pub(crate) async fn enter(&self, strict: bool) -> Result<u64, TxnError> {
        let (early, late) = self.enter_one(strict).await?;
        Ok(if strict { late } else { early })
    }

    /// An early snapshot: of a moment that is past for sure; and the latest that it may be now, which no time of what was committed
    /// before exceeds.
    pub(crate) async fn enter_early(&self) -> Result<(u64, u64), TxnError> {
        self.enter_one(false).await
    }

    async fn enter_one(&self, strict: bool) -> Result<(u64, u64), TxnError> {
        loop {
            if let Some(both) = self.try_enter(strict) {
                return Ok(both);
            }
            self.upper().await?;
        }
    }

    /// A moment that is past for sure, and one that may not be: the first one is entered, or with `strict` the second.
    fn try_enter(&self, strict: bool) -> Option<(u64, u64)> {
        let oldest = self.oldest();
        let bound = if strict && oldest != IDLE { oldest } else { self.lower().saturating_sub(1) };
        // A bound first, and the snapshot when that is to be seen: it is later.
        if bound < oldest {
            self.noted.oldest.store(bound, Ordering::SeqCst);
        }
        let Some((lower, upper)) = self.bounds() else {
            self.note_oldest();
            return None;
        };
        // Bounds may go back when more is known; later ones are as good.
        let (mut snapshots, mut early) = (self.snapshots.borrow_mut(), self.early.borrow_mut());
        let late = upper.max(snapshots.newest().unwrap_or(0));
        let past = lower.saturating_sub(1).max(bound).max(early.newest().unwrap_or(0));
        match strict {
            true => snapshots.enter(late),
            false => early.enter(past),
        }
        Some((past, late))
    }

    /// A snapshot of a moment that may be long past is to be read from now on. Nobody keeps old versions of before what this
    /// session has agreed to.
    pub(crate) fn enter_past(&self, time: u64) -> Result<(), TxnError> {
        if time > self.latest() {
            return Err(TxnError::Refused("a snapshot of the future".into()));
        }
        self.enter_at(time)
    }

    /// The same, of a moment that was given out here.
    pub(crate) fn enter_at(&self, time: u64) -> Result<(), TxnError> {
        *self.pasts.borrow_mut().entry(time).or_insert(0) += 1;
        self.note_oldest();
        // Either this is seen by whoever agrees to more, or that is seen here.
        if self.session.safe.load(Ordering::SeqCst) > time {
            self.leave(time);
            return Err(TxnError::TooOld);
        }
        Ok(())
    }

    /// A snapshot is not read any more.
    pub(crate) fn leave(&self, snapshot: u64) {
        let mut pasts = self.pasts.borrow_mut();
        match pasts.get_mut(&snapshot) {
            Some(1) => _ = pasts.remove(&snapshot),
            Some(times) => *times -= 1,
            // Who of them had it makes no difference.
            None => {
                let _ = self.early.borrow_mut().leave(snapshot)
                    || self.snapshots.borrow_mut().leave(snapshot);
            }
        }
        drop(pasts);
        self.note_oldest();
    }

    /// The oldest that this thread reads.
    fn oldest(&self) -> u64 {
        let past = self.pasts.borrow().first_key_value().map(|(time, _)| *time);
        let (late, early) = (self.snapshots.borrow().oldest(), self.early.borrow().oldest());
        [late, early, past].into_iter().flatten().min().unwrap_or(IDLE)
    }

    fn note_oldest(&self) {
        self.noted.oldest.store(self.oldest(), Ordering::SeqCst);
    }

    /// A transaction begins: it uses no address that was learned before what this returns.
    pub(crate) fn enter_floor(&self) -> u64 {
        let mut floors = self.floors.borrow_mut();
        loop {
            let floor = self.session.floor();
            if floors.oldest().is_none() {
                self.noted.floor.store(floor, Ordering::SeqCst);
            }
            // Either this is seen by whoever raises it, or that is seen here.
            if self.session.floor() == floor {
                floors.enter(floor);
                return floor;
            }
        }
    }

    pub(crate) fn leave_floor(&self, floor: u64) {
        let mut floors = self.floors.borrow_mut();
        let _ = floors.leave(floor);
        self.noted.floor.store(floors.oldest().unwrap_or(IDLE), Ordering::SeqCst);
    }
}
