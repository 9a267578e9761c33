//! Which objects of a slab are free: a bitmap with a summary, so that finding one is two steps.

/// At most so many objects: 128 words under one summary.
pub(super) const MAX_BITS: usize = 128 * 64;

/// Free objects by number.
#[derive(Clone, Debug)]
pub(super) struct Bitmap {
    /// Bit i is set where word i has a free object.
    summary: u128,
    words: Vec<u64>,
    free: usize,
    len: usize,
}

impl Bitmap {
    /// All of so many are taken.
    pub(super) fn taken(len: usize) -> Self {
        assert!(len <= MAX_BITS);
        Bitmap { summary: 0, words: vec![0; len.div_ceil(64)], free: 0, len }
    }

    /// All of so many are free.
    pub(super) fn free(len: usize) -> Self {
        let mut bitmap = Self::taken(len);
        (0..len).for_each(|number| bitmap.give(number));
        bitmap
    }

    /// Takes the first that is free.
    #[inline]
    pub(super) fn take(&mut self) -> Option<usize> {
        if self.summary == 0 {
            return None;
        }
        let word = self.summary.trailing_zeros() as usize;
        let bit = self.words[word].trailing_zeros() as usize;
        self.words[word] &= self.words[word] - 1;
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
        self.free -= 1;
        Some(word * 64 + bit)
    }

    /// Gives one back, which must be taken.
    #[inline]
    pub(super) fn give(&mut self, number: usize) {
        let (word, bit) = (number / 64, 1u64 << (number % 64));
        assert!(number < self.len && self.words[word] & bit == 0, "freed twice, or never taken");
        self.words[word] |= bit;
        self.summary |= 1 << word;
        self.free += 1;
    }

    /// How many are free.
    pub(super) fn count(&self) -> usize {
        self.free
    }

    /// Whether all are free.
    pub(super) fn is_empty_slab(&self) -> bool {
        self.free == self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_handed_out_once() {
        for len in [1, 63, 64, 65, 1000, MAX_BITS] {
            let mut bitmap = Bitmap::free(len);
            let mut taken: Vec<_> = std::iter::from_fn(|| bitmap.take()).collect();
            assert_eq!(taken.len(), len);
            taken.sort_unstable();
            assert!(taken.iter().enumerate().all(|(number, taken)| number == *taken));
            assert_eq!(bitmap.count(), 0);
            bitmap.give(len / 2);
            assert_eq!(bitmap.take(), Some(len / 2));
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_noticed() {
        let mut bitmap = Bitmap::free(10);
        let taken = bitmap.take().unwrap();
        bitmap.give(taken);
        bitmap.give(taken);
    }
}
