//! What the manager knows of a member.

use std::collections::VecDeque;
use std::time::Duration;

use farside_fabric::Time;

use crate::terms::Terms;

/// How many beats may wait for evidence.
const WAITING: usize = 64;

/// A member's beats, as the manager has read and granted them.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The newest beat. The first that is read may be long past; only a change is a sign of life.
    beat: Option<u64>,
    /// When a beat was last read that was new.
    read_at: Time,
    /// Beats that were not granted yet, and when each was read.
    waiting: VecDeque<(u64, Time)>,
    /// The newest that was granted, and when that one was read.
    pub(super) granted: u64,
    granted_read_at: Time,
    /// When the manager's beat was sent that the member has echoed last.
    pub(super) echoed_at: Time,
    /// The newest configuration that it has acknowledged.
    pub(super) acknowledged: u64,
    /// The latest time that it may have given out.
    pub(super) latest: u64,
    /// How its clock drifts, as far as that is certain.
    pub(super) drift_ppb: i64,
    /// It is another life of the node than the one that is a member.
    pub(super) reborn: bool,
}

impl Record {
    /// Of somebody who was not heard yet.
    pub(super) fn new(now: Time) -> Self {
        Record {
            beat: None,
            read_at: now,
            waiting: VecDeque::new(),
            granted: 0,
            granted_read_at: now,
            echoed_at: Time(0),
            acknowledged: 0,
            latest: 0,
            drift_ppb: 0,
            reborn: false,
        }
    }

    /// It was not heard since then, by whoever looked before this manager did.
    pub(super) fn silent_since(&mut self, since: Time) {
        self.read_at = since.min(self.read_at);
    }

    /// A beat was read.
    pub(super) fn heard(&mut self, beat: u64, now: Time) {
        if self.beat.replace(beat).is_some_and(|known| known != beat) {
            self.read_at = now;
            self.waiting.push_back((beat, now));
            if self.waiting.len() > WAITING {
                self.waiting.pop_front();
            }
        }
    }

    /// Its silence counts from now on only. Its lease has ended all the sooner.
    pub(super) fn look_again(&mut self, now: Time) {
        self.read_at = self.read_at.max(now);
    }

    /// Grants the newest beat for which there is evidence of the office from about when it was read.
    pub(super) fn grant(&mut self, evidence: Time, terms: &Terms) {
        while let Some((beat, read_at)) = self.waiting.front().copied()
            && read_at <= evidence + terms.age()
        {
            (self.granted, self.granted_read_at) = (beat, read_at);
            self.waiting.pop_front();
        }
    }

    /// Whether it was heard of late.
    pub(super) fn was_heard(&self, now: Time, terms: &Terms) -> bool {
        now - self.read_at.min(now) < terms.lease / 4
    }

    /// Whether nothing was heard of it for so long that it has no lease any more.
    pub(super) fn is_dead(&self, now: Time, terms: &Terms) -> bool {
        now - self.read_at.min(now) > terms.ended()
    }

    /// When a lease that it has of this manager has ended at the latest.
    pub(super) fn lease_end(&self, terms: &Terms) -> Time {
        if self.granted == 0 { Time(0) } else { self.granted_read_at + terms.ended() }
    }

    /// Whether its lease has ended, be it alive or not.
    pub(super) fn has_lapsed(&self, now: Time, terms: &Terms) -> bool {
        now - self.granted_read_at.min(now) > terms.ended()
    }

    /// Whether it is dead for so long that nobody else will take care of it.
    pub(super) fn is_long_dead(&self, now: Time, terms: &Terms) -> bool {
        now - self.read_at.min(now) > terms.ended() + terms.lease / 2
    }

    /// Since when there is nothing to expect of it: of another life nothing ever was.
    pub(super) fn forsaken_since(&self) -> Time {
        if self.reborn { Time(0) } else { self.read_at }
    }

    /// Whether it has had time to hear of a new manager, and was not heard.
    pub(super) fn is_missing(&self, now: Time, welcome: Duration) -> bool {
        now - self.read_at.min(now) > welcome
    }

    /// Whether nothing was heard of it for so long that it is time to do without it. Its lease may not
    /// have ended yet.
    pub(super) fn is_silent(&self, now: Time, terms: &Terms) -> bool {
        now - self.read_at.min(now) > terms.lease / 2
    }
}
