//! Objects in far memory.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | lock: 0, or who holds it and since when |
//! | 8 | ts: the commit time of the body |
//! | 16 | prev: the record with the version before, as an offset of the region; 0: none |
//! | 24 | meta: length of the body in bytes (32 bits), whether there is one (bit 32) |
//! | 32 | checksum over ts, prev, meta and body |
//! | 40… | body, in whole words |
//!
//! All zeroes are an object that never was: absent, at time 0. A whole one that fits into a line (bodies up
//! to 24 bytes) is read or written with one.

use farside_pool::Addr;

use crate::words::checksum;

pub(crate) const LOCK: u64 = 0;
pub(crate) const TS: u64 = 8;
const BODY: u64 = 40;

/// Words before the body, without the lock.
const HEAD_WORDS: usize = 4;

const _: () = assert!(TS as usize + HEAD_WORDS * 8 == BODY as usize && LOCK == 0);

/// There is something: without this flag an object was taken away, or never was.
const PRESENT: u64 = 1 << 32;

/// An object: where it is, and for how much there is room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Target {
    /// Where.
    pub addr: Addr,
    /// Words that its body has room for.
    pub room: u32,
}

impl Target {
    /// Bytes that it takes.
    pub const fn bytes(room: u32) -> u64 {
        BODY + room as u64 * 8
    }

    /// Bytes from `ts` on.
    pub(crate) fn bytes_from_ts(self) -> usize {
        (HEAD_WORDS + self.room as usize) * 8
    }
}

/// A version of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Version {
    /// When it was committed; 0: never.
    pub ts: u64,
    /// Where the version before is; 0: there is none.
    pub prev: u64,
    pub(crate) meta: u64,
    /// Its body; the last word may have bytes that do not count.
    pub words: Vec<u64>,
}

impl Version {
    /// A body to be written.
    pub(crate) fn of(body: Option<&[u8]>) -> Self {
        body.map_or_else(Version::default, |body| Version {
            meta: body.len() as u64 | PRESENT,
            words: words(body),
            ..Version::default()
        })
    }

    /// Whether there is something.
    pub fn is_present(&self) -> bool {
        self.meta & PRESENT != 0
    }

    /// Its bytes; `None` if there are none.
    pub fn body(&self) -> Option<Vec<u8>> {
        self.is_present().then(|| {
            let mut bytes: Vec<u8> =
                self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.truncate(self.meta as u32 as usize);
            bytes
        })
    }

    /// From the words of an object from `ts` on; `None` if they are torn.
    pub(crate) fn from_words(words: &[u64]) -> Option<Self> {
        let (head, body) = words.split_at_checked(HEAD_WORDS)?;
        let [ts, prev, meta, check] = head.try_into().ok()?;
        if [ts, prev, meta, check] == [0; 4] {
            return Some(Version::default());
        }
        let length = (meta as u32 as usize).div_ceil(8);
        let body = body.get(..length)?;
        let whole = check == checksum(&[&[ts, prev, meta], body]);
        whole.then(|| Version { ts, prev, meta, words: body.to_vec() })
    }

    /// The same without a look at the checksum.
    pub(crate) fn unchecked(words: &[u64]) -> Self {
        let length = (words[2] as u32 as usize).div_ceil(8).min(words.len() - HEAD_WORDS);
        let body = words[HEAD_WORDS..HEAD_WORDS + length].to_vec();
        Version { ts: words[0], prev: words[1], meta: words[2], words: body }
    }

    /// The words of an object from `ts` on.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let head = [self.ts, self.prev, self.meta];
        let mut words = Vec::with_capacity(HEAD_WORDS + self.words.len());
        words.extend_from_slice(&head);
        words.push(checksum(&[&head, &self.words]));
        words.extend_from_slice(&self.words);
        words
    }
}

fn words(body: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    body.chunks(8).map(word).collect()
}

/// The words of an object as it is loaded, lock included: committed at the earliest time.
pub fn loaded(body: &[u8]) -> Vec<u64> {
    let version = Version { ts: 1, ..Version::of(Some(body)) };
    [0].into_iter().chain(version.to_words()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_it_was_written_and_torn_ones_are_not() {
        for body in [&b""[..], b"x", b"12345678", b"a longer one, of some words"] {
            let version = Version { ts: 77, prev: 4096, ..Version::of(Some(body)) };
            let mut words = version.to_words();
            words.resize(20, 0xdead);
            let read = Version::from_words(&words).unwrap();
            assert_eq!((read.ts, read.prev, read.body().as_deref()), (77, 4096, Some(body)));
            let used = HEAD_WORDS + body.len().div_ceil(8);
            for torn in 0..used {
                let mut words = words.clone();
                words[torn] ^= 1 << 40;
                assert_eq!(Version::from_words(&words), None, "word {torn} of {body:?}");
            }
        }
        let gone = Version { ts: 5, ..Version::of(None) };
        assert_eq!(Version::from_words(&gone.to_words()).unwrap().body(), None);
        assert_eq!(Version::from_words(&[0; 9]).unwrap().body(), None);
        assert_eq!(Version::from_words(&[1; 3]), None);
    }
}
