//! The safe point: three sessions tell each other which snapshots they read. The first hands one on to the second and may die;
//! the third keeps an old version for it, and drops it when it may.
//!
//! Each look at the board is several steps, and nobody does them at the same time as others.

use crate::search::Model;

/// Nobody reads anything.
const NONE: u8 = 9;

/// The snapshot that is handed on, and now.
const OLD: u8 = 1;
const NOW: u8 = 3;

const SESSIONS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Session {
    alive: bool,
    /// The oldest snapshot that it reads.
    reads: u8,
    /// It begins with none that is older.
    agreed: u8,
    /// What it has told the others of both.
    told: (u8, u8),
    /// Where it is in its look at the board, what it is about to tell, and the least that it has seen there.
    step: u8,
    line: (u8, u8),
    least: (u8, u8),
    /// Nobody reads what is older, as far as it knows.
    horizon: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    rounds: u8,
    sessions: [Session; SESSIONS],
    /// The moment is on its way.
    handed_on: bool,
    /// The second has begun with it.
    begun: bool,
    /// The old version is there.
    kept: bool,
    broken: bool,
}

impl World {
    pub(crate) fn new(rounds: u8) -> Self {
        let idle = Session {
            alive: true,
            reads: NONE,
            agreed: 0,
            told: (OLD, 0),
            step: 0,
            line: (0, 0),
            least: (0, 0),
            horizon: 0,
        };
        let mut sessions = [idle; SESSIONS];
        sessions[0].reads = OLD;
        World { rounds, sessions, handed_on: false, begun: false, kept: true, broken: false }
    }

    /// A session goes on with its look: it tells what it reads and has agreed to, sees the lines of the others one after the
    /// other, agrees to what all of them say, and knows what all have agreed to.
    fn look(&self, who: usize) -> World {
        let mut next = self.clone();
        let me = &mut next.sessions[who];
        match me.step {
            0 => me.line = (NOW.min(me.reads), me.agreed.min(me.reads)),
            1 => {
                me.told = me.line;
                me.least = (me.told.0, NONE);
            }
            step @ 2..=3 => {
                let other = self.sessions[(who + usize::from(step) - 1) % SESSIONS];
                if other.alive {
                    me.least = (me.least.0.min(other.told.0), me.least.1.min(other.told.1));
                }
            }
            _ => {
                me.agreed = me.agreed.max(me.least.0);
                let all = if self.rounds == 1 {
                    me.least.0
                } else {
                    // Its own is as good as told, except for what it reads.
                    me.agreed.min(me.reads).min(me.least.1)
                };
                me.horizon = me.horizon.max(all);
                (me.line, me.least) = ((0, 0), (0, 0));
            }
        }
        me.step = (me.step + 1) % 5;
        next
    }
}

impl Model for World {
    fn next(&self, each: &mut dyn FnMut(Self)) {
        for who in (0..SESSIONS).filter(|who| self.sessions[*who].alive) {
            each(self.look(who));
        }
        if self.sessions[0].alive {
            each(World { handed_on: true, ..self.clone() });
            let mut died = self.clone();
            died.sessions[0].alive = false;
            each(died);
        }
        let second = self.sessions[1];
        if self.handed_on && !self.begun && second.agreed <= OLD {
            let mut begun = World { begun: true, ..self.clone() };
            begun.sessions[1].reads = OLD;
            each(begun);
        }
        if self.begun && !self.kept {
            each(World { broken: true, ..self.clone() });
        }
        if self.kept && self.sessions[2].horizon > OLD {
            each(World { kept: false, ..self.clone() });
        }
    }

    fn wrong(&self) -> Option<String> {
        self.broken.then(|| "what a snapshot needs is gone".into())
    }

    fn step_from(&self, before: &Self) -> String {
        let looked =
            (0..SESSIONS).find(|who| self.sessions[*who].step != before.sessions[*who].step);
        match looked {
            Some(who) => format!("{who} looks"),
            None if self.handed_on != before.handed_on => "it is handed on".into(),
            None if self.begun != before.begun => "the second begins".into(),
            None if self.kept != before.kept => "it is dropped".into(),
            None if self.broken => "the second reads".into(),
            None => "the first dies".into(),
        }
    }
}
