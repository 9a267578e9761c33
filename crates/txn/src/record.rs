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

use crate::object::Version;
use crate::words::checksum;

const HEAD_WORDS: usize = 8;

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) objects: u64,
    pub(crate) object: Addr,
    pub(crate) time: u64,
    pub(crate) old: Version,
}

/// Bytes of a record of an object with room for so many words.
pub fn bytes(room: u32) -> u64 {
    (HEAD_WORDS as u64 + u64::from(room)) * 8
}

impl Record {
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let Version { ts, prev, meta, words } = &self.old;
        let head = [self.id, self.objects, self.object.to_word(), self.time, *ts, *prev, *meta];
        let mut all = Vec::with_capacity(HEAD_WORDS + words.len());
        all.extend_from_slice(&head);
        all.push(checksum(&[&head, words]));
        all.extend_from_slice(words);
        all
    }

    /// `None` if the words are no record, or torn.
    pub(crate) fn from_words(words: &[u64]) -> Option<Self> {
        let (head, body) = words.split_at_checked(HEAD_WORDS)?;
        let [id, objects, object, time, ts, prev, meta, check] = head.try_into().ok()?;
        let body = body.get(..(meta as u32 as usize).div_ceil(8))?;
        let whole = check == checksum(&[&head[..HEAD_WORDS - 1], body]);
        let old = Version { ts, prev, meta, words: body.to_vec() };
        whole.then(|| Record { id, objects, object: Addr::from_word(object), time, old })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_pool::RegionId;

    #[test]
    fn a_record_is_read_as_it_was_written_and_torn_ones_are_not() {
        let old = Version { ts: 9, prev: 64, ..Version::of(Some(b"what was")) };
        let object = Addr::new(RegionId(3), 4096).unwrap();
        let record = Record { id: 77, objects: 2, object, time: 10, old };
        let mut words = record.to_words();
        words.push(0);
        assert_eq!(Record::from_words(&words), Some(record));
        for torn in 0..words.len() - 1 {
            let mut words = words.clone();
            words[torn] ^= 1 << 33;
            assert_eq!(Record::from_words(&words), None, "word {torn}");
        }
        assert_eq!(Record::from_words(&[0; 12]), None);
    }
}
