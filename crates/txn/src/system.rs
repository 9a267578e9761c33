//! The system chunk: what a database has in far memory that is not an object. It is behind the table of the first
//! region, on every replica of it. All zeroes are an empty database.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | which format this is |
//! | 8 | request: who uses addresses that it learned before this time is asked to forget them |
//! | 16 | sessions: places on the board that are in use, or were, counted from the first |
//! | 24 | copier: who makes copies of regions, by the id under which it is fenced; 0: nobody does |
//! | 32 | copied: which copy was made last, and how far |
//! | 64 | scrubber: who looks at all objects; 0: nobody does |
//! | 72 | scrubbed: what was found when that was last done |
//! | 1 KiB | board: a line for each session |
//! | 60 KiB | the root of the catalog: an object |
//!
//! | bytes of a line | what |
//! | --- | --- |
//! | 0 | client: whose place it is, by the id under which it is fenced; 0: nobody's |
//! | 8 | repairer: who repairs what that client left behind; 0: nobody does |
//! | 16 | the oldest snapshot that the session may read; 0: none |
//! | 24 | since when it has forgotten old addresses; 0: it has none |
//! | 32 | beat: changes as long as the session lives |
//! | 40 | since: whoever locked something by the name of this place before this time is dead, and repaired |
//! | 48 | safe: the session begins to read no snapshot that is older; 0: none at all |
//!
//! The first two words are decided at the primary, by comparing and swapping, and then told to the copies; the
//! others are written by the session alone, and by its repairer when that is fenced.

use farside_pool::alloc::{SYSTEM_BYTES, SYSTEM_OFFSET};
use farside_pool::{Addr, RegionId};

use crate::object::Target;

/// The region that has it.
pub(crate) const REGION: RegionId = RegionId(0);

pub(crate) const FORMAT: u64 = SYSTEM_OFFSET;
pub(crate) const REQUEST: u64 = SYSTEM_OFFSET + 8;
pub(crate) const SESSIONS: u64 = SYSTEM_OFFSET + 16;
pub(crate) const COPIER: u64 = SYSTEM_OFFSET + 24;
pub(crate) const COPIED: u64 = SYSTEM_OFFSET + 32;
pub(crate) const SCRUBBER: u64 = SYSTEM_OFFSET + 64;
pub(crate) const SCRUBBED: u64 = SYSTEM_OFFSET + 72;
pub(crate) const BOARD: u64 = SYSTEM_OFFSET + (1 << 10);
const CATALOG: u64 = SYSTEM_OFFSET + (60 << 10);

/// Sessions at a time.
pub(crate) const PLACES: usize = 512;

/// Bytes and words of a line on the board.
pub(crate) const LINE_BYTES: u64 = 56;
pub(crate) const LINE_WORDS: usize = 7;

/// Where words are in a line.
pub(crate) const CLIENT: u64 = 0;
pub(crate) const REPAIRER: u64 = 8;
pub(crate) const OLDEST: u64 = 16;
pub(crate) const SINCE: u64 = 40;

/// Changes with the format of anything in far memory.
pub(crate) const THIS_FORMAT: u64 = 0xfa25_1de0_0000_0004;

const _: () = assert!(BOARD + PLACES as u64 * LINE_BYTES <= CATALOG);
const _: () = assert!(LINE_WORDS as u64 * 8 == LINE_BYTES);
const _: () = assert!(CATALOG < SYSTEM_OFFSET + SYSTEM_BYTES);

/// Where a session's line is.
pub(crate) fn line(slot: u16) -> u64 {
    BOARD + u64::from(slot) * LINE_BYTES
}

/// Where the catalog begins: an object that exists from the first.
pub fn catalog_root() -> Addr {
    Addr::new(REGION, CATALOG).expect("a small offset")
}

/// The same as an object, with the room that it has.
pub(crate) fn catalog_target() -> Target {
    let room = SYSTEM_OFFSET + SYSTEM_BYTES - CATALOG - Target::bytes(0);
    Target { addr: catalog_root(), room: room as u32 / 8 }
}

/// A line on the board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) client: u64,
    pub(crate) repairer: u64,
    pub(crate) oldest: u64,
    pub(crate) floor: u64,
    pub(crate) beat: u64,
    pub(crate) since: u64,
    pub(crate) safe: u64,
}

impl Line {
    pub(crate) fn from_words(words: &[u64; LINE_WORDS]) -> Self {
        let [client, repairer, oldest, floor, beat, since, safe] = *words;
        Line { client, repairer, oldest, floor, beat, since, safe }
    }
}
