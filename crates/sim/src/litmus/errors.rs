//! C5 and C6: failed doorbells, and clients that are not heard of any more.

use std::time::Duration;

use super::Style;
use super::order::{client, fine};
use crate::sim::Sim;

const X: u64 = 64;

/// Counts to `steps` in spite of errors. Careless: adds again after each error. Careful: swaps from
/// one number to the next, which can be repeated.
pub(super) fn error_is_no_effect(sim: &Sim, style: Style, steps: u64) -> Result<(), String> {
    let (worker, queue) = client(sim, sim.add_node(1 << 16));
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
                fine(queue.reconnect().await)?;
            }
        }
        loop {
            let mut round = worker.round();
            let word = round.to(&queue).read(X, 8);
            match round.ring().await {
                Ok(done) if done[word][0] == steps => return Ok(()),
                Ok(done) => return Err(format!("{steps} were counted as {}", done[word][0])),
                Err(_) => {}
            }
            fine(queue.reconnect().await)?;
        }
    })
}

/// A client writes 1 and is killed; another one then writes 2 and wants it to stay. Careless: it
/// waits for a while first. Careful: it fences.
pub(super) fn silence_is_death(sim: &Sim, style: Style, steps: u64) -> Result<(), String> {
    let node = sim.add_node(1 << 16);
    let (worker, queue) = client(sim, node);
    worker.block_on(async {
        for i in 0..steps.min(20) {
            let process = sim.add_process();
            let victim = sim.add_thread(process);
            let its_queue = fine(sim.connect(process, &victim, node))?;
            victim
                .spawn({
                    let me = victim.clone();
                    async move {
                        let mut round = me.round();
                        round.to(&its_queue).write(X, &[1]);
                        let _ = round.ring().await;
                    }
                })
                .detach();
            worker.sleep(Duration::from_nanos(500)).await;
            sim.kill(process);
            match style {
                Style::Careful => fine(queue.fence(sim.client(process)).await)?,
                Style::Careless => worker.sleep(Duration::from_micros(20)).await,
            }
            let mut round = worker.round();
            round.to(&queue).write(X, &[2]);
            fine(round.ring().await)?;
            worker.sleep(Duration::from_millis(1)).await;
            let mut round = worker.round();
            let word = round.to(&queue).read(X, 8);
            let left = fine(round.ring().await)?[word][0];
            if left != 2 {
                return Err(format!("step {i}: a dead client wrote {left} after it was given up"));
            }
        }
        Ok(())
    })
}
