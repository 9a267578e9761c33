//! Undo records, which are the old versions of objects: one write serves rollback and old snapshots.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | id: the lock word of the transaction |
//! | 8 | n: how many objects it writes (24 bits); whether this one is fresh (bit 24), and is erased (bit 25); words that its body has room for (32 bits) |
//! | 16 | the object |
//! | 24 | W: the commit time of the version that takes its place |
//! | 32, 40, 48 | ts, prev and meta of the old version |
//! | 56 | checksum over all else, and over where the record is: one that was copied elsewhere is none |
//! | 64… | the old body |

use farside_pool::Addr;

use crate::object::{Version, Words, body_words};
use crate::words::checksum;

const HEAD_WORDS: usize = 8;

/// Where a record names its object.
pub(crate) const OBJECT: u64 = 16;

/// As many objects as a transaction can have.
pub(crate) const MOST_OBJECTS: u64 = (1 << 24) - 1;

const FRESH: u64 = 1 << 24;
const ERASED: u64 = 1 << 25;

/// Whose record it is: all but the old version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) objects: u64,
    pub(crate) object: Addr,
    /// Words that the object's body has room for.
    pub(crate) room: u32,
    /// Nothing was there before: the place was just allocated.
    pub(crate) fresh: bool,
    /// Nothing is there after: the place is to be freed.
    pub(crate) erased: bool,
    pub(crate) time: u64,
}

/// Bytes of a record of an object with room for so many words.
pub fn bytes(room: u32) -> u64 {
    (HEAD_WORDS as u64 + u64::from(room)) * 8
}

impl Record {
    /// Its words, with the old version, for an offset of the region.
    pub(crate) fn extend(&self, at: u64, old: &Version, words: &mut Vec<u64>) {
        let Version { ts, prev, meta, words: body } = old;
        let flags = (u64::from(self.fresh) * FRESH) | (u64::from(self.erased) * ERASED);
        let about = u64::from(self.room) << 32 | flags | self.objects.min(MOST_OBJECTS);
        let head = [self.id, about, self.object.to_word(), self.time, *ts, *prev, *meta];
        words.reserve(HEAD_WORDS + body.len());
        words.extend_from_slice(&head);
        words.push(checksum(&[&[at], &head, body]));
        words.extend_from_slice(body);
    }

    /// `None` if the words at an offset of the region are no record, or torn.
    pub(crate) fn from_words(at: u64, words: &[u64]) -> Option<(Self, Version)> {
        let (head, body) = words.split_at_checked(HEAD_WORDS)?;
        let [id, about, object, time, ts, prev, meta, check] = head.try_into().ok()?;
        let body = body.get(..body_words(meta))?;
        let whole = check == checksum(&[&[at], &head[..HEAD_WORDS - 1], body]);
        let record = Record {
            id,
            objects: about & MOST_OBJECTS,
            object: Addr::from_word(object),
            room: (about >> 32) as u32,
            fresh: about & FRESH != 0,
            erased: about & ERASED != 0,
            time,
        };
        whole.then(|| (record, Version { ts, prev, meta, words: Words::from_slice(body) }))
    }

    /// All records of an owner of locks among the words from an offset of the region on, as they are in a ring: one after the
    /// other, with leftovers of older ones between.
    pub(crate) fn all(at: u64, words: &[u64], owner: u16) -> Vec<(Self, Version)> {
        let mut found = Vec::new();
        let mut next = 0;
        while next + HEAD_WORDS <= words.len() {
            let is_ours = crate::words::Lock::owner_of(words[next]) == owner;
            let parse = || Record::from_words(at + next as u64 * 8, &words[next..]);
            next += match is_ours.then(parse).flatten() {
                Some((record, old)) => {
                    let length = HEAD_WORDS + old.words.len();
                    found.push((record, old));
                    length
                }
                None => 1,
            };
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Lock;
    use farside_pool::RegionId;

    fn record(id: u64) -> Record {
        let object = Addr::new(RegionId(3), 4096).unwrap();
        Record { id, objects: 2, object, room: 7, fresh: false, erased: true, time: 10 }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_torn_ones_are_not() {
        let old = Version { ts: 9, prev: 64, ..Version::of(0, &[b"what was"]) };
        let record = record(77);
        let mut words = Vec::new();
        record.extend(128, &old, &mut words);
        words.push(0);
        assert_eq!(Record::from_words(128, &words), Some((record, old)));
        assert_eq!(Record::from_words(136, &words), None, "it is of another place");
        for torn in 0..words.len() - 1 {
            let mut words = words.clone();
            words[torn] ^= 1 << 33;
            assert_eq!(Record::from_words(128, &words), None, "word {torn}");
        }
        assert_eq!(Record::from_words(0, &[0; 12]), None);
    }

    /// Leftovers between records are no records, and those of others are not ours.
    #[test]
    fn the_records_of_a_ring_are_found() {
        let old = Version { ts: 9, prev: 64, ..Version::of(0, &[b"what was here before"]) };
        let ids =
            [Lock::new(5, 100).to_word(), Lock::new(6, 50).to_word(), Lock::new(5, 101).to_word()];
        let mut words = vec![7; 3];
        for id in ids {
            record(id).extend(1000 + words.len() as u64 * 8, &old, &mut words);
            words.extend([id, 3]);
        }
        // A copy of a record, in somebody's body.
        let copy = words[3..14].to_vec();
        words.extend(copy);
        let found: Vec<u64> =
            Record::all(1000, &words, 5).iter().map(|(record, _)| record.id).collect();
        assert_eq!(found, [ids[0], ids[2]]);
    }
}
