//! Which snapshots are still read, and which addresses are still used: every session writes its oldest to its line
//! of the board, and reads those of all others. Whoever writes nothing any more is dead.
//!
//! A snapshot may be handed on to somebody who does not read it yet, by one who dies meanwhile. So what nobody reads is needed by
//! nobody only after a second round (`farmv2.txt` §4.6): each session agrees to begin with nothing that is older than
//! the oldest of all (*safe*), and what is older than all have agreed to (the *horizon*) is not kept any more.

use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_fabric::{FabricError, probe};
use farside_pool::{Config, Replica};

use crate::agent::Agent;
use crate::queues::{Queues, replicas, written};
use crate::session::{IDLE, Session};
use crate::system::{self, BOARD, CLIENT, LINE_BYTES, LINE_WORDS, Line, OLDEST, REQUEST, SESSIONS};
use crate::{HORIZON, Trap, TxnError, repair, watch};

/// How often a thread tells which snapshots it reads.
pub(crate) const TELLING: Duration = Duration::from_micros(500);

/// How often it looks at least when somebody seems to be dead.
const LEAST_PAUSE: Duration = Duration::from_micros(20);

/// How often a thread looks after its heap.
const TIDYING: Duration = Duration::from_millis(20);

/// Looks after the heap again and again, as long as the thread's agent exists.
pub(crate) async fn tidy(agent: Weak<Agent>) {
    while let Some(agent) = agent.upgrade() {
        let _ = agent.tidy().await;
        let worker = agent.worker.clone();
        drop(agent);
        worker.sleep(TIDYING).await;
    }
}

/// Tells and asks again and again, as long as the thread's agent exists. Nothing may keep it from that for long: others would
/// take the session for dead.
pub(crate) async fn tend(agent: Weak<Agent>) {
    while let Some(agent) = agent.upgrade() {
        if let Err(TxnError::Fabric(FabricError::Fenced(_))) = look(&agent).await {
            probe!("a session finds that it was fenced");
            agent.session.fenced.store(true, Ordering::Release);
            return;
        }
        repair::repair_the_dead(&agent);
        let worker = agent.worker.clone();
        let patience = watch::patience(agent.lease());
        let me = agent.session.identity.client;
        let next = agent.session.watch.next(worker.now(), me, patience);
        drop(agent);
        // Sooner if somebody is about to be taken for dead.
        let pause = next.map_or(TELLING, |next| next.clamp(LEAST_PAUSE, TELLING));
        worker.sleep(pause).await;
    }
}

/// Tells our oldest snapshot, and learns the oldest of all.
pub(crate) async fn look(agent: &Rc<Agent>) -> Result<(), TxnError> {
    let session = &agent.session;
    let (permit, queues) = match agent.act().await {
        Err(TxnError::NotNow) => return Ok(()),
        acting => acting?,
    };
    let copies = replicas(permit.config(), system::catalog_root())?;
    if !session.told.load(Ordering::Acquire) {
        let places = u64::from(session.identity.slot) + 1;
        raise(agent, &queues, permit.config(), SESSIONS, places).await?;
        // After a loss of power, too, nobody overlooks what this leaves behind.
        queues.flush_all(&agent.worker).await?;
    }
    loop {
        let known = session.sessions.load(Ordering::Relaxed);
        // The time first: whoever enters meanwhile reads nothing that is older. What is past for sure ends before it.
        let now = agent.lower().saturating_sub(1);
        let (oldest, floor) = (session.oldest(now).max(1), session.raise_floor(0).max(1));
        let beat = session.beat.fetch_add(1, Ordering::Relaxed) + 1;
        // Whoever has begun with an older one before it was agreed to has noted that.
        let safe = session.safe.load(Ordering::SeqCst).min(oldest).max(1);
        let line = [oldest, floor, beat, session.since.load(Ordering::Acquire), safe];
        let mut round = agent.worker.round().counted(&agent.tally, HORIZON);
        for replica in copies {
            let at = replica.base + system::line(session.identity.slot) + OLDEST;
            round.to(queues.to(replica.node)?).write(at, &line);
        }
        let Replica { node, base } = copies[0];
        let mut bell = round.to(queues.to(node)?);
        let head = bell.read(base + REQUEST, 16);
        let board = bell.read(base + BOARD, (known * LINE_BYTES).max(8) as usize);
        let done = round.ring().await?;
        let [request, sessions] = done[head].try_into().expect("two words");
        session.raise_floor(request);
        if sessions > known {
            // Some came that were not looked at.
            session.sessions.fetch_max(sessions, Ordering::Relaxed);
            continue;
        }
        tell_joining(agent, &queues, permit.config(), &line).await?;
        session.told.store(true, Ordering::Release);
        let (lines, _) = done[board].as_chunks::<LINE_WORDS>();
        let lines = lines.iter().map(Line::from_words);
        session.watch.note(agent.worker.now(), lines.clone(), agent.lease());
        // Who has told nothing yet reads nothing yet.
        let least = |word: fn(Line) -> u64| lines.clone().map(word).filter(|word| *word != 0).min();
        let oldest = least(|line| line.oldest).unwrap_or(0);
        let floor = least(|line| line.floor).unwrap_or(0);
        let horizon = match agent.has(Trap::OneRound) {
            true => oldest,
            false => agree(session, oldest, lines.clone()),
        };
        if session.horizon.fetch_max(horizon, Ordering::AcqRel) < horizon {
            probe!("the horizon moves on");
        }
        session.settled_floor.fetch_max(floor, Ordering::AcqRel);
        return Ok(());
    }
}

/// Agrees to begin with no snapshot that is older than the oldest of all; what all have agreed to.
fn agree(session: &Session, oldest: u64, lines: impl Iterator<Item = Line>) -> u64 {
    session.safe.fetch_max(oldest, Ordering::SeqCst);
    // This session has agreed just now, except for what it reads.
    let mine = session.safe.load(Ordering::SeqCst).min(session.oldest(IDLE));
    let slot = usize::from(session.identity.slot);
    let others = lines.enumerate().filter(|(at, line)| *at != slot && line.safe != 0);
    others.map(|(_, line)| line.safe).fold(mine, u64::min)
}

/// Whoever makes a copy of the board leaves the lines to those whose they are.
async fn tell_joining(
    agent: &Agent,
    queues: &Queues,
    config: &Config,
    line: &[u64],
) -> Result<(), TxnError> {
    let joining = config.region(system::REGION).map_or(&[][..], |region| &region.joining);
    if joining.is_empty() {
        return Ok(());
    }
    let identity = agent.session.identity;
    let mut round = agent.worker.round().counted(&agent.tally, HORIZON);
    for replica in joining {
        let at = replica.base + system::line(identity.slot);
        let mut bell = round.to(queues.to(replica.node)?);
        bell.write(at + CLIENT, &[identity.client]);
        bell.write(at + OLDEST, line);
    }
    round.ring().await?;
    Ok(())
}

/// Raises a word of the system chunk to at least a value, on every replica.
pub(crate) async fn raise(
    agent: &Agent,
    queues: &Queues,
    config: &Config,
    word: u64,
    least: u64,
) -> Result<(), TxnError> {
    for replica in written(config, system::catalog_root())? {
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
