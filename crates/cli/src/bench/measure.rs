//! Measures one verb on one queue: as many rounds as the time or count allows, each of one verb.

use std::collections::VecDeque;
use std::time::Duration;

use farside_fabric::{Queue, Result, Ringing, Round, Worker};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::verbs::{Spec, Verb};

/// Rounds faster than this are timed in groups: reading the clock takes as long as a round.
const TIMED_ALONE: Duration = Duration::from_micros(1);
const GROUP: u64 = 64;

/// Addresses step through this many bytes (a power of two), which stay in the core's cache: what is measured is the
/// fabric, not the memory.
pub(super) const WINDOW: u64 = 32 << 10;

/// What one thread measured.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct Sample {
    pub(super) rounds: u64,
    pub(super) nanoseconds: u64,
    /// Latencies: picoseconds and how often.
    pub(super) latencies: Vec<(u64, u64)>,
}

/// For latencies in picoseconds, up to a quarter of an hour.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1_000_000_000_000_000, 3).expect("these bounds are fine")
}

/// Measures `spec` on memory that begins at `base`.
pub(super) async fn measure(
    worker: &Worker,
    queue: &Queue,
    spec: &Spec,
    base: u64,
) -> Result<Sample> {
    let mut run =
        Run { worker, queue, spec, base, words: vec![0x5a5a; spec.bytes / 8], step: 0, swapped: 0 };
    run.prepare().await?;
    let group = run.calibrate().await?;
    let mut latencies = histogram();
    let (limit, rounds) = match spec.rounds {
        Some(rounds) => (Duration::MAX, rounds),
        None => (Duration::from_secs_f64(spec.seconds), u64::MAX),
    };
    let start = worker.now();
    let mut before = start;
    let mut done = 0;
    let mut elapsed = Duration::ZERO;
    while done < rounds && elapsed < limit {
        let now_many = group.min(rounds - done);
        run.rounds(now_many).await?;
        done += now_many;
        let now = worker.now();
        let picoseconds = (now - before).as_nanos() as u64 * 1000 / now_many;
        // With several in flight, each waits as long as that many take.
        latencies.saturating_record_n(picoseconds * u64::from(spec.outstanding), now_many);
        (before, elapsed) = (now, now - start);
    }
    Ok(Sample {
        rounds: done,
        nanoseconds: elapsed.as_nanos() as u64,
        latencies: latencies
            .iter_recorded()
            .map(|v| (v.value_iterated_to(), v.count_at_value()))
            .collect(),
    })
}

struct Run<'a> {
    worker: &'a Worker,
    queue: &'a Queue,
    spec: &'a Spec,
    base: u64,
    words: Vec<u64>,
    step: u64,
    /// What the word of the CAS holds.
    swapped: u64,
}

impl<'a> Run<'a> {
    async fn prepare(&self) -> Result<()> {
        let mut round = self.worker.round();
        round.to(self.queue).write(self.base, &[0]);
        round.ring().await?;
        Ok(())
    }

    /// Warms up, and chooses how many rounds share a reading of the clock.
    async fn calibrate(&mut self) -> Result<u64> {
        self.rounds(GROUP).await?;
        let start = self.worker.now();
        self.rounds(GROUP).await?;
        let each = (self.worker.now() - start) / GROUP as u32;
        let outstanding = u64::from(self.spec.outstanding);
        Ok(if each < TIMED_ALONE { GROUP.max(outstanding) } else { outstanding })
    }

    /// So many rounds, with as many in flight at once as the spec says.
    async fn rounds(&mut self, count: u64) -> Result<()> {
        if self.spec.outstanding == 1 {
            for _ in 0..count {
                self.next_round().ring().await?;
            }
            return Ok(());
        }
        let most = self.spec.outstanding as usize;
        let mut flying: VecDeque<Ringing<'a>> = VecDeque::with_capacity(most);
        for _ in 0..count {
            if flying.len() == most {
                flying.pop_front().expect("it is full").await?;
            }
            let round = self.next_round();
            flying.push_back(round.ring());
        }
        for round in flying {
            round.await?;
        }
        Ok(())
    }

    #[inline(always)]
    fn next_round(&mut self) -> Round<'a> {
        let bytes = self.spec.bytes;
        self.step = (self.step + 64) & (WINDOW - 64);
        let at = self.base + 64 + self.step;
        let mut round = self.worker.round();
        let mut bell = round.to(self.queue);
        match self.spec.verb {
            Verb::Read => _ = bell.read(at, bytes),
            Verb::Write => bell.write(at, &self.words),
            Verb::Cas => {
                bell.cas(self.base, self.swapped, self.swapped + 1);
                self.swapped += 1;
            }
            Verb::Faa => _ = bell.faa(self.base, 1),
            Verb::Flush => bell.flush(),
        }
        round
    }
}
