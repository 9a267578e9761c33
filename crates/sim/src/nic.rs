//! A NIC: engines that serve one message after the other, bandwidth, and what slows them.

use crate::busy::Meter;
use crate::profile::Profile;

/// The NICs of one machine. Times are picoseconds of virtual time.
#[derive(Debug)]
pub(crate) struct Nics {
    ports: Vec<Port>,
    /// How busy its engines are, all ports together.
    pub(crate) meters: [Meter; 3],
    /// When the last atomic on each bucket is finished.
    buckets: Vec<u64>,
    /// Until when each processing unit is occupied by an atomic, those of all ports in turn.
    units: Vec<u64>,
    /// Queue pairs that end here.
    queues: usize,
    /// How many ever did: each has a number of its own, by which ports and processing units share them.
    numbered: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Port {
    sending: u64,
    serving: u64,
    receiving: u64,
}

/// Which of a port's engines.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Engine {
    /// Requests that leave.
    Sending,
    /// Requests that arrive, with their answers.
    Serving,
    /// Answers that arrive.
    Receiving,
}

impl Nics {
    pub(crate) fn new(profile: &Profile) -> Self {
        Nics {
            ports: vec![Port::default(); profile.nics],
            meters: Default::default(),
            buckets: Vec::new(),
            units: vec![0; profile.units as usize * profile.nics],
            queues: 0,
            numbered: 0,
        }
    }

    /// One more queue pair ends here; its number.
    pub(crate) fn connect(&mut self) -> u32 {
        self.queues += 1;
        self.numbered += 1;
        self.numbered - 1
    }

    pub(crate) fn disconnect(&mut self) {
        self.queues -= 1;
    }

    pub(crate) fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Serves a message of one of its queue pairs that is there at `now`; returns when it is done.
    #[inline]
    pub(crate) fn serve(
        &mut self,
        profile: &Profile,
        pair: u32,
        engine: Engine,
        now: u64,
        message: u64,
        bytes: u64,
    ) -> u64 {
        let on_wire = (bytes + profile.packet_overhead) as f64 / profile.bandwidth * 1000.0;
        // Fetching connection state overlaps with moving the payload.
        let work = (message + self.queue_miss(profile)).max(on_wire as u64);
        self.meters[engine as usize].add(work);
        let port = pair as usize % self.ports.len();
        let port = &mut self.ports[port];
        let free = match engine {
            Engine::Sending => &mut port.sending,
            Engine::Serving => &mut port.serving,
            Engine::Receiving => &mut port.receiving,
        };
        *free = now.max(*free) + work;
        *free
    }

    /// The mean cost of fetching connection state that is not cached.
    #[inline]
    fn queue_miss(&self, profile: &Profile) -> u64 {
        let per_port = self.queues / self.ports.len();
        if per_port <= profile.cached_queues {
            return 0;
        }
        let missing = 1.0 - profile.cached_queues as f64 / per_port as f64;
        (profile.queue_miss as f64 * missing) as u64
    }

    /// When the processing unit of a queue looks at a message that is there at `now`.
    #[inline]
    pub(crate) fn looks_at(&self, pair: u32, now: u64) -> u64 {
        now.max(self.units[pair as usize % self.units.len()])
    }

    /// An atomic waits for the bucket of its address, and occupies that and the processing unit of its queue;
    /// returns when its turn begins. All units together make up the rate of `message`.
    #[inline]
    pub(crate) fn take_turn(
        &mut self,
        profile: &Profile,
        pair: u32,
        at: u64,
        now: u64,
        message: u64,
    ) -> u64 {
        if self.buckets.is_empty() {
            self.buckets = vec![0; 1 << profile.atomic_bucket_bits];
        }
        let bucket = &mut self.buckets[(at & ((1 << profile.atomic_bucket_bits) - 1)) as usize];
        let turn = now.max(*bucket);
        let end = turn + message * profile.units;
        *bucket = end;
        let units = self.units.len();
        self.units[pair as usize % units] = end;
        turn
    }
}
