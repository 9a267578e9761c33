//! Rounds: several nodes at once, many at once, dropped half-way, acknowledged passively.

use anyhow::{Result, ensure};
use farside_fabric::{Phase, Tally};

use super::{queues, read};
use crate::bed::Bed;

const AT: u64 = 8192;

pub(super) async fn a_round_to_several_nodes_is_one_round_trip(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let tally = Tally::default();
    let mut round = worker.round().counted(&tally, Phase(0));
    let mut tickets = Vec::new();
    for (number, queue) in queues.iter().enumerate() {
        round.to(queue).write(AT, &[number as u64 + 5]);
        tickets.push(round.to(queue).read(AT, 8));
    }
    let done = round.ring().await?;
    for (number, ticket) in tickets.into_iter().enumerate() {
        ensure!(done[ticket] == [number as u64 + 5], "node {number} has {:?}", &done[ticket]);
    }
    let total = tally.total();
    ensure!(total.round_trips == 1 && total.doorbells == queues.len() as u64, "{total:?}");
    Ok(())
}

pub(super) async fn hundreds_of_tasks_have_rounds_outstanding(bed: &dyn Bed) -> Result<()> {
    const TASKS: u64 = 400;
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let (me, queues) = (worker.clone(), queues.clone());
            worker.spawn(async move {
                let at = AT + number * 64;
                for i in 0..20u64 {
                    let mut round = me.round();
                    let olds: Vec<_> =
                        queues.iter().map(|queue| round.to(queue).faa(at, 1)).collect();
                    let done = round.ring().await?;
                    for old in olds {
                        ensure!(done[old] == i, "task {number} found {} at step {i}", done[old]);
                    }
                    me.yield_now().await;
                }
                Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    Ok(())
}

pub(super) async fn an_abandoned_round_disturbs_nobody(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    for i in 1..=100u64 {
        let mut round = worker.round();
        round.to(&queues[0]).write(AT, &[i]);
        round.to(&queues[0]).read(AT, 4096);
        drop(round.ring());
        let mut round = worker.round();
        round.to(&queues[0]).write(AT + 8192, &[7; 4]);
        drop(round);
        let found = read(bed, &queues[0], AT, 1).await?;
        ensure!(found == [i], "posted and abandoned, and yet not there: {found:?}");
    }
    let unrung = read(bed, &queues[0], AT + 8192, 4).await?;
    ensure!(unrung == [0; 4], "a round that was never rung had an effect");
    Ok(())
}

pub(super) async fn a_posted_round_is_acknowledged_by_a_later_one(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    for i in 1..=100u64 {
        let mut round = worker.round();
        queues.iter().for_each(|queue| round.to(queue).write(AT, &[i]));
        let mut passive = round.post();
        let mut round = worker.round();
        let found: Vec<_> = queues.iter().map(|queue| round.to(queue).read(AT, 8)).collect();
        let done = round.ring().await?;
        ensure!(found.into_iter().all(|ticket| done[ticket] == [i]), "a READ overtook a WRITE");
        ensure!(passive.acknowledged() == Some(Ok(())), "not acknowledged by the later round");
    }
    Ok(())
}

pub(super) async fn an_empty_round_completes(bed: &dyn Bed) -> Result<()> {
    bed.worker().round().ring().await?;
    Ok(())
}

pub(super) async fn large_verbs_move_all_their_bytes(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let bytes = farside_fabric::MAX_VERB_BYTES;
    let words: Vec<u64> = (0..bytes / 8).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    for queue in &queues {
        let mut round = worker.round();
        round.to(queue).write(AT, &words);
        round.ring().await?;
        let mut round = worker.round();
        let found = round.to(queue).read(AT, bytes as usize);
        ensure!(round.ring().await?[found] == words[..], "the bytes that came back differ");
    }
    Ok(())
}
