//! Objects in far memory.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | the heap's word: 0 while the place is free |
//! | 8 | lock: 0, or who holds it and since when |
//! | 16 | ts: the commit time of the body |
//! | 24 | prev: the record with the version before, as an offset of the region; 0: none |
//! | 32 | meta: length of the body in bytes (24 bits), whether there is one (bit 24), nothing yet (7 bits, for column groups), tag (32 bits, of whoever uses the object) |
//! | 40 | checksum over ts, prev, meta and body |
//! | 48… | body, in whole words |
//!
//! All zeroes are an object that never was: absent, at time 0. A whole one with a body of up to 16 bytes fits
//! into a line.

use farside_pool::Addr;
use farside_pool::alloc::SizeClass;
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::words::checksum;

pub(crate) const HEADER: u64 = 0;
pub(crate) const LOCK: u64 = 8;
pub(crate) const TS: u64 = 16;
pub(crate) const PREV: u64 = 24;
const META: u64 = 32;
const BODY: u64 = 48;
const LINE: u64 = 64;

/// Words before the body, from `ts` on.
const HEAD_WORDS: usize = 4;

const _: () = assert!(TS as usize + HEAD_WORDS * 8 == BODY as usize && LOCK == HEADER + 8);
const _: () = assert!(cfg!(target_endian = "little"), "bodies are bytes in the order of the host");

/// Whether lock, time and previous version of an object at this address of a node are in one line: the checksum tells
/// whether the rest belongs to them.
#[inline]
pub(crate) fn head_is_in_a_line(at: u64) -> bool {
    (at + LOCK) / LINE == (at + META - 1) / LINE
}

/// The heap's word of an object that is in use.
pub(crate) const IN_USE: u64 = 0xfa51_de0b_1ec7_0002;

/// The heap's words of a record ring, and of a record that is outside of one: with their owner of locks.
const RING: u64 = 0xfa51_0000_0000_4196;
const SPILLED: u64 = 0xfa51_0000_0000_5b11;

/// That of a large body that only old versions name.
const DOOMED: u64 = 0xfa51_de0b_1ec7_0003;

/// What a place is in which nobody expects an object, by the heap's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Raw {
    /// A record ring of an owner of locks.
    Ring(u16),
    /// A record of an owner of locks that is outside of its ring.
    Spilled(u16),
    /// A large body that only old versions name.
    Doomed,
    /// A large body, or something unknown.
    Other,
}

impl Raw {
    pub(crate) fn to_word(self) -> u64 {
        match self {
            Raw::Ring(owner) => RING | u64::from(owner) << 32,
            Raw::Spilled(owner) => SPILLED | u64::from(owner) << 32,
            Raw::Doomed => DOOMED,
            Raw::Other => IN_USE,
        }
    }

    pub(crate) fn from_word(word: u64) -> Self {
        let owner = (word >> 32) as u16;
        match word {
            DOOMED => Raw::Doomed,
            _ if word == Raw::Ring(owner).to_word() => Raw::Ring(owner),
            _ if word == Raw::Spilled(owner).to_word() => Raw::Spilled(owner),
            _ => Raw::Other,
        }
    }
}

/// There is something: without this flag an object was taken away, or never was.
const PRESENT: u64 = 1 << 24;

const LENGTH: u64 = PRESENT - 1;

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

    /// An object of a class of the heap.
    pub fn of_class(addr: Addr, class: SizeClass) -> Self {
        Target { addr, room: (class.bytes().saturating_sub(BODY) / 8) as u32 }
    }

    /// Bytes from the lock on.
    pub(crate) fn bytes_from_lock(self) -> usize {
        (TS - LOCK) as usize + self.bytes_from_ts()
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
    pub(crate) words: Words,
}

/// The words of a body: those of a short one are where the version is.
pub(crate) type Words = SmallVec<[u64; 6]>;

impl Version {
    /// A body to be written, of some parts one after the other.
    pub(crate) fn of(tag: u32, parts: &[&[u8]]) -> Self {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut words = Words::from_elem(0, length.div_ceil(8));
        let mut rest = words.as_mut_bytes();
        for part in parts {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
        let meta = u64::from(tag) << 32 | PRESENT | length as u64;
        Version { meta, words, ..Version::default() }
    }

    /// Whether there is something.
    #[inline]
    pub fn is_present(&self) -> bool {
        self.meta & PRESENT != 0
    }

    /// What whoever wrote it says that it is; 0 if there is nothing.
    #[inline]
    pub fn tag(&self) -> u32 {
        (self.meta >> 32) as u32
    }

    /// Its bytes: none if there is nothing.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..(self.meta & LENGTH) as usize]
    }

    /// Its bytes in whole words.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// From the words of an object from `ts` on; `None` if they are torn.
    pub(crate) fn from_words(words: &[u64]) -> Option<Self> {
        let (head, body) = words.split_at_checked(HEAD_WORDS)?;
        let [ts, prev, meta, check] = head.try_into().ok()?;
        if [ts, prev, meta, check] == [0; 4] {
            return Some(Version::default());
        }
        let body = body.get(..body_words(meta))?;
        let whole = check == checksum(&[&[ts, prev, meta], body]);
        whole.then(|| Version { ts, prev, meta, words: Words::from_slice(body) })
    }

    /// The same without a look at the checksum.
    pub(crate) fn unchecked(words: &[u64]) -> Self {
        let length = body_words(words[2]).min(words.len() - HEAD_WORDS);
        let body = Words::from_slice(&words[HEAD_WORDS..HEAD_WORDS + length]);
        let meta = words[2] & !LENGTH | (words[2] & LENGTH).min(length as u64 * 8);
        Version { ts: words[0], prev: words[1], meta, words: body }
    }

    /// The words of an object from `ts` on, as this version of it.
    pub(crate) fn extend(&self, ts: u64, prev: u64, words: &mut Vec<u64>) {
        let head = [ts, prev, self.meta];
        words.reserve(HEAD_WORDS + self.words.len());
        words.extend_from_slice(&head);
        words.push(checksum(&[&head, &self.words]));
        words.extend_from_slice(&self.words);
    }
}

/// Words of the body, by the meta word.
pub(crate) fn body_words(meta: u64) -> usize {
    ((meta & LENGTH) as usize).div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_place_is_is_read_as_it_was_written() {
        for raw in [Raw::Ring(7), Raw::Spilled(16_383), Raw::Doomed, Raw::Other] {
            assert_eq!(Raw::from_word(raw.to_word()), raw);
        }
        assert_eq!(Raw::from_word(0x1234), Raw::Other);
    }

    #[test]
    fn an_object_is_read_as_it_was_written_and_torn_ones_are_not() {
        for body in [&b""[..], b"x", b"12345678", b"a longer one, of some words"] {
            let mut words = Vec::new();
            let (front, back) = body.split_at(body.len() / 3);
            Version::of(9, &[front, back]).extend(77, 4096, &mut words);
            words.resize(20, 0xdead);
            let read = Version::from_words(&words).unwrap();
            assert!(read.is_present() && read.tag() == 9);
            assert_eq!((read.ts, read.prev, read.bytes()), (77, 4096, body));
            let used = HEAD_WORDS + body.len().div_ceil(8);
            for torn in 0..used {
                let mut words = words.clone();
                words[torn] ^= 1 << 40;
                assert_eq!(Version::from_words(&words), None, "word {torn} of {body:?}");
            }
        }
        let mut words = Vec::new();
        Version::default().extend(5, 0, &mut words);
        assert!(!Version::from_words(&words).unwrap().is_present());
        assert!(!Version::from_words(&[0; 9]).unwrap().is_present());
        assert_eq!(Version::from_words(&[1; 3]), None);
    }
}
