//! C1: verbs of one queue take effect in posted order, in the cases that are promised.

use anyhow::{Result, ensure};

use super::{finish, queues, read, start};
use crate::actor::{Job, Role};
use crate::bed::Bed;

const AT: u64 = 8192;

pub(super) async fn a_read_sees_the_writes_before_it(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    for i in 0..1000u64 {
        let mut round = worker.round();
        let mut bell = round.to(&queues[0]);
        bell.write(AT, &[i, i + 1, i + 2]);
        bell.write(AT + 8, &[i + 7]);
        let found = bell.read(AT, 24);
        let done = round.ring().await?;
        ensure!(done[found] == [i, i + 7, i + 2], "round {i} read {:?}", &done[found]);
    }
    Ok(())
}

/// Two words that are changed one after the other: whoever reads the second first, and then the
/// first, never finds the first behind.
async fn pairs_stay_in_order(bed: &dyn Bed, role: Role) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let count = bed.times(20_000);
    let job = Job { role, node: 0, at: AT, count, me: 1 };
    let actors = start(bed, &[job]).await?;
    loop {
        let mut round = worker.round();
        let second = round.to(&queues[0]).read(AT + 64, 8);
        let first = round.to(&queues[0]).read(AT, 8);
        let done = round.ring().await?;
        let (first, second) = (done[first][0], done[second][0]);
        ensure!(first >= second, "the second word was {second} when the first was {first}");
        if second == count {
            return finish(bed, actors).await;
        }
    }
}

pub(super) async fn writes_land_in_posted_order(bed: &dyn Bed) -> Result<()> {
    pairs_stay_in_order(bed, Role::WritePairs).await
}

pub(super) async fn atomics_land_in_posted_order(bed: &dyn Bed) -> Result<()> {
    pairs_stay_in_order(bed, Role::AddPairs).await
}

/// Each side announces itself and then looks for the other; at least one must see the other.
async fn never_both_unseen(bed: &dyn Bed, role: Role) -> Result<()> {
    let side = |me| Job { role, node: 0, at: AT, count: bed.times(3_000), me };
    let actors = start(bed, &[side(1), side(2)]).await?;
    finish(bed, actors).await
}

pub(super) async fn a_read_never_overtakes_a_write(bed: &dyn Bed) -> Result<()> {
    never_both_unseen(bed, Role::WriteThenRead).await
}

pub(super) async fn an_atomic_never_overtakes_a_write(bed: &dyn Bed) -> Result<()> {
    never_both_unseen(bed, Role::WriteThenAtomic).await
}

pub(super) async fn a_read_never_overtakes_an_atomic(bed: &dyn Bed) -> Result<()> {
    never_both_unseen(bed, Role::AtomicThenRead).await
}

pub(super) async fn a_read_behind_a_lock_sees_what_the_last_holder_wrote(
    bed: &dyn Bed,
) -> Result<()> {
    let count = bed.times(5_000);
    let holder = |me| Job { role: Role::LockAdd, node: 1, at: AT, count, me };
    let actors = start(bed, &[holder(1), holder(2), holder(3)]).await?;
    finish(bed, actors).await?;
    let found = read(bed, &queues(bed)?[1], AT + 64, 1).await?;
    ensure!(found == [3 * count], "the counter is {found:?}");
    Ok(())
}

pub(super) async fn a_fenced_write_stays_behind_a_read(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    for i in 0..1000u64 {
        let mut round = worker.round();
        let mut bell = round.to(&queues[0]);
        let before = bell.read(AT, 8);
        bell.fenced().write(AT, &[i + 1]);
        let old = bell.fenced().faa(AT + 8, 1);
        bell.fenced().write(AT + 8, &[i + 1]);
        let done = round.ring().await?;
        ensure!(done[before] == [i], "the READ saw the WRITE behind it");
        ensure!(done[old] == i, "the FAA saw the WRITE behind it");
    }
    Ok(())
}

pub(super) async fn a_fenced_atomic_stays_behind_a_read(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    for i in 0..1000u64 {
        let mut round = worker.round();
        let mut bell = round.to(&queues[0]);
        let before = bell.read(AT, 8);
        bell.fenced().faa(AT, 1);
        let done = round.ring().await?;
        ensure!(done[before] == [i], "the READ saw the FAA behind it");
    }
    Ok(())
}

pub(super) async fn a_flush_completes_behind_writes(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    for i in 0..20u64 {
        let mut round = worker.round();
        let mut bell = round.to(&queues[0]);
        bell.write(AT, &[i; 64]);
        bell.flush();
        let found = bell.read(AT, 512);
        let done = round.ring().await?;
        ensure!(done[found] == [i; 64], "flushed, and not there");
    }
    Ok(())
}
