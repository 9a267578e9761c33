//! What the last scrub has found, in the system chunk: for everybody who looks at the pool.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{Queue, Worker};
use farside_pool::{Addr, Config, Links, within};

use super::Scrub;
use crate::TxnError;
use crate::agent::Agent;
use crate::queues::replicas;
use crate::system::{self, SCRUBBED};
use crate::words::checksum;

/// People wait for this.
const PATIENCE: Duration = Duration::from_millis(500);

/// What was found so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scrubbed {
    /// How often everything was looked at.
    pub passes: u64,
    /// When that was last over, in the time of the pool; 0: never.
    pub time: u64,
    /// Objects that there were then.
    pub objects: u64,
    /// How much was wrong with them.
    pub flawed: u64,
    /// The first of that: the address of an object, and the node.
    pub first: Option<(Addr, u16)>,
}

impl Scrubbed {
    pub(crate) const WORDS: usize = 7;

    /// Nothing if they are torn, or damaged.
    fn from_words(words: &[u64]) -> Self {
        let &[passes, time, objects, flawed, addr, node, check] = words else {
            return Scrubbed::default();
        };
        if check != checksum(&[&words[..Self::WORDS - 1]]) {
            return Scrubbed::default();
        }
        let first = (flawed > 0).then(|| (Addr::from_word(addr), node as u16));
        Scrubbed { passes, time, objects, flawed, first }
    }

    fn to_words(self) -> [u64; Self::WORDS] {
        let (addr, node) = self.first.map_or((0, 0), |(addr, node)| (addr.to_word(), node.into()));
        let words = [self.passes, self.time, self.objects, self.flawed, addr, node];
        let [passes, time, objects, flawed, addr, node] = words;
        [passes, time, objects, flawed, addr, node, checksum(&[&words])]
    }

    /// What is noted in a pool, for somebody outside of it; `None` if the node that knows does not answer.
    pub async fn look(worker: &Worker, links: &Links, config: &Config) -> Option<Self> {
        let primary = replicas(config, system::catalog_root()).ok()?[0];
        let node = config.node(primary.node)?;
        let reading = async {
            let queue = links.to(node).await?;
            read(worker, &queue, primary.base).await.ok()
        };
        within(worker, PATIENCE, reading).await.flatten()
    }
}

async fn read(worker: &Worker, queue: &Queue, base: u64) -> Result<Scrubbed, TxnError> {
    let mut round = worker.round();
    let words = round.to(queue).read(base + SCRUBBED, Scrubbed::WORDS * 8);
    let done = round.ring().await?;
    Ok(Scrubbed::from_words(&done[words]))
}

/// What is noted.
pub(super) async fn last(agent: &Rc<Agent>) -> Result<Scrubbed, TxnError> {
    let (permit, queues) = agent.act().await?;
    let primary = replicas(permit.config(), system::catalog_root())?[0];
    read(&agent.worker, queues.to(primary.node)?, primary.base).await
}

/// Notes what was found by one that is over.
pub(super) async fn note(agent: &Rc<Agent>, found: &Scrub) -> Result<(), TxnError> {
    let noted = Scrubbed {
        passes: last(agent).await?.passes.saturating_add(1),
        time: agent.lower(),
        objects: found.objects,
        flawed: found.flawed,
        first: found.flaws.first().map(|flaw| (flaw.object, flaw.node)),
    };
    let (permit, queues) = agent.act().await?;
    let chunk = Addr::new(system::REGION, SCRUBBED).expect("a small offset");
    queues.write_all(&agent.worker, permit.config(), chunk, 0, &noted.to_words()).await
}
