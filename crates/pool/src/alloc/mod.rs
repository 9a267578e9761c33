//! Allocation in two stages (`sherman.txt` §4.2.4): *slabs* of far memory are claimed from a region's
//! table, and objects are taken from a slab by its owner alone, without a message.
//!
//! A region begins with a table of one word per chunk of 64 KiB. A slab is a chunk, or for large objects a
//! run of chunks, whose words name its owner and its size class. Within a slab all objects are of one
//! size; which of them are free is known to the owner in a bitmap of its own, and to everybody else from the
//! objects themselves: an object whose first word is 0 is free, one whose first word is [`FREED`] is
//! waiting to be, any other is in use. That is why nothing needs to be logged: whoever takes over the
//! slab of a dead owner, or of a region whose primary has changed, reads the first words and knows
//! (`farmv2.txt` §4.8, `rtx.txt` §4.4).
//!
//! An object of somebody else's slab is freed by one CAS of its first word to [`FREED`]; that is the
//! whole deed. A bit in the slab's head tells the owner where to look; if that hint is lost, a scrub of the
//! slab finds the object all the same. A slab that is empty goes back to its region's table, and may
//! then have another class, but only once the layer above says that nobody can still use an old address
//! ([`SafePoint`]).
//!
//! The first word of a slab, its head, is the only one that decides: whoever has it at the primary has the
//! slab, and is the only one to write its words at the copies. What an owner leaves behind that died is
//! disowned by the pool ([`Place::disown`]), with one CAS for each slab, and adopted by whoever needs room
//! next.

mod bitmap;
mod class;
mod heap;
mod reclaim;
mod release;
mod slab;
mod survey;
mod table;

pub use class::{MAX_OBJECT_BYTES, SizeClass};
pub use heap::{Heap, Space};
pub use release::SafePoint;
pub use survey::{SlabAt, Used};
pub use table::{Place, REGION_HEAD_BYTES, SYSTEM_BYTES, SYSTEM_OFFSET};

use bitmap::Bitmap;
#[cfg(test)]
pub(crate) use table::NOBODY;

/// The first word of an object that was freed by somebody else than its slab's owner.
pub const FREED: u64 = 1;
