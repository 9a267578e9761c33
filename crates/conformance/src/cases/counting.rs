//! Counters: every verb is counted, by kind, bytes, node and phase.

use anyhow::{Result, ensure};
use farside_fabric::{Counts, NodeId, Phase, Tally};

use super::queues;
use crate::bed::{Bed, service};

const AT: u64 = 8192;
const LOCK: Phase = Phase(1);
const COMMIT: Phase = Phase(2);

pub(super) async fn verbs_are_counted_by_kind_node_and_phase(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let tally = Tally::default();

    let mut round = worker.round().counted(&tally, LOCK);
    round.to(&queues[0]).cas(AT, 0, 1);
    round.to(&queues[0]).read(AT, 64);
    round.to(&queues[1]).faa(AT, 1);
    round.ring().await?;
    let mut round = worker.round().counted(&tally, COMMIT);
    round.to(&queues[1]).write(AT, &[1, 2, 3]);
    round.to(&queues[1]).flush();
    let mut passive = round.post();
    worker.round().ring().await?; // not counted
    let mut round = worker.round().counted(&tally, COMMIT);
    round.to(&queues[1]).read(AT, 8);
    round.ring().await?;
    ensure!(passive.acknowledged() == Some(Ok(())));
    let mut round = worker.round().counted(&tally, COMMIT);
    round.to(&queues[1]).read(3, 8);
    ensure!(round.ring().await.is_err(), "a misaligned READ");
    let reply = queues[0].call(service::ECHO, b"12345").await?;
    tally.call(COMMIT, queues[0].node(), b"12345", &reply);

    let lock = Counts {
        cas: 1,
        reads: 1,
        faa: 1,
        bytes_out: 16 + 8,
        bytes_in: 8 + 64 + 8,
        doorbells: 2,
        round_trips: 1,
        ..Counts::default()
    };
    ensure!(tally.phase(LOCK) == lock, "{:?}", tally.phase(LOCK));
    let commit = Counts {
        writes: 1,
        flushes: 1,
        reads: 1,
        calls: 1,
        bytes_out: 24 + 5,
        bytes_in: 8 + 5,
        doorbells: 2,
        round_trips: 2,
        ..Counts::default()
    };
    ensure!(tally.phase(COMMIT) == commit, "{:?}", tally.phase(COMMIT));
    ensure!(tally.total() == lock + commit);
    let second = tally.node(NodeId(1));
    ensure!(second.verbs() == 4 && second.doorbells == 3 && second.calls == 0, "{second:?}");
    Ok(())
}
