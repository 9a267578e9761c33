//! How busy the parts of the machines are: what is short when no more gets through.

use serde::Serialize;

use crate::nic::{Engine, Nics};
use crate::world::State;

/// The share of the time for which the busiest part of each kind was at work, since [`crate::Sim::watch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Busy {
    /// The core of a thread.
    pub core: f64,
    /// A port of a client's NIC, sending requests.
    pub sending: f64,
    /// The same, receiving answers.
    pub receiving: f64,
    /// A port of a memory node's NIC.
    pub serving: f64,
    /// What stands behind it, taking writes.
    pub memory: f64,
}

impl Busy {
    /// What was busiest.
    pub fn most(&self) -> f64 {
        let Busy { core, sending, receiving, serving, memory } = *self;
        [core, sending, receiving, serving, memory].into_iter().fold(0.0, f64::max)
    }
}

/// For how long something was at work, in picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter(u64);

impl Meter {
    #[inline]
    pub(crate) fn add(&mut self, work: u64) {
        self.0 += work;
    }
}

impl State {
    fn nics(&mut self) -> impl Iterator<Item = &mut Nics> {
        let clients = self.processes.iter_mut().map(|process| &mut process.nics);
        clients.chain(self.nodes.iter_mut().map(|node| &mut node.nics))
    }

    /// Everything begins to be watched now.
    pub(crate) fn watch(&mut self) {
        self.watched_from = self.now;
        self.nics().for_each(|nics| nics.meters = Default::default());
        self.threads.iter_mut().for_each(|thread| thread.busy = Meter::default());
        self.nodes.iter_mut().for_each(|node| node.absorbing = Meter::default());
    }

    pub(crate) fn busy(&self) -> Busy {
        let span = (self.now - self.watched_from).max(1) as f64;
        let most = |meters: &mut dyn Iterator<Item = Meter>| {
            meters.map(|meter| meter.0).max().unwrap_or(0) as f64 / span
        };
        let clients = || self.processes.iter().map(|process| &process.nics);
        let nodes = || self.nodes.iter().map(|node| &node.nics);
        // Of the ports of a machine, the mean.
        let of = |nics: &Nics, at: Engine| Meter(nics.meters[at as usize].0 / nics.ports() as u64);
        Busy {
            core: most(&mut self.threads.iter().map(|thread| thread.busy)),
            sending: most(&mut clients().map(|nics| of(nics, Engine::Sending))),
            receiving: most(&mut clients().map(|nics| of(nics, Engine::Receiving))),
            serving: most(&mut nodes().map(|nics| of(nics, Engine::Serving))),
            memory: most(&mut self.nodes.iter().map(|node| node.absorbing)),
        }
    }
}
