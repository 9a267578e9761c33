//! C6, and clients that die.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{finish, queues, read, start};
use crate::actor::{Job, LARGE_WORDS, Role, wait_for};
use crate::bed::{Bed, Ended};

const AT: u64 = 8192;

fn endless(role: Role, me: u64) -> Job {
    Job { role, node: 1, at: AT, count: u64::MAX, me }
}

pub(super) async fn a_fenced_client_changes_nothing_more(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let mut actors = start(bed, &[endless(Role::Add, 1)]).await?;
    wait_for(worker, &queues[1], AT, 1000).await?;
    let victim = actors.pop().expect("one was started");
    for queue in &queues {
        queue.fence(victim.client()).await?;
    }
    let at_fence = read(bed, &queues[1], AT, 1).await?;
    worker.sleep(Duration::from_millis(50)).await;
    let later = read(bed, &queues[1], AT, 1).await?;
    ensure!(at_fence == later, "{at_fence:?} when it was fenced, {later:?} later");
    let ended = victim.join(bed.worker()).await;
    ensure!(ended.by_fence(), "the victim {ended:?}");
    Ok(())
}

/// The victim is in the middle of a large WRITE, and two clients fence it at once: when either fence
/// has returned, no word changes any more.
pub(super) async fn a_fence_waits_for_what_is_under_way(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let actors = start(bed, &[endless(Role::WriteLarge, 1)]).await?;
    wait_for(worker, &queues[1], AT, 3).await?;
    let victim = actors[0].client();
    let fence_and_look = || {
        let (me, queue) = (worker.clone(), queues[1].clone());
        worker.spawn(async move {
            queue.fence(victim).await?;
            let mut round = me.round();
            let all = round.to(&queue).read(AT, LARGE_WORDS * 8);
            Ok::<_, farside_fabric::FabricError>(round.ring().await?[all].to_vec())
        })
    };
    let (first, second) = (fence_and_look(), fence_and_look());
    let (first, second) = (first.await?, second.await?);
    worker.sleep(Duration::from_millis(20)).await;
    let later = read(bed, &queues[1], AT, LARGE_WORDS).await?;
    ensure!(first == later && second == later, "memory changed after a fence had returned");
    Ok(())
}

pub(super) async fn a_fenced_client_cannot_come_back(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let mut actors = start(bed, &[endless(Role::Add, 1)]).await?;
    wait_for(worker, &queues[1], AT, 1).await?;
    let victim = actors.pop().expect("one was started");
    let client = victim.client();
    for queue in &queues {
        queue.fence(client).await?;
        queue.fence(client).await?; // twice does no harm
    }
    victim.join(bed.worker()).await;
    let before = read(bed, &queues[1], AT, 1).await?;
    let ended = bed.spawn(endless(Role::Add, 2), Some(client))?.join(bed.worker()).await;
    ensure!(matches!(&ended, Ended::Failed(why) if why.contains("fenced")), "it {ended:?}");
    ensure!(read(bed, &queues[1], AT, 1).await? == before);
    Ok(())
}

/// Three clients at work, one of them killed in the middle of its writes: the others lose nothing,
/// and a new one can take its place.
pub(super) async fn a_killed_client_disturbs_nobody(bed: &dyn Bed) -> Result<()> {
    let queues = queues(bed)?;
    let count = bed.times(50_000);
    let adder = |me| Job { count, ..endless(Role::Add, me) };
    let writer = Job { at: AT + 4096, ..endless(Role::WritePatterns, 3) };
    let mut actors = start(bed, &[adder(1), adder(2), writer]).await?;
    wait_for(bed.worker(), &queues[1], AT, 1000).await?;
    let mut victim = actors.pop().expect("three were started");
    victim.kill();
    let replacement = bed.spawn(adder(4), None)?;
    let ended = victim.join(bed.worker()).await;
    ensure!(ended == Ended::Killed, "the victim {ended:?}");
    actors.push(replacement);
    finish(bed, actors).await?;
    ensure!(read(bed, &queues[1], AT, 1).await? == [3 * count]);
    Ok(())
}
