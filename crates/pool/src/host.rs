//! A memory node as a member of a pool: its keeper, and a session that can manage.

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{ClientId, FabricError, Worker, rdma, tcp};

use crate::config::Node;
use crate::keeper::{Keeper, Lapsed};
use crate::links::Connect;
use crate::member::{Ended, Means, Member};
use crate::network::NetConnect;
use crate::petition::Newcomer;
use crate::store::{ConfigStore, StoreError};
use crate::terms::Terms;

/// What happens to a host.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HostEvent {
    /// There was no pool: this node has founded it.
    Founded,
    /// Its session belongs to the pool.
    Joined,
    /// Its session was put out, and begins again.
    SessionLost,
    /// No manager is heard any more, or again.
    Heard(bool),
    /// Something is wrong with the store.
    Store(StoreError),
}

/// A node on a network, in one of its lives.
pub struct Host {
    /// Where others reach the node: HOST:PORT, or rdma:HOST:PORT.
    pub address: String,
    /// Where the configuration is.
    pub store: Rc<dyn ConfigStore>,
    /// How nodes are connected to.
    pub options: tcp::Options,
    /// The same, where they are behind NICs.
    pub rdma: rdma::Options,
    /// For a pool that this one founds.
    pub terms: Terms,
    /// For a version cache, and for no regions.
    pub versions: bool,
}

/// An id that nobody else has.
fn fresh_id() -> Result<u64, FabricError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(|e| {
        FabricError::Setup { what: "asking for randomness".into(), why: e.to_string() }
    })?;
    Ok(u64::from_le_bytes(bytes) | 1)
}

impl Host {
    fn means(&self, worker: &Worker) -> Result<Means, FabricError> {
        let client = ClientId(fresh_id()?);
        let timeout = 4 * self.terms.lease;
        let connect: Rc<dyn Connect> =
            Rc::new(NetConnect::new(client, self.options.clone(), self.rdma.clone(), timeout));
        let store = Rc::clone(&self.store);
        Ok(Means { worker: worker.clone(), client, store, connect, left_out: None, eager: false })
    }

    /// Keeps the node until it is put out, or does not answer any more.
    pub async fn run(
        self: Rc<Self>,
        worker: &Worker,
        tell: Rc<dyn Fn(HostEvent)>,
    ) -> Result<Lapsed, FabricError> {
        let means = self.means(worker)?;
        let incarnation = fresh_id()?;
        let address = self.address.clone();
        let node = Node { id: 0, incarnation, address, bytes: 0, draining: false, versions: false };
        let queue = means.connect.connect(worker, &node).await?;
        let terms = self.terms_of_pool().await;
        let keeper = Keeper::format(worker, queue, terms, incarnation).await?;
        let keeper = keeper.for_versions(self.versions);
        let myself = keeper.newcomer(&self.address);
        let managing = Rc::clone(&self).manage(worker.clone(), myself, Rc::clone(&tell));
        let _session = worker.spawn(managing);
        let address = &self.address;
        Ok(keeper.keep(&self.store, address, |heard| tell(HostEvent::Heard(heard))).await)
    }

    /// Those of the pool, if there is one; otherwise those with which it will be founded.
    async fn terms_of_pool(&self) -> Terms {
        let stored = self.store.read(0).await.ok();
        let config = stored.and_then(|stored| stored.newest());
        config.map_or(self.terms, |config| Terms::new(Duration::from_nanos(config.lease_ns)))
    }

    /// Has a session in the pool, again and again.
    async fn manage(self: Rc<Self>, worker: Worker, myself: Newcomer, tell: Rc<dyn Fn(HostEvent)>) {
        loop {
            match self.session(&worker, &myself, &*tell).await {
                Ok(Ended::PutOut) => tell(HostEvent::SessionLost),
                Ok(Ended::Foreign(why)) => tell(HostEvent::Store(StoreError::Foreign(why))),
                Err(error) => {
                    tell(HostEvent::Store(error));
                    worker.sleep(100 * self.terms.lease).await;
                }
            }
        }
    }

    async fn session(
        &self,
        worker: &Worker,
        myself: &Newcomer,
        tell: &dyn Fn(HostEvent),
    ) -> Result<Ended, StoreError> {
        let means = || self.means(worker).map_err(|e| StoreError::Unreachable(e.to_string()));
        let myself = std::slice::from_ref(myself);
        let founded = Member::found(means()?, self.terms, myself, &[]).await?;
        let member = match founded {
            Some(member) => {
                tell(HostEvent::Founded);
                member
            }
            None => Member::join(means()?).await?,
        };
        tell(HostEvent::Joined);
        Ok(member.run().await)
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("address", &self.address).finish_non_exhaustive()
    }
}
