//! # farside-pool: memory nodes as one pool
//!
//! A pool is a set of memory nodes and of client processes, its *sessions*. A
//! [configuration](Config) says who they are and where the copies of each region are. It lives in a
//! [config store](ConfigStore), is changed only there, by comparing and swapping, and *counts* once every
//! session has acknowledged it or was fenced.
//!
//! Everything else is verbs: members beat in the memory of nodes, one of the sessions manages, and grants
//! leases there ([`terms`] has the reasoning). So one code serves all backends of the fabric, the
//! simulator included, and no node needs to know more than words.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `config`, `placement` | who belongs to a pool, and where regions are: a plain value |
//! | [`store`] | where configurations are kept |
//! | `control` | the first part of each node's memory: leases and announcements |
//! | [`terms`] | what a lease promises, and why |
//! | `keeper`, `host` | a node's side |
//! | `member`, `view` | a session's side, and what its threads see of it |
//! | `manager` | grants and changes |
//! | [`time`] | the pool's time, and how uncertain it is |
//! | [`alloc`] | slabs from regions, objects from slabs |
//! | [`persistent`] | remote persistent memory, without transactions |

mod addr;
pub mod alloc;
mod config;
mod contest;
mod control;
mod host;
mod inspect;
mod keeper;
mod links;
mod listen;
mod manager;
mod member;
mod network;
mod patience;
pub mod persistent;
mod petition;
mod placement;
pub mod store;
pub mod terms;
pub mod time;
mod view;

pub use addr::{Addr, RegionId};
pub use config::{
    Config, MAX_NODES, MAX_REGIONS, MAX_SESSIONS, Node, Region, Replica, Roles, Session,
};
pub use control::CONTROL_BYTES;
pub use host::{Host, HostEvent};
pub use inspect::{Condition, Inspection, SessionCondition, Usage, inspect};
pub use keeper::{Keeper, Lapsed};
pub use links::{Connect, Connecting, Links, is_member};
pub use member::{Ended, LeftOut, Means, Member};
pub use network::NetConnect;
pub use patience::within;
pub use petition::{Newcomer, Petition};
pub use store::{ConfigStore, StoreError, Stored};
pub use terms::Terms;
pub use view::{Leave, Permit, Seat, View};
