//! Time, as all processes of a world see it: within their bounds, and never going back.

use std::collections::BTreeMap;
use std::time::Duration;

use farside_fabric::NodeId;
use farside_pool::time::Master;

use super::machine::Process;
use super::world::World;

/// What was seen of the time.
#[derive(Default)]
pub(super) struct Timeline {
    pub(super) violation: Option<String>,
    /// The master that somebody followed last, and how many there were.
    newest: Option<Master>,
    pub(super) masters: u64,
    /// The latest that somebody could give out, by the newest master and by all before.
    latest: u64,
    latest_before: u64,
    sum: u64,
    looks: u64,
    /// Since when somebody with a lease has no clock, and had one.
    off: BTreeMap<u64, u64>,
    had: BTreeMap<u64, bool>,
    pub(super) longest_off: u64,
}

impl Timeline {
    pub(super) fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum / self.looks.max(1))
    }

    fn note_off(&mut self, client: u64, now: u64, is_on: bool) {
        if is_on {
            self.had.insert(client, true);
            self.off.remove(&client);
        } else if self.had.contains_key(&client) {
            let since = *self.off.entry(client).or_insert(now);
            self.longest_off = self.longest_off.max(now - since);
        }
    }
}

impl World {
    /// Whoever may act and knows the time knows it right, and never gives out an earlier one than anybody before.
    pub(super) fn look_at_clocks(&mut self, now: u64) {
        let mut timeline = std::mem::take(&mut self.timeline);
        for process in self.clients.iter().chain(self.machines.iter().map(|m| &m.session)) {
            if process.alive && timeline.violation.is_none() {
                self.look_at_clock(process, now, &mut timeline);
            }
        }
        self.timeline = timeline;
    }

    fn look_at_clock(&self, process: &Process, now: u64, timeline: &mut Timeline) {
        let Some(view) = process.view() else { return };
        let local = self.sim.time_of(process.id);
        if !view.has_lease(local) {
            timeline.off.remove(&process.client);
            return;
        }
        let bounds = view.time().bounds_by(|| local);
        timeline.note_off(process.client, now, bounds.is_some());
        let config = view.config();
        let (Some((lower, upper)), Some(master)) = (bounds, config.master) else { return };
        let Some(node) = config.node(master.node) else { return };
        let number: u16 = node.address.parse().expect("addresses are numbers");
        let newest = timeline.newest.map_or(0, |newest| newest.since);
        if master.since > newest {
            timeline.newest = Some(master);
            timeline.masters += 1;
            timeline.latest_before = timeline.latest_before.max(timeline.latest);
        } else if master.since < newest {
            timeline.violation = Some(format!("{} follows an old master", process.client));
            return;
        }
        if lower < timeline.latest_before {
            let before = timeline.latest_before;
            timeline.violation = Some(format!("time went back from {before} to {lower}"));
        }
        timeline.latest = timeline.latest.max(upper);
        timeline.sum += upper - lower;
        timeline.looks += 1;
        // A master that began another life is another clock: nobody gets an answer from it.
        let lives = self.machines.iter().any(|machine| machine.life == node.incarnation);
        let time = self.sim.node_time(NodeId(number)).0.wrapping_add(master.ahead);
        if lives && !(lower..=upper).contains(&time) {
            let client = process.client;
            timeline.violation =
                Some(format!("it is {time}, and {client} believes in {lower} to {upper}"));
        }
    }
}
