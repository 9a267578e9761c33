//! Which snapshots are still read, and which addresses are still used: every session writes its oldest to its line
//! of the board, and reads those of all others. What is older than all of them is needed by nobody.

use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_fabric::{Time, probe};
use farside_pool::{Config, Replica};

use crate::agent::Agent;
use crate::queues::{Queues, replicas};
use crate::system::{self, BOARD, LINE_BYTES, REQUEST, SESSIONS};
use crate::{HORIZON, TxnError};

/// How often a thread tells which snapshots it reads.
const TELLING: Duration = Duration::from_micros(500);

/// How often a thread looks after its heap.
const TIDYING: Duration = Duration::from_millis(20);

/// Tells and asks again and again, and looks after the heap, as long as the thread's agent exists.
pub(crate) async fn tend(agent: Weak<Agent>) {
    let mut tidied = Time(0);
    while let Some(agent) = agent.upgrade() {
        let _ = look(&agent).await;
        let now = agent.worker.now();
        if now - tidied > TIDYING {
            let _ = agent.tidy().await;
            tidied = now;
        }
        let worker = agent.worker.clone();
        drop(agent);
        worker.sleep(TELLING).await;
    }
}

/// Tells our oldest snapshot, and learns the oldest of all.
pub(crate) async fn look(agent: &Rc<Agent>) -> Result<(), TxnError> {
    let Some(permit) = agent.seat.permit(agent.worker.now()) else { return Ok(()) };
    let session = &agent.session;
    let queues = agent.queues();
    let copies = replicas(permit.config(), system::catalog_root())?;
    if !session.told.load(Ordering::Acquire) {
        let places = u64::from(session.identity.slot) + 1;
        raise(agent, &queues, permit.config(), SESSIONS, places).await?;
    }
    loop {
        let known = session.sessions.load(Ordering::Relaxed);
        // The time first: whoever enters meanwhile reads nothing that is older.
        let now = agent.lower();
        let line = [session.oldest(now).max(1), session.raise_floor(0).max(1)];
        let mut round = agent.worker.round().counted(&agent.tally, HORIZON);
        for replica in copies {
            let at = replica.base + system::line(session.identity.slot);
            round.to(queues.to(replica.node)?).write(at, &line);
        }
        let Replica { node, base } = copies[0];
        let mut bell = round.to(queues.to(node)?);
        let head = bell.read(base + REQUEST, 16);
        let board = bell.read(base + BOARD, (known * LINE_BYTES).max(8) as usize);
        let done = round.ring().await?;
        let [request, sessions] = done[head].try_into().expect("two words");
        session.raise_floor(request);
        session.told.store(true, Ordering::Release);
        if sessions > known {
            // Some came that were not looked at.
            session.sessions.fetch_max(sessions, Ordering::Relaxed);
            continue;
        }
        // Who has told nothing yet reads nothing yet.
        let (lines, _) = done[board].as_chunks::<2>();
        let least =
            |word: usize| lines.iter().map(|line| line[word]).filter(|word| *word != 0).min();
        let (oldest, floor) = (least(0).unwrap_or(0), least(1).unwrap_or(0));
        if session.horizon.fetch_max(oldest, Ordering::AcqRel) < oldest {
            probe!("the horizon moves on");
        }
        session.settled_floor.fetch_max(floor, Ordering::AcqRel);
        return Ok(());
    }
}

/// Raises a word of the system chunk to at least a value, on every replica.
pub(crate) async fn raise(
    agent: &Agent,
    queues: &Queues,
    config: &Config,
    word: u64,
    least: u64,
) -> Result<(), TxnError> {
    for replica in replicas(config, system::catalog_root())? {
        let queue = queues.to(replica.node)?;
        let mut known = 0;
        loop {
            let mut round = agent.worker.round().counted(&agent.tally, HORIZON);
            let found = round.to(queue).cas(replica.base + word, known, least);
            let found = round.ring().await?[found];
            if found == known || found >= least {
                break;
            }
            known = found;
        }
    }
    Ok(())
}
