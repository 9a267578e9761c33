//! What an object of a table is: the tag that comes with its body.
//!
//! | bits | what |
//! | --- | --- |
//! | 0–15 | the table |
//! | 16–19 | what kind of object |
//! | 20–31 | for rows: the length of the key, which is the first part of the body |

use farside_txn::{Blob, Version};

/// Keys are not longer.
pub const MAX_KEY_BYTES: usize = 1 << 10;

/// Values are not longer.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

const _: () = assert!(MAX_KEY_BYTES < 1 << 12);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A key and its value.
    Row = 1,
    /// A key, and where its value is.
    LongRow = 2,
    Bucket = 3,
    Node = 4,
    /// The root of a table that is being dropped.
    Dropped = 5,
}

pub(crate) fn tag(table: u16, kind: Kind, key_bytes: usize) -> u32 {
    u32::from(table) | (kind as u32) << 16 | (key_bytes as u32) << 20
}

/// Whether a version is of that table and kind.
pub(crate) fn is(version: &Version, table: u16, kind: Kind) -> bool {
    version.is_present() && version.tag() & 0xf_ffff == tag(table, kind, 0)
}

/// What a row has behind its key.
pub(crate) enum Value<'a> {
    Here(&'a [u8]),
    Elsewhere(&'a [u8]),
}

/// The value of a version that is the row of a key.
pub(crate) fn value_of<'v>(version: &'v Version, table: u16, key: &[u8]) -> Option<Value<'v>> {
    let (key_of_row, value) = split_row(version, table)?;
    (key_of_row == key).then_some(value)
}

/// The large value that an object of any table names.
pub(crate) fn names(version: &Version) -> Option<Blob> {
    match split_row(version, version.tag() as u16)? {
        (_, Value::Elsewhere(pointer)) => Blob::from_bytes(pointer),
        (_, Value::Here(_)) => None,
    }
}

/// The key and the value of a row of a table.
pub(crate) fn split_row(version: &Version, table: u16) -> Option<(&[u8], Value<'_>)> {
    let long = is(version, table, Kind::LongRow);
    if !long && !is(version, table, Kind::Row) {
        return None;
    }
    let (key, rest) = version.bytes().split_at_checked((version.tag() >> 20) as usize)?;
    Some((key, if long { Value::Elsewhere(rest) } else { Value::Here(rest) }))
}
