//! The terms of a lease, and why nobody acts on one that has ended.
//!
//! A session *beats* at its time `s`. The manager reads the beat at its
//! time `r`; `s` was earlier. It grants the beat only if it has *evidence* of its office that is not
//! older than `r - age`: a read of the store that began then and showed it as the manager, or a beat
//! of its own from then that every other session has echoed (a session stops echoing before it tries
//! to take over). The session that finds its beat granted has a lease until `s + lease` on its own clock.
//! So:
//!
//! - A manager that stops granting knows that a session's lease has ended once `r + lease` is past, of the
//!   last beat that it granted.
//! - A new manager, whose swap in the store came after any evidence of the old one, knows that all leases
//!   of the old one have ended `age + lease` after its swap; or, if the configuration that it replaced was
//!   *contested* (`contest.rs`), after that, and after the last beat that it has echoed.
//!
//! Nodes beat and are granted likewise, for the manager to know that they live; they do not need a lease,
//! because whoever uses them has one.
//!
//! However late a message arrives, a lease counts from the beat that it answers. Nobody compares
//! clocks; they only must not run at rates that differ by more than the margin.

use std::time::Duration;

/// How long things take in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// How long a lease is.
    pub lease: Duration,
}

impl Terms {
    /// Of a lease of that length.
    pub fn new(lease: Duration) -> Self {
        Terms { lease }
    }

    /// How often members and manager look while something is going on.
    pub(crate) fn tick(&self) -> Duration {
        self.lease / 16
    }

    /// How often they look while all is well.
    pub(crate) fn calm_tick(&self) -> Duration {
        self.lease / 8
    }

    /// How often a manager looks while all wait for the time.
    pub(crate) fn brisk_tick(&self) -> Duration {
        self.lease / 32
    }

    /// How long to wait for a node's answer before doing something else.
    pub(crate) fn answer(&self) -> Duration {
        self.lease / 8
    }

    /// How old the evidence for a grant may be.
    pub(crate) fn age(&self) -> Duration {
        self.lease / 4
    }

    /// When a lease is over for its grantor: clocks may differ by one part in a hundred.
    pub(crate) fn ended(&self) -> Duration {
        self.lease + self.lease / 100
    }

    /// How long after the last evidence of an old manager nobody has a lease of it.
    pub(crate) fn takeover(&self) -> Duration {
        self.ended() + self.age() + self.age() / 100
    }

    /// How long a new manager waits for sessions, which have to find it first. Not longer: those who stay have to acknowledge
    /// who was put out by the time that the takeover is over.
    pub(crate) fn welcome(&self) -> Duration {
        self.lease - self.lease / 8
    }

    /// The same where the home was lost: sessions that cannot reach it look for a new manager at once, and nobody has a time before
    /// they have acknowledged who was put out.
    pub(crate) fn brief_welcome(&self) -> Duration {
        self.lease * 5 / 8
    }

    /// How long a manager without evidence of its office goes on beating.
    pub(crate) fn silence(&self) -> Duration {
        3 * self.lease
    }

    /// How long a node hears of no manager before it asks the store whether it is still a member: longer
    /// than a takeover takes.
    pub(crate) fn grace(&self) -> Duration {
        4 * self.lease
    }

    /// How long to wait for others to say whether their clocks differ from the master's, too.
    pub(crate) fn hearing(&self) -> Duration {
        4 * self.lease
    }

    /// How long somebody waits of whom the manager may not know, with what clocks may differ by.
    pub(crate) fn stranger(&self) -> Duration {
        self.store_age() + self.store_age() / 100
    }

    /// How long echoes suffice without a look at the store. Who is not a session must wait for that
    /// before it takes over.
    pub(crate) fn store_age(&self) -> Duration {
        64 * self.lease
    }
}
