//! C4: what survives a loss of power.

use super::order::client;
use super::{Stop, Style};
use crate::sim::Sim;

const A: u64 = 64;
const B: u64 = 4096;

pub(super) fn completed_is_persistent(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let node = sim.add_node(1 << 16);
    let (worker, queue) = client(sim, node);
    worker.block_on(async {
        for i in 1..=steps {
            let mut round = worker.round();
            round.to(&queue).write(A, &[i]);
            if style.is_careful() {
                round.to(&queue).flush();
            }
            round.ring().await?;
            sim.kill_node(node);
            sim.restart_node(node);
            queue.reconnect().await?;
            let mut round = worker.round();
            let left = round.to(&queue).read(A, 8);
            let left = round.ring().await?[left][0];
            if left != i {
                return Err(
                    format!("step {i}: completed, and {left} after the power failed").into()
                );
            }
        }
        Ok(())
    })
}

pub(super) fn persistent_in_order(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let node = sim.add_node(1 << 16);
    let (worker, queue) = client(sim, node);
    worker.block_on(async {
        for i in 1..=steps {
            let mut round = worker.round();
            round.to(&queue).write(A, &[i]);
            if style.is_careful() {
                // A WRITE is ordered behind a FLUSH only with a fence.
                round.to(&queue).flush();
                round.to(&queue).fenced().write(B, &[i]);
            } else {
                round.to(&queue).write(B, &[i]);
            }
            round.ring().await?;
            sim.kill_node(node);
            sim.restart_node(node);
            queue.reconnect().await?;
            let mut round = worker.round();
            let a = round.to(&queue).read(A, 8);
            let b = round.to(&queue).read(B, 8);
            let left = round.ring().await?;
            let (a, b) = (left[a][0], left[b][0]);
            if b > a {
                return Err(format!("step {i}: {b} behind {a} after the power failed").into());
            }
        }
        Ok(())
    })
}
