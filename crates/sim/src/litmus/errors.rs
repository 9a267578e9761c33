//! C5 and C6: failed doorbells, and clients that are not heard of any more.

use std::time::Duration;

use super::order::client;
use super::{Stop, Style, reconnect};
use crate::sim::Sim;

const X: u64 = 64;
const WORDS: usize = 24;

/// Counts to `steps` in spite of errors. Careless: adds again after each error. Careful: swaps from
/// one number to the next, which can be repeated.
pub(super) fn error_is_no_effect(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let node = sim.add_node(1 << 16);
    let process = sim.add_process();
    let worker = sim.add_thread(process);
    sim.expose(process, true);
    sim.expose_node(node, true);
    let queue = sim.connect(process, &worker, node)?;
    worker.block_on(async {
        for i in 0..steps {
            loop {
                let mut round = worker.round();
                match style {
                    Style::Careful => round.to(&queue).cas(X, i, i + 1),
                    Style::Careless => round.to(&queue).faa(X, 1),
                };
                if round.ring().await.is_ok() {
                    break;
                }
                reconnect(&queue).await;
            }
        }
        loop {
            let mut round = worker.round();
            let word = round.to(&queue).read(X, 8);
            match round.ring().await {
                Ok(done) if done[word][0] == steps => return Ok(()),
                Ok(done) => return Err(format!("{steps} were counted as {}", done[word][0]).into()),
                Err(_) => {}
            }
            reconnect(&queue).await;
        }
    })
}

/// A client writes a few words and is killed in the middle of it; another one takes over what it
/// finds, and wants it to stay. Careless: it waits for a while first. Careful: it fences.
pub(super) fn silence_is_death(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let node = sim.add_node(1 << 16);
    let (worker, queue) = client(sim, node);
    worker.block_on(async {
        for i in 1..=steps.min(20) {
            let process = sim.add_process();
            let victim = sim.add_thread(process);
            let its_queue = sim.connect(process, &victim, node)?;
            victim
                .spawn({
                    let me = victim.clone();
                    async move {
                        loop {
                            let mut round = me.round();
                            round.to(&its_queue).write(X, &[me.random(); WORDS]);
                            let _ = round.ring().await;
                        }
                    }
                })
                .detach();
            worker.sleep(Duration::from_nanos(worker.random_below(8_000))).await;
            sim.kill(process);
            match style {
                Style::Careful => queue.fence(sim.client(process)).await?,
                Style::Careless => worker.sleep(Duration::from_micros(20)).await,
            }
            let mut round = worker.round();
            let found = round.to(&queue).read(X, WORDS * 8);
            let found = round.ring().await?[found].to_vec();
            worker.sleep(Duration::from_millis(40)).await;
            let mut round = worker.round();
            let later = round.to(&queue).read(X, WORDS * 8);
            if round.ring().await?[later] != found[..] {
                return Err(format!("step {i}: a dead client wrote after it was given up").into());
            }
        }
        Ok(())
    })
}
