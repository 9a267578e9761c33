//! The cases of the suite, by contract.

mod counting;
mod errors;
mod fencing;
mod order;
mod rounds;
mod two_sided;
mod words;

use std::task::Poll;

use anyhow::{Result, anyhow, bail};
use farside_fabric::{NodeId, Queue};

use crate::actor::{Job, READY, START};
use crate::bed::{Actor, Bed, Boxed, Ended, JOIN_PAUSE};

/// A test of one promise.
#[derive(Clone, Copy)]
pub struct Case {
    /// What is claimed.
    pub name: &'static str,
    /// Shows it, on a fresh bed.
    pub run: for<'a> fn(&'a dyn Bed) -> Boxed<'a, Result<()>>,
}

/// Expands `$use!` with the paths of all cases, each once.
#[macro_export]
macro_rules! for_each_case {
    ($use:ident) => {
        $use! {
            order: a_read_sees_the_writes_before_it,
            order: writes_land_in_posted_order,
            order: atomics_land_in_posted_order,
            order: a_read_never_overtakes_a_write,
            order: an_atomic_never_overtakes_a_write,
            order: a_read_never_overtakes_an_atomic,
            order: a_read_behind_a_lock_sees_what_the_last_holder_wrote,
            order: a_fenced_write_stays_behind_a_read,
            order: a_fenced_atomic_stays_behind_a_read,
            order: a_flush_completes_behind_writes,
            words: additions_of_many_clients_all_count,
            words: swaps_of_many_clients_all_count,
            words: a_masked_cas_compares_and_swaps_only_its_bits,
            words: torn_reads_occur_and_are_detected,
            words: a_word_is_never_torn,
            rounds: a_round_to_several_nodes_is_one_round_trip,
            rounds: hundreds_of_tasks_have_rounds_outstanding,
            rounds: an_abandoned_round_disturbs_nobody,
            rounds: a_posted_round_is_acknowledged_by_a_later_one,
            rounds: an_empty_round_completes,
            rounds: large_verbs_move_all_their_bytes,
            counting: verbs_are_counted_by_kind_node_and_phase,
            errors: misuse_is_refused_and_has_no_effect,
            errors: a_dead_node_fails_its_doorbells_only,
            errors: a_restarted_node_is_another_one,
            fencing: a_fenced_client_changes_nothing_more,
            fencing: a_fence_waits_for_what_is_under_way,
            fencing: a_fenced_client_cannot_come_back,
            fencing: a_killed_client_disturbs_nobody,
            two_sided: calls_are_answered,
            two_sided: failed_calls_say_why,
            two_sided: calls_of_many_clients_are_answered,
        }
    };
}

macro_rules! list_cases {
    ($($module:ident: $name:ident),* $(,)?) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            run: |bed| Box::pin($module::$name(bed)),
        }),*];
    };
}
for_each_case!(list_cases);

/// The case of that name.
pub fn named(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

/// The case's own queues, one per node.
fn queues(bed: &dyn Bed) -> Result<Vec<Queue>> {
    (0..crate::bed::NODES).map(|node| Ok(bed.connect(NodeId(node))?)).collect()
}

/// Starts actors, and gives them the start together.
async fn start(bed: &dyn Bed, jobs: &[Job]) -> Result<Vec<Box<dyn Actor>>> {
    let mut actors: Vec<_> = jobs.iter().map(|job| bed.spawn(*job, None)).collect::<Result<_>>()?;
    let (worker, node) = (bed.worker(), bed.connect(NodeId(0))?);
    while read(bed, &node, READY, 1).await?[0] < jobs.len() as u64 {
        if let Some(early) = actors.iter_mut().position(|actor| actor.has_ended()) {
            let ended = actors.swap_remove(early).join(worker).await;
            bail!("before the start, an actor {ended:?}");
        }
        worker.sleep(JOIN_PAUSE).await;
    }
    let mut round = worker.round();
    round.to(&node).write(START, &[1]);
    round.ring().await?;
    Ok(actors)
}

/// Waits until all have finished their jobs, or one has not: others may wait for it in vain.
async fn finish(bed: &dyn Bed, actors: Vec<Box<dyn Actor>>) -> Result<()> {
    let mut running: Vec<_> = actors.into_iter().map(|actor| actor.join(bed.worker())).collect();
    std::future::poll_fn(|cx| {
        let mut failed = None;
        running.retain_mut(|actor| match actor.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ended::Finished) => false,
            Poll::Ready(ended) => {
                failed = Some(ended);
                false
            }
        });
        match failed {
            Some(ended) => Poll::Ready(Err(anyhow!("an actor {ended:?}"))),
            None if running.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}

/// READs words at `at`.
async fn read(bed: &dyn Bed, node: &Queue, at: u64, words: usize) -> Result<Vec<u64>> {
    let mut round = bed.worker().round();
    let found = round.to(node).read(at, words * 8);
    Ok(round.ring().await?[found].to_vec())
}
