//! Memory for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) fn memory(words: usize) -> Arc<Vec<AtomicU64>> {
    Arc::new((0..words).map(|_| AtomicU64::new(0)).collect())
}

pub(crate) fn contents(memory: &[AtomicU64]) -> Vec<u64> {
    memory.iter().map(|word| word.load(Ordering::Relaxed)).collect()
}
