//! Doorbells under way.

use farside_fabric::FabricError;
use farside_fabric::link::{Op, Token};

/// One verb of a doorbell under way; its words stand in the flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlightVerb {
    pub(crate) op: Op,
    pub(crate) fenced: bool,
    pub(crate) at: u64,
    pub(crate) first: u32,
    pub(crate) words: u32,
}

/// A piece of a verb that takes effect at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) verb: u32,
    pub(crate) first: u32,
    pub(crate) words: u32,
    pub(crate) landed: bool,
}

/// A doorbell from the moment it is posted until its last event.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) queue: u32,
    /// The connection of the queue that it was posted on.
    pub(crate) connection: u32,
    pub(crate) token: Option<Token>,
    pub(crate) signaled: bool,
    pub(crate) verbs: Vec<FlightVerb>,
    pub(crate) words: Vec<u64>,
    pub(crate) parts: Vec<Part>,
    pub(crate) parts_left: u32,
    /// When its answer leaves the node, as far as is known.
    pub(crate) answer_at: u64,
    /// From this verb on nothing takes effect any more.
    pub(crate) cut: Option<u32>,
    /// Of this WRITE, only some pieces take effect: its sender died in the middle of it.
    pub(crate) maimed: Option<u32>,
    pub(crate) error: Option<FabricError>,
    /// Events that still name it.
    pub(crate) events: u32,
    pub(crate) completing: bool,
    /// The node works on it, or has.
    pub(crate) arrived: bool,
    /// Whoever posted it has been told, or will never be.
    pub(crate) settled: bool,
}

/// All flights, reused.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    all: Vec<Flight>,
    free: Vec<u32>,
}

impl Flights {
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Flight::default());
            (self.all.len() - 1) as u32
        })
    }

    #[inline]
    pub(crate) fn get(&mut self, number: u32) -> &mut Flight {
        &mut self.all[number as usize]
    }

    /// Gives it back once nothing names it any more.
    pub(crate) fn release_if_over(&mut self, number: u32) {
        let flight = &mut self.all[number as usize];
        if flight.events > 0 || !flight.settled {
            return;
        }
        flight.token = None;
        flight.verbs.clear();
        flight.words.clear();
        flight.parts.clear();
        flight.cut = None;
        flight.maimed = None;
        flight.error = None;
        flight.completing = false;
        flight.arrived = false;
        flight.settled = false;
        self.free.push(number);
    }
}

impl Flight {
    /// The words of a part.
    pub(crate) fn words_of(&mut self, part: Part) -> (FlightVerb, &mut [u64]) {
        let verb = self.verbs[part.verb as usize];
        let first = (verb.first + part.first) as usize;
        (verb, &mut self.words[first..first + part.words as usize])
    }

    /// Whether a part has taken effect.
    pub(crate) fn landed(&self, part: u32) -> bool {
        self.parts[part as usize].landed
    }

    pub(crate) fn land(&mut self, part: u32) {
        self.parts[part as usize].landed = true;
    }

    /// Nothing from this verb on takes effect any more.
    pub(crate) fn cut_from(&mut self, verb: u32) {
        self.cut = Some(self.cut.map_or(verb, |known| known.min(verb)));
    }

    /// Whether all of it takes effect, sooner or later.
    pub(crate) fn is_whole(&self) -> bool {
        self.maimed.is_none() && self.cut.is_none_or(|cut| cut as usize >= self.verbs.len())
    }

    pub(crate) fn is_cut(&self, verb: u32) -> bool {
        self.cut.is_some_and(|cut| verb >= cut)
    }
}
