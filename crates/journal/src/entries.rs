//! What a batch or a checkpoint says: words that are now at some places.

/// Words of one entry at the most.
pub(crate) const MOST: usize = (1 << 24) - 1;

/// Appends an entry: where it begins, how many words, and these.
pub(crate) fn push(out: &mut Vec<u64>, at: u64, words: &[u64]) {
    let mut at = at;
    for part in words.chunks(MOST) {
        out.push(at << 24 | part.len() as u64);
        out.extend_from_slice(part);
        at += part.len() as u64;
    }
}

/// Takes a stream of entries apart, however it comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    at: u64,
    left: u64,
    /// How many entries have begun.
    pub(crate) count: u64,
}

impl Reader {
    /// Takes some more words, and calls `store` with what is to be where.
    pub(crate) fn take(&mut self, mut words: &[u64], mut store: impl FnMut(u64, &[u64])) {
        while let Some((first, rest)) = words.split_first() {
            if self.left == 0 {
                (self.at, self.left) = (first >> 24, first & MOST as u64);
                self.count += 1;
                words = rest;
                continue;
            }
            let (here, later) = words.split_at(words.len().min(self.left as usize));
            store(self.at, here);
            self.at += here.len() as u64;
            self.left -= here.len() as u64;
            words = later;
        }
    }

    /// Whether nothing is missing of the last one.
    pub(crate) fn is_whole(&self) -> bool {
        self.left == 0
    }
}
