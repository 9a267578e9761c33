//! Where the copies of regions are: spread over the nodes, moved when nodes go, and made again.

use crate::RegionId;
use crate::config::{
    Config, MAX_DRAINED, MAX_PAST_LIVES, MAX_REGIONS, Node, Region, Replica, Roles,
};

/// How many copies are made at a time: whoever writes there has more to do.
const MOST_JOINING: usize = 2;

impl Config {
    /// Puts out a node: its copies are gone, and where it was the primary the next copy is.
    pub fn remove_node(&mut self, id: u16) {
        if let Some((life, draining)) = self.node(id).map(|node| (node.incarnation, node.draining))
        {
            remember(&mut self.past_lives, life, MAX_PAST_LIVES);
            if draining {
                // However it went: it was to leave.
                remember(&mut self.drained, life, MAX_DRAINED);
            }
        }
        self.nodes.retain(|node| node.id != id);
        for region in &mut self.regions {
            region.replicas.retain(|replica| replica.node != id);
            region.joining.retain(|replica| replica.node != id);
            if region.replicas.is_empty() {
                // There is nothing left to copy.
                region.joining.clear();
            }
        }
        self.choose_primaries();
    }

    /// Whether a node has the only whole copy of a region.
    pub fn has_last_copy(&self, id: u16) -> bool {
        let only = |region: &Region| matches!(region.replicas[..], [last] if last.node == id);
        self.regions.iter().any(only)
    }

    /// Regions that have fewer copies than they should on nodes that stay, and nodes with room for another one; those
    /// first that have the fewest. `first` is where regions begin in a node's memory.
    fn lacking(&self, first: u64) -> Option<(usize, Replica)> {
        let stays = |replica: &&Replica| self.node(replica.node).is_some_and(|it| !it.draining);
        let copies =
            |region: &Region| region.replicas.iter().chain(&region.joining).filter(stays).count();
        let lacks =
            |region: &&Region| !region.replicas.is_empty() && copies(region) < region.copies;
        let mut lacking: Vec<&Region> = self.regions.iter().filter(lacks).collect();
        lacking.sort_by_key(|region| (copies(region), region.id));
        lacking.iter().find_map(|region| {
            let is_free = |node: &&Node| {
                let mut all = region.replicas.iter().chain(&region.joining);
                let end = self.free_base(node.id, first).checked_add(region.bytes);
                node.takes_regions()
                    && all.all(|replica| replica.node != node.id)
                    && end.is_some_and(|end| end <= node.bytes)
            };
            let load = |node: &&Node| {
                let roles = self.roles(node.id);
                (roles.primaries + roles.copies, node.id)
            };
            let node = self.nodes.iter().filter(is_free).min_by_key(load)?.id;
            Some((usize::from(region.id), Replica { node, base: self.free_base(node, first) }))
        })
    }

    /// Whether a region has fewer copies than it should, and there is room for another one.
    pub fn lacks_copies(&self, first: u64) -> bool {
        self.joining() < MOST_JOINING && self.lacking(first).is_some()
    }

    /// Begins copies where regions have too few, not too many at a time; whether there are any.
    pub fn begin_copies(&mut self, first: u64) -> bool {
        let mut begun = false;
        while self.joining() < MOST_JOINING
            && let Some((region, replica)) = self.lacking(first)
        {
            self.regions[region].joining.push(replica);
            begun = true;
        }
        begun
    }

    fn joining(&self) -> usize {
        self.regions.iter().map(|region| region.joining.len()).sum()
    }

    /// A copy is whole: it counts from now on, and becomes the primary if its node has fewer of them.
    pub fn finish_copy(&mut self, region: RegionId, replica: Replica) {
        let Some(it) = self.regions.get_mut(usize::from(region.0)) else { return };
        let Some(at) = it.joining.iter().position(|known| *known == replica) else { return };
        it.joining.remove(at);
        it.replicas.push(replica);
        let primary = it.replicas[0].node;
        if self.roles(primary).primaries > self.roles(replica.node).primaries + 1 {
            self.regions[usize::from(region.0)].replicas.rotate_right(1);
        }
        self.choose_primaries();
    }

    /// Lets a node leave: its primaries go elsewhere where they can.
    pub fn drain_node(&mut self, id: u16) {
        if let Some(node) = self.nodes.iter_mut().find(|node| node.id == id) {
            node.draining = true;
        }
        for region in &mut self.regions {
            region.joining.retain(|replica| replica.node != id);
        }
        self.choose_primaries();
    }

    /// Whether a node that drains is needed by nobody any more: there are enough other copies of all that it has, or at
    /// least one where there is no room for more. `first` is where regions begin in a node's memory.
    pub fn is_drained(&self, id: u16, first: u64) -> bool {
        let draining = self.node(id).is_some_and(|node| node.draining);
        let waits = self.joining() > 0 || self.lacking(first).is_some();
        let elsewhere = |region: &Region| {
            let others = region.replicas.iter().filter(|replica| replica.node != id).count();
            let has = others < region.replicas.len();
            !has || others >= region.copies || others > 0 && !waits
        };
        draining && self.regions.iter().all(elsewhere) && self.nodes.len() > 1
    }

    /// A primary does not stay on a node that drains, if there is another copy.
    fn choose_primaries(&mut self) {
        for region in &mut self.regions {
            let drains = |replica: &Replica| {
                self.nodes.iter().any(|node| node.id == replica.node && node.draining)
            };
            if let Some(stays) = region.replicas.iter().position(|replica| !drains(replica)) {
                region.replicas[..=stays].rotate_right(1);
            }
        }
    }

    /// Adds a region with so many copies, on the nodes that have the fewest: primaries and copies are
    /// spread over all of them. `first` is where regions begin in a node's memory. `None` if there are
    /// too few nodes with room, or too many regions.
    pub fn add_region(&mut self, bytes: u64, copies: usize, first: u64) -> Option<RegionId> {
        let id = self.regions.len() as u16;
        let has_room = |node: &Node| {
            let end = self.free_base(node.id, first).checked_add(bytes);
            end.is_some_and(|end| end <= node.bytes)
        };
        let takers = self.nodes.iter().filter(|node| node.takes_regions() && has_room(node));
        let mut nodes: Vec<_> = takers.map(|node| (self.roles(node.id), node.id)).collect();
        if nodes.len() < copies || copies == 0 || self.regions.len() == MAX_REGIONS {
            return None;
        }
        // The primary goes where the fewest primaries are, the others where the fewest copies are.
        let primary = nodes.iter().min().copied()?;
        nodes.retain(|node| *node != primary);
        nodes.sort_by_key(|(roles, id)| (roles.primaries + roles.copies, roles.primaries, *id));
        let chosen = std::iter::once(primary).chain(nodes).take(copies);
        let replicas =
            chosen.map(|(_, node)| Replica { node, base: self.free_base(node, first) }).collect();
        self.regions.push(Region { id, bytes, replicas, joining: Vec::new(), copies });
        Some(RegionId(id))
    }

    /// What a node does for the regions.
    pub fn roles(&self, node: u16) -> Roles {
        let on = |replica: &&Replica| replica.node == node;
        let primaries = self.regions.iter().filter_map(|r| r.replicas.first()).filter(on).count();
        let all = self.regions.iter().flat_map(|r| r.replicas.iter().chain(&r.joining));
        Roles { primaries, copies: all.filter(on).count() - primaries }
    }

    /// Where the next region begins on a node: behind all that it has.
    fn free_base(&self, node: u16, first: u64) -> u64 {
        let ends = self.regions.iter().flat_map(|region| {
            let copies = region.replicas.iter().chain(&region.joining);
            copies.filter(|r| r.node == node).map(|r| r.base + region.bytes)
        });
        ends.max().unwrap_or(first)
    }
}

/// The latest come last; the oldest are forgotten.
fn remember(lives: &mut Vec<u64>, life: u64, most: usize) {
    lives.push(life);
    lives.drain(..lives.len().saturating_sub(most));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::three_nodes;

    #[test]
    fn roles_are_spread_over_the_nodes() {
        let mut config = three_nodes();
        for _ in 0..6 {
            config.add_region(1 << 20, 2, 4096).unwrap();
        }
        for node in 0..3 {
            let primaries = config.regions.iter().filter(|r| r.replicas[0].node == node).count();
            let copies = config.regions.iter().filter(|r| r.replicas[1].node == node).count();
            assert_eq!((primaries, copies), (2, 2), "node {node}");
            let mut bases: Vec<_> = config
                .regions
                .iter()
                .flat_map(|r| &r.replicas)
                .filter(|r| r.node == node)
                .map(|r| r.base)
                .collect();
            bases.sort_unstable();
            assert_eq!(bases, [4096, 4096 + (1 << 20), 4096 + (2 << 20), 4096 + (3 << 20)]);
        }
        assert_eq!(config.add_region(1 << 20, 4, 4096), None, "more copies than nodes");
    }

    #[test]
    fn a_copy_takes_over_and_a_draining_node_has_no_primary() {
        let mut config = three_nodes();
        let region = config.add_region(1 << 20, 3, 4096).unwrap();
        let primary = |config: &Config| config.region(region).unwrap().replicas[0].node;
        let first = primary(&config);
        config.drain_node(first);
        let second = primary(&config);
        assert_ne!(first, second);
        assert!(config.is_drained(first, 4096) && !config.is_drained(second, 4096));
        config.remove_node(second);
        let third = primary(&config);
        assert!(third != first && third != second);
        assert!(!config.has_last_copy(third));
        config.remove_node(third);
        assert_eq!(primary(&config), first, "better one that drains than none");
        assert!(config.has_last_copy(first));
        assert!(!config.is_drained(first, 4096));
    }

    #[test]
    fn regions_get_their_copies_back() {
        let mut config = three_nodes();
        let region = config.add_region(1 << 20, 2, 4096).unwrap();
        let before = config.region(region).unwrap().replicas.clone();
        assert!(!config.lacks_copies(4096));
        config.remove_node(before[0].node);
        assert!(config.lacks_copies(4096) && config.begin_copies(4096));
        assert!(!config.begin_copies(4096), "it is begun");
        let copy = config.region(region).unwrap().joining[0];
        assert!(before.iter().all(|replica| replica.node != copy.node));
        // Whoever leaves waits for it.
        config.drain_node(before[1].node);
        assert!(!config.is_drained(before[1].node, 4096));
        config.finish_copy(region, copy);
        let now = config.region(region).unwrap();
        assert_eq!(
            (now.replicas[0], now.joining.len()),
            (copy, 0),
            "no primary stays where one leaves"
        );
        assert!(config.is_drained(before[1].node, 4096), "there is no room for more");
    }
}
