//! What is measured while a world runs, and what must hold at its end.

use farside_fabric::{NodeId, Worker};
use farside_pool::RegionId;
use farside_pool::alloc::Place;
use farside_sim::ProcessId;

use super::machine::Process;
use super::world::World;

impl World {
    /// Whether the machine of a node can serve at all.
    fn is_up(&self, node: NodeId, now: u64) -> bool {
        self.machines.iter().any(|machine| {
            machine.node == node
                && machine.alive
                && !machine.isolated
                && machine.paused_until_ns <= now
                && machine.lapsed.get().is_none()
        })
    }

    /// How long regions with a live copy are without a primary that clients may use.
    pub(super) fn measure(&mut self, now: u64) {
        let newest = {
            let log = self.shared.log.borrow();
            log.configs.values().next_back().cloned()
        };
        let Some(newest) = newest else { return };
        for region in &newest.regions {
            let lives = |replica: &farside_pool::Replica| {
                let node = newest.node(replica.node);
                let number = node.and_then(|node| node.address.parse().ok());
                number.is_some_and(|number| self.is_up(NodeId(number), now))
            };
            let live_copy = region.replicas.iter().any(lives);
            let served =
                !live_copy || self.clients.iter().any(|client| self.serves(client, region.id, now));
            if served {
                self.unserved.remove(&region.id);
            } else {
                let since = *self.unserved.entry(region.id).or_insert(now);
                self.longest = self.longest.max(now - since);
            }
        }
    }

    /// Where somebody acts by a configuration, nobody has a lease who does not know it.
    pub(super) fn look_at_leases(&mut self) {
        let processes = self.clients.iter().chain(self.machines.iter().map(|m| &m.session));
        let views = processes.filter(|process| process.alive).filter_map(|process| {
            let now = self.sim.time_of(process.id);
            Some((process.client, process.view()?, now))
        });
        let views: Vec<_> = views.collect();
        let acts =
            views.iter().filter_map(|(client, view, now)| Some((view.acts_by(*now)?, client)));
        let Some((epoch, actor)) = acts.max() else { return };
        let late = views.iter().find(|(_, view, now)| view.has_lease(*now) && view.epoch() < epoch);
        if let Some((client, ..)) = late {
            let why =
                format!("{client} has a lease, and does not know by what {actor} acts: {epoch}");
            self.late_lease.get_or_insert(why);
        }
    }

    fn serves(&self, client: &Process, region: u16, now: u64) -> bool {
        if !client.alive || client.paused_until_ns > now {
            return false;
        }
        let Some(view) = client.view() else { return false };
        let config = view.config();
        let primary = config.regions[usize::from(region)].replicas.first();
        let node = primary.and_then(|primary| config.node(primary.node));
        let up = node
            .and_then(|node| node.address.parse().ok())
            .is_some_and(|number| self.is_up(NodeId(number), now));
        up && view.may_act(client.worker.now())
    }

    /// At the end all who live know the same, and may act.
    pub(super) fn check_harmony(&self) -> Result<(), String> {
        let newest = {
            let log = self.shared.log.borrow();
            log.configs.values().next_back().cloned().ok_or("there never was a configuration")?
        };
        for machine in &self.machines {
            let address = machine.node.0.to_string();
            if !newest.nodes.iter().any(|node| node.address == address) {
                return Err(format!("node {address} is up, but no member of {newest:?}"));
            }
        }
        for process in self.clients.iter().chain(self.machines.iter().map(|m| &m.session)) {
            let Some(view) = process.view() else {
                return Err(format!("client {} never got in: {newest:?}", process.client));
            };
            if view.epoch() != newest.epoch {
                let (client, epoch) = (process.client, view.epoch());
                return Err(format!(
                    "client {client} knows epoch {epoch}, the newest is {}",
                    newest.epoch
                ));
            }
            if !view.may_act(process.worker.now()) {
                return Err(format!("client {} may not act at the end", process.client));
            }
            if view.time().bounds(&process.worker).is_none() {
                let (client, drift) = (process.client, view.time().drift_ppb());
                return Err(format!("client {client}, which drifts by {drift}, knows no time"));
            }
        }
        Ok(())
    }

    /// At the end nothing is owned by the dead, wherever there is a copy left.
    pub(super) async fn check_estates(
        &self,
        observer: ProcessId,
        clock: &Worker,
    ) -> Result<(), String> {
        let newest = self.shared.log.borrow().configs.values().next_back().cloned();
        let newest = newest.ok_or("there never was a configuration")?;
        for region in &newest.regions {
            let Some(primary) = region.replicas.first() else { continue };
            let node = newest.node(primary.node).ok_or("a primary is no member")?;
            let number = NodeId(node.address.parse().map_err(|_| "addresses are numbers")?);
            let queue = self.sim.connect(observer, clock, number).map_err(|e| e.to_string())?;
            let replicas = vec![(queue, primary.base)];
            let place = Place {
                region: RegionId(region.id),
                bytes: region.bytes,
                replicas,
                joining: Vec::new(),
            };
            let owners = place.owners(clock).await.map_err(|e| e.to_string())?;
            let dead = |owner: &&u64| newest.is_dead_owner(**owner);
            if let Some(owner) = owners.iter().find(dead) {
                return Err(format!("region {} has a slab of dead owner {owner:#x}", region.id));
            }
        }
        Ok(())
    }
}
