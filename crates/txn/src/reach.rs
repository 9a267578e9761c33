//! How a thread reaches the nodes of the pool, and by which leave, while regions move.

use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_fabric::{ClientId, FabricError, Worker, probe};
use farside_pool::{Config, Leave, Links, Permit, Seat};

use crate::TxnError;
use crate::agent::Agent;
use crate::queues::Queues;
use crate::system::{self, FORMAT, THIS_FORMAT};

impl Agent {
    /// Waits until this may act and all nodes answer: one that does not is put out, or comes back. Not for ever: most
    /// regions are elsewhere.
    pub(crate) async fn ready(&self) -> Result<(Leave, Rc<Queues>), TxnError> {
        self.check_fenced()?;
        if let Some(leave) = self.seat.leave(|| self.worker.now())
            && let Some(queues) = self.whole_queues(leave.config())
        {
            return Ok((leave, queues));
        }
        Box::pin(self.get_ready()).await
    }

    /// The same, where it takes longer.
    async fn get_ready(&self) -> Result<(Leave, Rc<Queues>), TxnError> {
        let mut since = None;
        loop {
            self.check_fenced()?;
            let now = self.worker.now();
            let leave = self.seat.leave(|| now);
            let late = now - *since.get_or_insert(now) > 4 * self.lease;
            match leave {
                Some(leave) => {
                    let queues = self.reach(leave.config()).await;
                    if late || !queues.is_broken() {
                        self.check_fenced()?;
                        return Ok((leave, queues));
                    }
                }
                None if late => return Err(TxnError::NotNow),
                None => {}
            }
            probe!("a transaction waits until all nodes answer");
            self.worker.sleep(self.lease / 64).await;
        }
    }

    /// Those that are known, if they go to all nodes of a configuration.
    #[inline]
    fn whole_queues(&self, config: &Config) -> Option<Rc<Queues>> {
        let known = self.queues.borrow();
        (known.epoch == config.epoch && !known.is_broken()).then(|| Rc::clone(&known))
    }

    /// Queues to all nodes of a configuration, connected anew where they were broken.
    pub(crate) async fn reach(&self, config: &Config) -> Rc<Queues> {
        if let Some(known) = self.whole_queues(config) {
            return known;
        }
        let queues = Rc::new(connect(&self.links, config).await);
        if self.links.is_fenced() {
            self.session.fenced.store(true, Ordering::Release);
        }
        if queues.epoch >= self.queues.borrow().epoch {
            *self.queues.borrow_mut() = Rc::clone(&queues);
        }
        queues
    }

    /// Leave to do what must be done before the next configuration counts, and queues to all nodes. Whoever waits for a
    /// connection keeps nobody from a change.
    pub(crate) async fn act(&self) -> Result<(Permit, Rc<Queues>), TxnError> {
        let config = self.seat.view().config();
        let queues = self.reach(&config).await;
        if self.resting.get() {
            return Err(TxnError::NotNow);
        }
        let permit = self.permit()?;
        match permit.config().epoch == config.epoch {
            true => Ok((permit, queues)),
            false => Err(TxnError::NotNow),
        }
    }

    /// Nobody waits for nodes that are no members any more, whatever they were asked.
    fn leave_removed(&self) {
        self.links.keep(&self.seat.view().config().nodes);
    }
}

/// Leave to act, and queues to all nodes, for one who comes or goes. Waits a while for a configuration that counts.
pub(crate) async fn approach(
    worker: &Worker,
    links: &Links,
    seat: &Seat,
    client: u64,
) -> Result<(Permit, Queues), TxnError> {
    let start = worker.now();
    loop {
        let config = seat.view().config();
        let lease = Duration::from_nanos(config.lease_ns);
        let queues = connect(links, &config).await;
        let permit = seat.permit(worker.now());
        if let Some(permit) = permit.filter(|permit| permit.config().epoch == config.epoch) {
            return Ok((permit, queues));
        }
        if seat.view().is_put_out() {
            return Err(TxnError::Fabric(FabricError::Fenced(ClientId(client))));
        }
        if worker.now() - start > 4 * lease {
            return Err(TxnError::NotNow);
        }
        worker.sleep(lease / 64).await;
    }
}

/// Takes notice of new configurations, as long as the thread's agent exists.
pub(crate) async fn follow(agent: Weak<Agent>) {
    let mut known = 0;
    while let Some(agent) = agent.upgrade() {
        let epoch = agent.seat.view().epoch();
        if std::mem::replace(&mut known, epoch) != epoch {
            agent.leave_removed();
        }
        let (worker, pause) = (agent.worker.clone(), agent.lease / 32);
        drop(agent);
        worker.sleep(pause).await;
    }
}

/// A queue to every node of a configuration.
pub(crate) async fn connect(links: &Links, config: &Config) -> Queues {
    let mut to = Vec::with_capacity(config.nodes.len());
    for node in &config.nodes {
        // Who cannot be reached is left out: whoever needs it hears of that.
        to.extend(links.to(node).await.map(|queue| (node.id, queue)));
    }
    Queues { epoch: config.epoch, incomplete: to.len() < config.nodes.len(), to }
}

/// Makes an empty pool ours, and refuses one that is of another format.
pub(crate) async fn prepare(
    worker: &Worker,
    queues: &Queues,
    config: &Config,
) -> Result<(), TxnError> {
    let first = config.region(system::REGION);
    let first = first.ok_or_else(|| TxnError::Refused("the pool has no region".into()))?;
    let lost = || TxnError::Refused("all copies of region 0 are lost: found the pool anew".into());
    let away = TxnError::Unreachable(first.replicas.first().ok_or_else(lost)?.node);
    let first = queues.place(first).ok_or(away)?;
    if !first.reserve_system(worker).await? {
        return Err(TxnError::Refused("the pool is used by something else".into()));
    }
    for replica in crate::queues::replicas(config, system::catalog_root())? {
        let mut round = worker.round();
        let found = round.to(queues.to(replica.node)?).cas(replica.base + FORMAT, 0, THIS_FORMAT);
        let found = round.ring().await?[found];
        if found != 0 && found != THIS_FORMAT {
            return Err(TxnError::Refused(format!(
                "the pool has another format ({found:#x}, expected {THIS_FORMAT:#x})"
            )));
        }
    }
    Ok(())
}
