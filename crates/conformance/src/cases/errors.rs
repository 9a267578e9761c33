//! C5, and operations that no backend may execute.

use anyhow::{Result, bail, ensure};
use farside_fabric::{
    Doorbell, FabricError, MAX_ROUND_BYTES, MAX_VERB_BYTES, NodeId, Persistence, Refusal,
};

use super::{finish, queues, read, start};
use crate::actor::{Job, Role};
use crate::bed::{Bed, NODE_BYTES};

const AT: u64 = 8192;

/// What not to do, and how it is refused.
type Misuse = (&'static str, fn(&mut Doorbell<'_>), fn(&Refusal) -> bool);

const MISUSES: &[Misuse] = &[
    ("a READ of nothing", |b| _ = b.read(AT, 0), |r| matches!(r, Refusal::Empty { at: AT })),
    ("a WRITE of nothing", |b| b.write(AT, &[]), |r| matches!(r, Refusal::Empty { at: AT })),
    ("a READ at 4", |b| _ = b.read(4, 8), |r| matches!(r, Refusal::Misaligned { at: 4, .. })),
    ("a READ of 12 bytes", |b| _ = b.read(AT, 12), |r| matches!(r, Refusal::Misaligned { .. })),
    ("a WRITE at 1", |b| b.write(1, &[1]), |r| matches!(r, Refusal::Misaligned { .. })),
    ("a CAS at 7", |b| _ = b.cas(7, 0, 1), |r| matches!(r, Refusal::Misaligned { .. })),
    ("an FAA at 9", |b| _ = b.faa(9, 1), |r| matches!(r, Refusal::Misaligned { .. })),
    (
        "a giant READ",
        |b| _ = b.read(0, MAX_VERB_BYTES as usize + 8),
        |r| matches!(r, Refusal::TooLarge { .. }),
    ),
    (
        "an absurd READ",
        |b| _ = b.read(0, usize::MAX - 7),
        |r| matches!(r, Refusal::TooLarge { .. }),
    ),
    (
        "a READ beyond the end",
        |b| _ = b.read(NODE_BYTES - 8, 16),
        |r| matches!(r, Refusal::OutOfBounds { bytes: 16, memory: NODE_BYTES, .. }),
    ),
    (
        "a WRITE at the end",
        |b| b.write(NODE_BYTES, &[1]),
        |r| matches!(r, Refusal::OutOfBounds { .. }),
    ),
    (
        "a CAS at the end of the address space",
        |b| _ = b.cas(u64::MAX - 7, 0, 1),
        |r| matches!(r, Refusal::OutOfBounds { .. }),
    ),
    ("an FAA far away", |b| _ = b.faa(1 << 63, 1), |r| matches!(r, Refusal::OutOfBounds { .. })),
    (
        "too many verbs",
        |b| (0..=MAX_ROUND_BYTES / 16).for_each(|_| b.flush()),
        |r| matches!(r, Refusal::RoundTooLarge),
    ),
];

pub(super) async fn misuse_is_refused_and_has_no_effect(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    for (what, misuse, expected) in MISUSES {
        let mut round = worker.round();
        round.to(&queues[0]).write(AT, &[1]);
        round.to(&queues[1]).write(AT, &[1]);
        misuse(&mut round.to(&queues[1]));
        round.to(&queues[1]).write(AT, &[2]);
        match round.ring().await {
            Err(FabricError::Refused(refusal)) if expected(&refusal) => {}
            other => bail!("{what}: {other:?}"),
        }
        for queue in &queues {
            ensure!(!queue.is_broken(), "{what} broke the queue");
            ensure!(
                read(bed, queue, AT, 1).await? == [0],
                "{what} was refused, but with an effect"
            );
        }
    }
    Ok(())
}

pub(super) async fn a_dead_node_fails_its_doorbells_only(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let lost = queues[1].node();
    let victim = Job { role: Role::Add, node: 1, at: AT, count: u64::MAX, me: 1 };
    let count = bed.times(20_000);
    let survivor = Job { node: 0, count, me: 2, ..victim };
    let mut actors = start(bed, &[victim, survivor]).await?;
    bed.kill_node(lost)?;

    let mut round = worker.round();
    round.to(&queues[0]).write(AT + 64, &[1]);
    let good = round.to(&queues[0]).read(AT + 64, 8);
    let bad = round.to(&queues[1]).read(AT, 8);
    let outcomes = round.ring().outcomes().await;
    ensure!(outcomes.node(queues[0].node()) == Some(Ok(())));
    ensure!(outcomes.words(good)? == [1]);
    let error = outcomes.node(lost);
    let gone = |e: &FabricError| matches!(e, FabricError::NodeGone(node) if *node == lost);
    ensure!(matches!(&error, Some(Err(e)) if gone(e)), "{error:?}");
    ensure!(outcomes.words(bad).is_err() && outcomes.all().is_err());

    ensure!(queues[1].is_broken());
    let next = {
        let mut round = worker.round();
        round.to(&queues[1]).read(AT, 8);
        round.ring().await.err()
    };
    ensure!(next == Some(FabricError::Broken(lost)), "{next:?}");
    let reconnected = queues[1].reconnect().await;
    ensure!(matches!(&reconnected, Err(e) if gone(e)), "{reconnected:?}");
    let connected = bed.connect(lost).map(drop);
    ensure!(matches!(&connected, Err(e) if gone(e)), "{connected:?}");

    let survivor = actors.pop().expect("two were started");
    finish(bed, vec![survivor]).await?;
    ensure!(read(bed, &queues[0], AT, 1).await? == [count]);
    let ended = actors.pop().expect("two were started").join(bed.worker()).await;
    let crate::Ended::Failed(why) = &ended else { bail!("the victim {ended:?}") };
    ensure!(why.contains("gone"), "the victim failed with: {why}");
    Ok(())
}

pub(super) async fn a_restarted_node_is_another_one(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let write = |value: u64| {
        let mut round = worker.round();
        round.to(&queues[1]).write(AT, &[value]);
        round.ring()
    };
    write(1).await?;
    bed.kill_node(NodeId(1))?;
    if !bed.restart_node(NodeId(1))? {
        return Ok(());
    }
    ensure!(write(2).await.is_err(), "a queue to the old incarnation still works");
    ensure!(write(3).await.err() == Some(FabricError::Broken(NodeId(1))));
    queues[1].reconnect().await?;
    let left = read(bed, &queues[1], AT, 1).await?;
    let volatile = queues[1].capabilities().persistence == Persistence::Volatile;
    ensure!(left == [0] || (left == [1] && !volatile), "{left:?} is left of the old incarnation");
    write(4).await?;
    ensure!(read(bed, &queues[1], AT, 1).await? == [4]);
    Ok(())
}
