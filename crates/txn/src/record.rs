//! Undo records, which are the old versions of objects: one write serves rollback and old snapshots.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | id: the lock word of the transaction |
//! | 8 | n: how many objects it writes |
//! | 16 | the object |
//! | 24 | W: the commit time of the version that takes its place |
//! | 32, 40, 48 | ts, prev and meta of the old version |
//! | 56 | checksum over all else |
//! | 64… | the old body |

use farside_pool::Addr;

use crate::object::{Version, Words, body_words};
use crate::words::checksum;

const HEAD_WORDS: usize = 8;

/// Whose record it is: all but the old version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) objects: u64,
    pub(crate) object: Addr,
    pub(crate) time: u64,
}

/// Bytes of a record of an object with room for so many words.
pub fn bytes(room: u32) -> u64 {
    (HEAD_WORDS as u64 + u64::from(room)) * 8
}

impl Record {
    /// Its words, with the old version.
    pub(crate) fn extend(&self, old: &Version, words: &mut Vec<u64>) {
        let Version { ts, prev, meta, words: body } = old;
        let head = [self.id, self.objects, self.object.to_word(), self.time, *ts, *prev, *meta];
        words.reserve(HEAD_WORDS + body.len());
        words.extend_from_slice(&head);
        words.push(checksum(&[&head, body]));
        words.extend_from_slice(body);
    }

    /// `None` if the words are no record, or torn.
    pub(crate) fn from_words(words: &[u64]) -> Option<(Self, Version)> {
        let (head, body) = words.split_at_checked(HEAD_WORDS)?;
        let [id, objects, object, time, ts, prev, meta, check] = head.try_into().ok()?;
        let body = body.get(..body_words(meta))?;
        let whole = check == checksum(&[&head[..HEAD_WORDS - 1], body]);
        let record = Record { id, objects, object: Addr::from_word(object), time };
        whole.then(|| (record, Version { ts, prev, meta, words: Words::from_slice(body) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_pool::RegionId;

    #[test]
    fn a_record_is_read_as_it_was_written_and_torn_ones_are_not() {
        let old = Version { ts: 9, prev: 64, ..Version::of(0, &[b"what was"]) };
        let object = Addr::new(RegionId(3), 4096).unwrap();
        let record = Record { id: 77, objects: 2, object, time: 10 };
        let mut words = Vec::new();
        record.extend(&old, &mut words);
        words.push(0);
        assert_eq!(Record::from_words(&words), Some((record, old)));
        for torn in 0..words.len() - 1 {
            let mut words = words.clone();
            words[torn] ^= 1 << 33;
            assert_eq!(Record::from_words(&words), None, "word {torn}");
        }
        assert_eq!(Record::from_words(&[0; 12]), None);
    }
}
