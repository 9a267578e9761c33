//! Values that say whether they are whole.

use super::visit;
use crate::engine::{Session, Table};

/// A value of so many bytes (at least 8) that holds a number, and is full of it.
pub(super) fn filled(bytes: usize, number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; bytes];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// All keys of a table have such values.
pub(super) async fn check_filled<S: Session>(
    session: &mut S,
    table: Table,
    keys: u64,
    bytes: usize,
) -> Result<(), String> {
    visit(session, table, 0..keys, |key, row| {
        let value = row.ok_or_else(|| format!("key {key} is gone"))?;
        let first = value.first_chunk().map(|first| u64::from_le_bytes(*first));
        match first {
            Some(number) if value == filled(bytes, number) => Ok(()),
            _ => Err(format!("the value of key {key} is of two writes, or of none")),
        }
    })
    .await
}
