//! Sectors: 63 words, and a checksum that also covers where they are.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a sector, which disks write whole or not at all.
pub const SECTOR: usize = 512;

/// Words of a sector beside its checksum.
pub(crate) const WORDS: usize = SECTOR / 8 - 1;

/// What a sector is the beginning of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A file.
    File,
    /// A batch, or all that is in a checkpoint.
    Batch,
    /// Nothing.
    Rest,
}

/// How a sector is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Whole(Part),
    /// Nothing was ever written there.
    Empty,
    Damaged,
}

/// To whom sectors belong: a store and one of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) store: u64,
    pub(crate) file: u64,
}

impl Owner {
    fn seed(self, number: u64, part: Part) -> u64 {
        let spread = |value: u64, by: u64| value.wrapping_mul(by).rotate_left(29);
        // No two places of a store have the same, nor a place as the beginning of different things.
        self.store
            ^ spread(self.file, 0x9e37_79b9_7f4a_7c15)
            ^ spread(number << 2 | part as u64, 0xc2b2_ae3d_27d4_eb4f)
    }

    /// The checksum of a sector without it.
    fn checksum(self, number: u64, part: Part, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed(number, part))
    }

    /// Appends words as sectors, from one on.
    pub(crate) fn frame(self, first: u64, part: Part, words: &[u64], out: &mut Vec<u8>) {
        for (number, chunk) in (first..).zip(words.chunks(WORDS)) {
            let part = if number == first { part } else { Part::Rest };
            let begin = out.len();
            out.extend(chunk.iter().flat_map(|word| word.to_le_bytes()));
            out.resize(begin + SECTOR - 8, 0);
            let sum = self.checksum(number, part, &out[begin..]);
            out.extend_from_slice(&sum.to_le_bytes());
        }
    }

    /// What a sector is.
    pub(crate) fn look(self, number: u64, sector: &[u8]) -> Found {
        let (words, sum) = sector.split_at(SECTOR - 8);
        let sum = u64::from_le_bytes(sum.try_into().expect("8 bytes"));
        if sum == 0 && words.iter().all(|byte| *byte == 0) {
            return Found::Empty;
        }
        let fits = |part: &Part| self.checksum(number, *part, words) == sum;
        match [Part::Rest, Part::Batch, Part::File].into_iter().find(fits) {
            Some(part) => Found::Whole(part),
            None => Found::Damaged,
        }
    }
}

/// The words of a sector.
pub(crate) fn words(sector: &[u8]) -> [u64; WORDS] {
    let (words, _) = sector[..SECTOR - 8].as_chunks::<8>();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}
