//! What a simulated cluster is like: chosen before anybody joins.

use std::rc::Rc;
use std::time::Duration;

use farside_pool::time::Master;
use farside_pool::{CONTROL_BYTES, Config, Newcomer};
use farside_sim::Sim;
use farside_txn::{Level, Limits, Versions};

use super::{Pool, SimTables};

/// A million versions.
const VERSION_CACHE_BYTES: u64 = 16 << 20;

/// How far the switch is, of the distance to a node behind it.
const TO_THE_SWITCH: f64 = 0.5;

impl SimTables {
    /// With clocks that are off by so much at most: before anybody joins.
    #[must_use]
    pub fn with_clocks(mut self, offset_ns: u64) -> Self {
        let inner = Rc::get_mut(&mut self.0).expect("before anybody joins");
        inner.clock_offset_ns = offset_ns.max(1);
        self
    }

    /// Whose transactions are promised something else than usual: before anybody joins.
    #[must_use]
    pub fn with_level(mut self, level: Level) -> Self {
        Rc::get_mut(&mut self.0).expect("before anybody joins").level = level;
        self
    }

    /// Whether threads pay for the code between verbs, too, and not for verbs and switches alone: before anybody joins.
    #[must_use]
    pub fn with_code(mut self, computes: bool) -> Self {
        Rc::get_mut(&mut self.0).expect("before anybody joins").computes = computes;
        self
    }

    /// Whose machines find out the time from the first node, as in a real pool: before anybody joins.
    #[must_use]
    pub fn with_real_clocks(mut self) -> Self {
        let inner = Rc::get_mut(&mut self.0).expect("before anybody joins");
        if let Pool::Fixed(config) = &mut inner.pool {
            config.master = Some(Master { node: 0, ahead: 1 << 40, since: 1 });
        }
        self
    }

    /// Whose primaries are all at the first node, as in a paper whose table has one: before anybody joins.
    #[must_use]
    pub fn with_one_primary(mut self) -> Self {
        let inner = Rc::get_mut(&mut self.0).expect("before anybody joins");
        if let Pool::Fixed(config) = &mut inner.pool {
            config.regions.iter_mut().for_each(|it| it.replicas.sort_by_key(|copy| copy.node));
        }
        self
    }

    /// With a lease of so long: before anybody joins.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        let inner = Rc::get_mut(&mut self.0).expect("before anybody joins");
        if let Pool::Fixed(config) = &mut inner.pool {
            config.lease_ns = lease.as_nanos() as u64;
        }
        self
    }

    /// With other sizes and choices than usual: before anybody joins.
    #[must_use]
    pub fn with_limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        let inner = Rc::get_mut(&mut self.0).expect("before anybody joins");
        change(&mut inner.limits);
        let versions = inner.limits.protocol.versions;
        if let Pool::Fixed(config) = &mut inner.pool
            && versions.are_at_a_node()
            && config.version_cache().is_none()
        {
            add_version_cache(&inner.sim, config, versions);
        }
        self
    }
}

/// One more node, with a version cache.
fn add_version_cache(sim: &Sim, config: &mut Config, versions: Versions) {
    let bytes = CONTROL_BYTES + VERSION_CACHE_BYTES;
    let node = sim.add_node(bytes);
    if versions == Versions::Switch {
        sim.move_near(node, TO_THE_SWITCH);
    }
    config.add_node(&Newcomer {
        address: node.0.to_string(),
        incarnation: 0,
        bytes,
        versions: true,
    });
}
