//! The system chunk: what a database has in far memory that is not an object. It is behind the table of the first
//! region, on every replica of it. All zeroes are an empty database.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | which format this is |
//! | 8 | request: who uses addresses that it learned before this time is asked to forget them |
//! | 16 | sessions: places on the board that are in use, or were, counted from the first |
//! | 24 | serials: the last number of a session, where there is no manager to hand them out |
//! | 8 KiB | claims: a word for each place on the board, where there is no manager: whose it is |
//! | 16 KiB | board: for each session the oldest snapshot that it may read (0: nobody there), and since when it has forgotten old addresses |
//! | 48 KiB | the root of the catalog: an object |

use farside_pool::alloc::{SYSTEM_BYTES, SYSTEM_OFFSET};
use farside_pool::{Addr, MAX_SESSIONS, RegionId};

/// The region that has it.
pub(crate) const REGION: RegionId = RegionId(0);

pub(crate) const FORMAT: u64 = SYSTEM_OFFSET;
pub(crate) const REQUEST: u64 = SYSTEM_OFFSET + 8;
pub(crate) const SESSIONS: u64 = SYSTEM_OFFSET + 16;
pub(crate) const SERIALS: u64 = SYSTEM_OFFSET + 24;
const CLAIMS: u64 = SYSTEM_OFFSET + (8 << 10);
pub(crate) const BOARD: u64 = SYSTEM_OFFSET + (16 << 10);
const CATALOG: u64 = SYSTEM_OFFSET + (48 << 10);

/// Bytes of a line on the board.
pub(crate) const LINE_BYTES: u64 = 16;

/// Changes with the format of anything in far memory.
pub(crate) const THIS_FORMAT: u64 = 0xfa25_1de0_0000_0001;

const _: () = assert!(CLAIMS + MAX_SESSIONS as u64 * 8 <= BOARD);
const _: () = assert!(BOARD + MAX_SESSIONS as u64 * LINE_BYTES <= CATALOG);
const _: () = assert!(CATALOG < SYSTEM_OFFSET + SYSTEM_BYTES);

/// Where a session's claim is.
pub(crate) fn claim(slot: u16) -> u64 {
    CLAIMS + u64::from(slot) * 8
}

/// Where a session's line is.
pub(crate) fn line(slot: u16) -> u64 {
    BOARD + u64::from(slot) * LINE_BYTES
}

/// Where the catalog begins: an object that exists from the first.
pub fn catalog_root() -> Addr {
    Addr::new(REGION, CATALOG).expect("a small offset")
}
