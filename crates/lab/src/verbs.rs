//! WRITEs to persistent memory, beside threads that READ it (`ford.txt` Fig. 3).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{Queue, Worker};
use farside_sim::{Faults, Profile, Sim};
use serde::Deserialize;

use crate::run::{Curve, Pace};
use crate::verdict::{Verdict, verdict};
use crate::{Experiment, run};

/// Threads that write, and more and more that read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    /// Threads that write.
    pub writers: usize,
    /// What each of them has under way.
    pub outstanding: usize,
    /// Threads that read, one READ at a time.
    pub readers: Vec<usize>,
    /// The same, if it has to be quick.
    pub quick_readers: Vec<usize>,
    /// Bytes of a verb.
    pub bytes: usize,
    /// By how many of a hundred the most readers slow the writers down.
    pub claim: String,
}

const MEMORY: u64 = 4 << 20;

/// What is measured, after half as much.
const SPAN: Duration = Duration::from_micros(200);

impl Mixed {
    pub(crate) fn sizes(&self, quick: bool) -> &[usize] {
        if quick { &self.quick_readers } else { &self.readers }
    }

    /// Millions of WRITEs in a second beside so many readers.
    fn rate(&self, profile: Profile, seed: u64, readers: usize) -> f64 {
        let sim = Sim::new(profile, seed, Faults::none());
        let node = sim.add_node(MEMORY);
        let written: Rc<Cell<u64>> = Rc::default();
        let mut clients = Vec::new();
        for (threads, outstanding, writes) in
            [(self.writers, self.outstanding, true), (readers, 1, false)]
        {
            let process = sim.add_process();
            for _ in 0..threads {
                let worker = sim.add_thread(process);
                let queue = sim.connect(process, &worker, node).expect("a node that is up");
                for _ in 0..outstanding {
                    let (me, queue) = (worker.clone(), queue.clone());
                    let (bytes, written) = (self.bytes, writes.then(|| Rc::clone(&written)));
                    clients.push(
                        worker.spawn(async move { go_on(&me, &queue, bytes, written).await }),
                    );
                }
            }
        }
        let process = sim.add_process();
        let observer = sim.add_thread(process);
        let count = observer.block_on(async {
            observer.sleep(SPAN / 2).await;
            let before = written.get();
            observer.sleep(SPAN).await;
            written.get() - before
        });
        sim.end();
        count as f64 / SPAN.as_secs_f64() / 1e6
    }
}

/// Reads or writes anywhere, again and again.
async fn go_on(worker: &Worker, queue: &Queue, bytes: usize, written: Option<Rc<Cell<u64>>>) {
    let words = vec![1; bytes / 8];
    loop {
        let at = worker.random_below((MEMORY - bytes as u64) / 8) * 8;
        let mut round = worker.round();
        let mut bell = round.to(queue);
        match written {
            Some(_) => bell.write(at, &words),
            None => _ = bell.read(at, bytes),
        }
        if round.ring().await.is_err() {
            return;
        }
        written.iter().for_each(|written| written.set(written.get() + 1));
    }
}

impl Experiment {
    pub(crate) fn run_mixed(
        &self,
        mixed: &Mixed,
        pace: &Pace<'_>,
    ) -> Result<(Vec<Curve>, Vec<Verdict>), String> {
        let profile = run::named(&self.profile)?;
        let points = run::on_all_cores(mixed.sizes(pace.quick), |readers| {
            let rate = mixed.rate(profile, self.seed, *readers);
            (pace.tell)();
            (*readers as f64, rate)
        });
        let (alone, beside) = (points.first(), points.last());
        let drop = alone.zip(beside).map(|(alone, beside)| 100.0 * (1.0 - beside.1 / alone.1));
        let curve = Curve {
            name: format!("WRITEs of {} bytes", mixed.bytes),
            x: "threads that read".into(),
            y: "millions of WRITEs in a second".into(),
            points,
        };
        Ok((vec![curve], vec![verdict(&mixed.claim, drop, &self.why)?]))
    }
}
