//! C1: what is ordered, and what is not.

use std::rc::Rc;

use farside_fabric::{Queue, Worker};

use super::{Stop, Style, reconnect};
use crate::sim::Sim;

const X: u64 = 64;
const Y: u64 = 4096;

/// A process with one thread and a queue to a node.
pub(super) fn client(sim: &Sim, node: farside_fabric::NodeId) -> (Worker, Queue) {
    let process = sim.add_process();
    let worker = sim.add_thread(process);
    let queue = sim.connect(process, &worker, node).expect("the node is there");
    (worker, queue)
}

pub(super) fn write_after_read(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let (worker, queue) = client(sim, sim.add_node(1 << 16));
    worker.block_on(async {
        for i in 0..steps {
            let mut round = worker.round();
            let mut bell = round.to(&queue);
            let before = bell.read(X, 8);
            match style {
                Style::Careful => bell.fenced().write(X, &[i + 1]),
                Style::Careless => bell.write(X, &[i + 1]),
            }
            let found = round.ring().await?[before][0];
            if found != i {
                return Err(format!(
                    "step {i}: the READ returned {found}, which was written behind it"
                )
                .into());
            }
        }
        Ok(())
    })
}

pub(super) fn write_after_atomic(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let (worker, queue) = client(sim, sim.add_node(1 << 16));
    worker.block_on(async {
        for i in 0..steps {
            let mut round = worker.round();
            let mut bell = round.to(&queue);
            let old = bell.faa(X, 1000);
            match style {
                Style::Careful => bell.fenced().write(X, &[i + 1]),
                Style::Careless => bell.write(X, &[i + 1]),
            }
            let left = bell.read(X, 8);
            let done = round.ring().await?;
            if (done[old], done[left][0]) != (i, i + 1) {
                return Err(format!(
                    "step {i}: the FAA found {}, and {} was left",
                    done[old], done[left][0]
                )
                .into());
            }
        }
        Ok(())
    })
}

pub(super) fn atomic_after_read(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let (worker, queue) = client(sim, sim.add_node(1 << 16));
    worker.block_on(async {
        for i in 0..steps {
            let mut round = worker.round();
            let mut bell = round.to(&queue);
            let before = bell.read(X, 8);
            match style {
                Style::Careful => bell.fenced().faa(X, 1),
                Style::Careless => bell.faa(X, 1),
            };
            let found = round.ring().await?[before][0];
            if found != i {
                return Err(
                    format!("step {i}: the READ returned {found}, with the FAA behind it").into()
                );
            }
        }
        Ok(())
    })
}

/// A writer posts a WRITE to one word and then, without waiting, to another; a reader looks at both.
/// Careful: on one queue, whose order holds in spite of errors, too. Careless: on two.
pub(super) fn across_queues(sim: &Sim, style: Style, steps: u64) -> Result<(), Stop> {
    let node = sim.add_node(1 << 16);
    let process = sim.add_process();
    let writer = sim.add_thread(process);
    let connect = || sim.connect(process, &writer, node);
    let first = connect()?;
    let second = if style.is_careful() { first.clone() } else { connect()? };
    let (reader, queue) = client(sim, node);
    let done = Rc::new(std::cell::Cell::new(false));
    let writing = writer.spawn({
        let (me, done) = (writer.clone(), Rc::clone(&done));
        async move {
            for i in 1..=steps {
                let mut round = me.round();
                round.to(&first).write(X, &[i]);
                let before = round.ring();
                let mut round = me.round();
                round.to(&second).write(Y, &[i]);
                let behind = round.ring();
                let failed = before.await.is_err() | behind.await.is_err();
                if failed {
                    reconnect(&first).await;
                    reconnect(&second).await;
                }
            }
            done.set(true);
        }
    });
    reader.block_on(async {
        while !done.get() {
            let mut round = reader.round();
            let second = round.to(&queue).read(Y, 8);
            let first = round.to(&queue).read(X, 8);
            let Ok(words) = round.ring().await else {
                reconnect(&queue).await;
                continue;
            };
            let (first, second) = (words[first][0], words[second][0]);
            if first < second {
                return Err(
                    format!("the second word was {second} when the first was {first}").into()
                );
            }
        }
        writing.await;
        Ok(())
    })
}
