//! The control area in front of a segment's data. `docs/layouts.md` has the byte map.

use crate::verbs::MAX_CALL_BYTES;

/// "FARSIDE1", read as a little-endian word.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"FARSIDE1");
pub(super) const VERSION: u64 = 1;

/// Words of the header.
pub(super) mod header {
    pub(in crate::shm) const MAGIC: usize = 0;
    pub(in crate::shm) const VERSION: usize = 1;
    pub(in crate::shm) const NODE: usize = 2;
    pub(in crate::shm) const DATA_BYTES: usize = 3;
    pub(in crate::shm) const STATE: usize = 4;
    /// The client id of the process that serves calls, or 0.
    pub(in crate::shm) const SERVER: usize = 5;
    /// Counts requests; its low half is the futex that the server sleeps on.
    pub(in crate::shm) const REQUESTS: usize = 6;
    /// Where the next fenced id is noted.
    pub(in crate::shm) const FENCED_CURSOR: usize = 7;
    /// In a file: a hash of the id of the boot for which the next one counts.
    pub(in crate::shm) const BOOT: usize = 8;
    /// How far the time is ahead of the clock of the host.
    pub(in crate::shm) const AHEAD: usize = 9;
    /// A time that is later than any that was seen.
    pub(in crate::shm) const LATEST: usize = 10;
    pub(in crate::shm) const WORDS: usize = 64;
}

/// Values of the header's state.
pub(super) const LIVE: u64 = 1;
pub(super) const GONE: u64 = 2;

/// How many processes can be attached at once.
pub(super) const PROCESSES: usize = if cfg!(loom) { 2 } else { 256 };
pub(super) const PROCESS_WORDS: usize = 8;
pub(super) const PROCESSES_AT: usize = header::WORDS;

/// How many fenced ids are remembered, so that a process which was slow to attach is refused.
pub(super) const FENCED: usize = if cfg!(loom) { 8 } else { 4096 };
pub(super) const FENCED_AT: usize = PROCESSES_AT + PROCESSES * PROCESS_WORDS;

/// How many calls can be under way at once.
pub(super) const CALLS: usize = 16;
pub(super) const CALL_HEADER_WORDS: usize = 8;
pub(super) const CALL_WORDS: usize = CALL_HEADER_WORDS + MAX_CALL_BYTES / 8;
pub(super) const CALLS_AT: usize = FENCED_AT + FENCED;

/// Data begins here: a multiple of the largest page that a mapping is likely to have.
pub(super) const DATA_AT_BYTES: u64 = 2 << 20;

const _: () = {
    assert!(PROCESSES_AT.is_multiple_of(8), "entries fill cache lines");
    assert!(CALLS_AT.is_multiple_of(8) && CALL_WORDS.is_multiple_of(8));
    assert!(MAX_CALL_BYTES.is_multiple_of(8));
    assert!((CALLS_AT + CALLS * CALL_WORDS) * 8 <= DATA_AT_BYTES as usize, "the control area fits");
};
