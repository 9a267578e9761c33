//! The configuration of a pool: who belongs to it, and where each region is.
//!
//! It is a plain value. Each change makes the next one, with an epoch that is one higher; which of them
//! is in the store, and which of them counts, is decided elsewhere.

use std::collections::BTreeSet;

use farside_fabric::ClientId;
use serde::{Deserialize, Serialize};

use crate::RegionId;
use crate::petition::Newcomer;
use crate::time::Master;

/// One memory node, in one of its lives: a node that was restarted is another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its number in the pool, never used twice.
    pub id: u16,
    /// Tells its lives apart.
    pub incarnation: u64,
    /// Where it is reached.
    pub address: String,
    /// How much memory it has.
    pub bytes: u64,
    /// It is to leave: nothing new is placed there, and no primary stays.
    pub draining: bool,
    /// It is for a version cache, and for no regions.
    #[serde(default)]
    pub versions: bool,
}

impl Node {
    /// Whether copies of regions may be placed there.
    pub(crate) fn takes_regions(&self) -> bool {
        !self.draining && !self.versions
    }
}

/// A region and where its copies are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Region {
    /// Its number.
    pub id: u16,
    /// How large it is.
    pub bytes: u64,
    /// The copies that are whole; the first is the primary. None: all were lost.
    pub replicas: Vec<Replica>,
    /// Copies in the making, which are written and not read.
    pub joining: Vec<Replica>,
    /// How many copies there should be, the primary included.
    #[serde(default)]
    pub copies: usize,
}

/// A copy of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Replica {
    /// On which node.
    pub node: u16,
    /// Where it begins in the node's memory.
    pub base: u64,
}

/// How many regions a node has a part in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Roles {
    /// As their primary.
    pub primaries: usize,
    /// With another copy.
    pub copies: usize,
}

/// A client process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// The id under which it is fenced.
    pub client: u64,
    /// Its place in the table of sessions.
    pub slot: u16,
    /// Its number, never used twice.
    pub serial: u64,
}

/// Threads of a session that allocate.
const OWNER_THREADS: u64 = 1 << 10;

impl Session {
    /// The name under which one of its threads owns slabs (see [`crate::alloc`]); `None` if there are no
    /// names for so many threads.
    pub fn owner(&self, thread: u16) -> Option<u64> {
        let thread = u64::from(thread);
        (thread < OWNER_THREADS).then_some(self.serial * OWNER_THREADS + thread)
    }
}

/// A whole configuration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Counts the changes.
    pub epoch: u64,
    /// The session that grants leases and makes changes.
    pub manager: u64,
    /// The node that has the table of sessions.
    pub home: u16,
    /// Whose clock is the time; `None` while nobody may give out times.
    #[serde(default)]
    pub master: Option<Master>,
    /// Nobody has given out a later time before the newest master began; 0 if there never was one.
    #[serde(default)]
    pub timed: u64,
    /// How long a lease is, in nanoseconds.
    pub lease_ns: u64,
    /// Somebody misses the manager: that this is in the store is no evidence of its office.
    #[serde(default)]
    pub contested: bool,
    /// The members.
    pub nodes: Vec<Node>,
    /// All regions, by their numbers.
    pub regions: Vec<Region>,
    /// The client processes that may use the pool.
    pub sessions: Vec<Session>,
    /// Client processes that were put out, and must be fenced at every member before this counts.
    /// Their places in the table are not used again before that.
    pub fenced: Vec<Session>,
    /// The lives of nodes that are over, the latest last: none of them is taken in again, whatever its
    /// memory holds.
    pub past_lives: Vec<u64>,
    /// Those among them that were asked to leave, and have left: they do not come back.
    #[serde(default)]
    pub drained: Vec<u64>,
    /// The next free number of a node.
    pub next_node: u16,
    /// The next free number of a session.
    pub next_serial: u64,
}

/// How many sessions a pool has at most.
pub const MAX_SESSIONS: usize = 1024;

/// How many regions a pool has at most: with all its members, a configuration must fit into its place in
/// the memory of each node.
pub const MAX_REGIONS: usize = 512;

/// How long the address of a node may be.
const MAX_ADDRESS: usize = 128;

/// How many lives of nodes are remembered after their end.
pub(crate) const MAX_PAST_LIVES: usize = 256;

/// And how many of those that were asked to leave.
pub(crate) const MAX_DRAINED: usize = 32;

/// How many nodes a pool has at most, at a time.
pub const MAX_NODES: usize = 256;

impl Config {
    /// The first one: a session that manages, and no nodes yet.
    pub fn first(manager: ClientId, lease: std::time::Duration) -> Self {
        Config {
            epoch: 1,
            manager: manager.0,
            home: 0,
            master: None,
            timed: 0,
            lease_ns: lease.as_nanos() as u64,
            contested: false,
            nodes: Vec::new(),
            regions: Vec::new(),
            sessions: vec![Session { client: manager.0, slot: 0, serial: 1 }],
            fenced: Vec::new(),
            past_lives: Vec::new(),
            drained: Vec::new(),
            next_node: 0,
            next_serial: 2,
        }
    }

    /// What a change starts from: the same with the next epoch.
    #[must_use]
    pub fn next(&self) -> Self {
        Config { epoch: self.epoch + 1, contested: false, ..self.clone() }
    }

    /// The node of that number, if it is a member.
    pub fn node(&self, id: u16) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The node with the version cache: whoever writes tells it, as long as there is one.
    pub fn version_cache(&self) -> Option<&Node> {
        self.nodes.iter().find(|node| node.versions && !node.draining)
    }

    /// Whether verbs that were meant for one configuration may be posted by the other: all that transactions use is where it was.
    pub(crate) fn is_placed_like(&self, other: &Config) -> bool {
        let cache = |config: &Config| config.version_cache().map(|node| node.id);
        self.regions == other.regions && cache(self) == cache(other)
    }

    /// Whether a life of a node is over.
    pub fn is_past(&self, incarnation: u64) -> bool {
        self.past_lives.contains(&incarnation)
    }

    /// The session of that client, if it is a member.
    pub fn session(&self, client: u64) -> Option<Session> {
        self.sessions.iter().copied().find(|session| session.client == client)
    }

    /// A region.
    pub fn region(&self, id: RegionId) -> Option<&Region> {
        self.regions.get(id.0 as usize)
    }

    /// Whether a region has this copy, whole or in the making.
    pub fn has(&self, region: RegionId, replica: &Replica) -> bool {
        let region = self.region(region);
        region.is_some_and(|region| {
            region.replicas.contains(replica) || region.joining.contains(replica)
        })
    }

    /// Whether there is room for a node with this address.
    pub fn has_room_for(&self, address: &str) -> bool {
        self.nodes.len() < MAX_NODES && address.len() <= MAX_ADDRESS
    }

    /// Takes in a node.
    pub fn add_node(&mut self, node: &Newcomer) -> u16 {
        let id = self.next_node;
        self.next_node += 1;
        let Newcomer { address, incarnation, bytes, versions } = node.clone();
        self.nodes.push(Node { id, incarnation, address, bytes, draining: false, versions });
        if self.nodes.len() == 1 {
            self.move_home(id);
        }
        id
    }

    /// Another node has the table of sessions, and the clock, which is off until the time is known from which it goes on.
    pub fn move_home(&mut self, id: u16) {
        if self.home != id {
            self.home = id;
            self.master = None;
        }
    }

    /// The clock of the home goes on from a time: it says `says` now.
    pub fn set_clock(&mut self, time: u64, says: u64) {
        let ahead = time.wrapping_sub(says);
        self.master = Some(Master { node: self.home, ahead, since: time });
        self.timed = time;
    }

    /// Takes in a session, in the first free place of the table; `None` if there is none.
    pub fn add_session(&mut self, client: u64) -> Option<u16> {
        let mut taken = self.sessions.iter().chain(&self.fenced);
        let slots: BTreeSet<u16> = taken.by_ref().map(|session| session.slot).collect();
        let slot = (0..MAX_SESSIONS as u16).find(|slot| !slots.contains(slot))?;
        self.sessions.push(Session { client, slot, serial: self.next_serial });
        self.next_serial += 1;
        Some(slot)
    }

    /// Puts out a session; it must be fenced before that counts.
    pub fn remove_session(&mut self, client: u64) {
        self.fenced.extend(self.session(client));
        self.sessions.retain(|session| session.client != client);
    }

    /// Whether an owner of slabs is dead, and once this configuration counts also fenced.
    pub fn is_dead_owner(&self, owner: u64) -> bool {
        let serial = owner / OWNER_THREADS;
        serial < self.next_serial && self.sessions.iter().all(|session| session.serial != serial)
    }

    /// As it is stored, and handed to the members.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Reads what was stored; or what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let config: Config = serde_json::from_slice(bytes)
            .map_err(|e| format!("not a configuration of a Farside pool: {e}"))?;
        config.check().map(|()| config.with_copies())
    }

    /// One whose regions say how many copies they should have.
    fn with_copies(mut self) -> Self {
        for region in self.regions.iter_mut().filter(|region| region.copies == 0) {
            region.copies = region.replicas.len();
        }
        self
    }

    fn check(&self) -> Result<(), String> {
        let known = |replica: &Replica| self.node(replica.node).is_some();
        let placed = |region: &Region| region.replicas.iter().chain(&region.joining).all(known);
        if self.epoch == 0 || self.lease_ns == 0 {
            Err("a configuration without epoch or lease".into())
        } else if self.sessions.len() > MAX_SESSIONS
            || self.nodes.len() > MAX_NODES
            || self.regions.len() > MAX_REGIONS
        {
            Err("a configuration with more members or regions than a pool may have".into())
        } else if !self.regions.iter().all(placed) {
            Err("a configuration with a copy on a node that is no member".into())
        } else if !self.regions.iter().zip(0..).all(|(region, id)| region.id == id) {
            Err("a configuration whose regions are not in order".into())
        } else {
            Ok(())
        }
    }
}

/// A node that is no member yet.
#[cfg(test)]
pub(crate) fn newcomer(address: &str, incarnation: u64) -> Newcomer {
    Newcomer { address: address.into(), incarnation, bytes: 1 << 30, versions: false }
}

/// A configuration to begin with.
#[cfg(test)]
pub(crate) fn three_nodes() -> Config {
    let mut config = Config::first(ClientId(9), std::time::Duration::from_millis(10));
    for number in 0..3 {
        config.add_node(&newcomer(&format!("host{number}:1"), number));
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_and_damage_is_told() {
        let mut config = three_nodes();
        config.add_region(1 << 20, 2, 4096).unwrap();
        assert_eq!(Config::decode(&config.encode()), Ok(config.clone()));
        assert!(Config::decode(b"{}").unwrap_err().contains("not a configuration"));
        config.nodes.remove(0);
        assert!(Config::decode(&config.encode()).unwrap_err().contains("no member"));
    }

    /// A node that was cut off, put out, and healed asked for membership before it had noticed, and was
    /// taken in with all that was in its memory.
    #[test]
    fn a_life_that_is_over_stays_over() {
        let mut config = three_nodes();
        let node = config.nodes[1].clone();
        assert!(!config.is_past(node.incarnation));
        config.remove_node(node.id);
        assert!(config.is_past(node.incarnation));
        for life in 100..1000 {
            let id = config.add_node(&newcomer("somewhere:1", life));
            config.remove_node(id);
        }
        assert!(config.past_lives.len() <= MAX_PAST_LIVES && config.is_past(999));
    }

    /// The largest configuration does not reach into the place of the other.
    #[test]
    fn the_largest_configuration_fits_into_its_place() {
        let mut config = Config::first(ClientId(u64::MAX), std::time::Duration::from_secs(60));
        config.sessions.clear();
        config.next_node = u16::MAX - MAX_NODES as u16;
        for number in 0..MAX_NODES as u64 {
            let address = "x".repeat(MAX_ADDRESS);
            assert!(config.has_room_for(&address));
            config.add_node(&Newcomer { bytes: u64::MAX, ..newcomer(&address, u64::MAX - number) });
        }
        assert!(!config.has_room_for("x") && !three_nodes().has_room_for(&"x".repeat(200)));
        for number in 0..MAX_SESSIONS as u64 {
            config.add_session(u64::MAX - number).unwrap();
        }
        assert_eq!(config.add_session(1), None);
        // Whoever is put out keeps its place until it is fenced.
        config.sessions.iter_mut().for_each(|session| session.serial = u64::MAX >> 26);
        config.fenced = config.sessions.split_off(MAX_SESSIONS / 2);
        config.past_lives = vec![u64::MAX; MAX_PAST_LIVES];
        config.drained = vec![u64::MAX; MAX_DRAINED];
        while config.add_region(1 << 47, 5, 1 << 46).is_some() {}
        assert_eq!(config.regions.len(), MAX_REGIONS);
        for region in &mut config.regions {
            region.replicas.iter_mut().for_each(|replica| replica.base = 1 << 47);
            region.joining = region.replicas.clone();
        }
        let (bytes, room) = (config.encode().len(), crate::control::MAX_CONFIG_BYTES);
        assert!(bytes <= room, "{bytes} bytes for {room}");
    }

    #[test]
    fn places_of_sessions_are_used_again() {
        let mut config = three_nodes();
        assert_eq!(config.add_session(20), Some(1));
        assert_eq!(config.add_session(21), Some(2));
        let owner = config.session(20).unwrap().owner(5).unwrap();
        assert!(!config.is_dead_owner(owner));
        config.remove_session(20);
        assert!(config.is_dead_owner(owner));
        // Its place is free only when it is fenced.
        assert_eq!(config.add_session(22), Some(3));
        config.fenced.clear();
        assert_eq!(config.add_session(23), Some(1));
        let owners: BTreeSet<_> = config.sessions.iter().map(|s| s.owner(5).unwrap()).collect();
        assert!(owners.len() == 4 && !owners.contains(&owner));
        assert!(!config.is_dead_owner(crate::alloc::NOBODY));
    }

    #[test]
    fn a_region_fits_into_its_nodes() {
        let mut config = three_nodes();
        config.nodes[2].bytes = 4096 + (3 << 20);
        assert!(config.add_region(2 << 20, 3, 4096).is_some());
        assert_eq!(config.add_region(2 << 20, 3, 4096), None, "one has no room");
        assert!(config.add_region(2 << 20, 2, 4096).is_some());
        assert_eq!(config.add_region(u64::MAX, 1, 4096), None);
    }
}
