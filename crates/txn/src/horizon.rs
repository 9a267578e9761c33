//! Which snapshots are still read: every thread writes the oldest that it may read to its word of a board in
//! far memory, and reads those of all others. What is older than all of them is needed by nobody.

use std::rc::{Rc, Weak};
use std::time::Duration;

use farside_fabric::probe;

use crate::agent::Agent;
use crate::{HORIZON, TxnError};

/// Tells and asks again and again, as long as the thread's agent exists.
pub(crate) async fn tend(agent: Weak<Agent>, every: Duration) {
    while let Some(agent) = agent.upgrade() {
        let _ = look(&agent).await;
        let worker = agent.worker.clone();
        drop(agent);
        worker.sleep(every).await;
    }
}

/// Tells our oldest snapshot, and learns the oldest of all.
pub(crate) async fn look(agent: &Rc<Agent>) -> Result<(), TxnError> {
    let Some(permit) = agent.seat.permit(agent.worker.now()) else { return Ok(()) };
    let board = agent.layout.board;
    let config = permit.config();
    let region = config.region(board.region()).ok_or_else(|| agent.nowhere(board))?;
    let primary = region.replicas.first().ok_or_else(|| agent.nowhere(board))?;
    let queue = agent.queue(primary.node)?;
    let at = primary.base + board.offset();
    // Nothing there means nobody there.
    let oldest = agent.oldest().max(1);
    let mut round = agent.worker.round().counted(&agent.tally, HORIZON);
    let mut bell = round.to(queue);
    bell.write(at + u64::from(agent.owner - 1) * 8, &[oldest]);
    let words = bell.read(at, usize::from(agent.layout.owners) * 8);
    let done = round.ring().await?;
    agent.told.set(true);
    // Who has told nothing yet reads nothing yet.
    if let Some(oldest) = done[words].iter().copied().filter(|word| *word != 0).min()
        && oldest > agent.horizon.get()
    {
        probe!("the horizon moves on");
        agent.horizon.set(oldest);
    }
    Ok(())
}
