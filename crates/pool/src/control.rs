//! The first part of every node's memory: leases, announcements, and the table of sessions.
//!
//! Whoever writes a word is its only writer: the node's keeper, the manager, or the session that the
//! line belongs to. Nobody does atomics here.
//!
//! | bytes | what | written by |
//! | --- | --- | --- |
//! | 0–63 | node: magic, incarnation, beat | the node's keeper |
//! | 64–127 | manager: its beat, announced epoch, counting epoch, grant for the node, who manages, checksum | the manager |
//! | 4096 + 64·n | session n: beat, echo of the manager's beat, acknowledged epoch, latest time given out, drift of its clock, how uncertain that is, client, checksum | the session |
//! | 128 Ki + 8·n | grant for session n | the manager |
//! | 256 Ki, 640 Ki | two copies of configurations, by parity of the epoch: epoch, length, checksum, bytes | the manager |

use crate::config::{Config, MAX_SESSIONS};

/// Where regions begin.
pub const CONTROL_BYTES: u64 = 1 << 20;

/// What the first word of a formatted node is.
pub(crate) const MAGIC: u64 = 0x4641_5253_4944_4501;

/// The node's line: magic, incarnation, beat.
pub(crate) const NODE: u64 = 0;
pub(crate) const NODE_BEAT: u64 = NODE + 16;

/// The manager's line.
pub(crate) const MANAGER: u64 = 64;

/// What the manager writes to every node again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Announcement {
    /// Counts up; members echo it.
    pub(crate) beat: u64,
    /// The newest configuration that members shall learn.
    pub(crate) announced: u64,
    /// The newest that counts.
    pub(crate) counting: u64,
    /// The beat of the node that its lease is granted for.
    pub(crate) grant: u64,
    /// Who writes this.
    pub(crate) manager: u64,
}

impl Announcement {
    pub(crate) const WORDS: usize = 6;

    pub(crate) fn words(&self) -> [u64; Self::WORDS] {
        sealed([self.beat, self.announced, self.counting, self.grant, self.manager, 0])
    }

    /// `None` if the words are torn: of two moments, or of two managers.
    pub(crate) fn from_words(words: &[u64]) -> Option<Self> {
        let [beat, announced, counting, grant, manager] = unsealed(words)?;
        Some(Announcement { beat, announced, counting, grant, manager })
    }
}

/// What a session writes at home again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Signs {
    /// Counts up: asks for a lease from the moment it was written.
    pub(crate) beat: u64,
    /// The manager's beat that it has seen: until then it had not tried to take over.
    pub(crate) echo: u64,
    /// The newest configuration that it has acknowledged.
    pub(crate) acknowledged: u64,
    /// The latest time that it may have given out.
    pub(crate) latest: u64,
    /// How its clock drifts, in parts per billion, as far as that is certain.
    pub(crate) drift_ppb: i64,
    /// How uncertain it is of the time, in nanoseconds; `u64::MAX`: it knows none.
    pub(crate) uncertainty: u64,
    /// Who writes this.
    pub(crate) client: u64,
}

impl Signs {
    pub(crate) const WORDS: usize = 8;
    /// Bytes between two sessions: a line each.
    pub(crate) const STRIDE: u64 = 64;

    pub(crate) fn words(&self) -> [u64; Self::WORDS] {
        let drift = self.drift_ppb as u64;
        let Signs { beat, echo, acknowledged, latest, uncertainty, client, .. } = *self;
        sealed([beat, echo, acknowledged, latest, drift, uncertainty, client, 0])
    }

    /// `None` if the words are torn: of two moments, or of two sessions.
    pub(crate) fn from_words(words: &[u64]) -> Option<Self> {
        let [beat, echo, acknowledged, latest, drift, uncertainty, client] = unsealed(words)?;
        let drift_ppb = drift as i64;
        Some(Signs { beat, echo, acknowledged, latest, drift_ppb, uncertainty, client })
    }
}

const SESSIONS: u64 = 4096;
const GRANTS: u64 = 128 << 10;
const CONFIGS: [u64; 2] = [256 << 10, 640 << 10];

/// A configuration is not larger.
pub(crate) const MAX_CONFIG_BYTES: usize = (384 << 10) - 64;

const _: () = {
    assert!(SESSIONS + MAX_SESSIONS as u64 * Signs::STRIDE <= GRANTS);
    assert!(GRANTS + MAX_SESSIONS as u64 * 8 <= CONFIGS[0]);
    assert!(CONFIGS[0] + (384 << 10) <= CONFIGS[1]);
    assert!(CONFIGS[1] + (384 << 10) <= CONTROL_BYTES);
    assert!(MANAGER + Announcement::WORDS as u64 * 8 <= 128);
};

/// Where a session's line is.
pub(crate) fn session(slot: u16) -> u64 {
    SESSIONS + u64::from(slot) * Signs::STRIDE
}

/// Where the grant for a session is.
pub(crate) fn grant(slot: u16) -> u64 {
    GRANTS + u64::from(slot) * 8
}

/// Where the configuration of an epoch is.
pub(crate) fn config(epoch: u64) -> u64 {
    CONFIGS[(epoch % 2) as usize]
}

/// Words before the bytes of a configuration.
pub(crate) const CONFIG_HEAD: usize = 3;

/// A configuration as words: epoch, length, checksum, bytes.
pub(crate) fn config_words(config: &Config) -> Vec<u64> {
    let bytes = config.encode();
    let mut words = vec![config.epoch, bytes.len() as u64, 0];
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        words.push(u64::from_le_bytes(word));
    }
    words[2] = checksum(&words[CONFIG_HEAD..]);
    words
}

/// How many words the body of a configuration has, from its head; `None` if that is not `epoch`'s.
pub(crate) fn config_body_words(head: &[u64], epoch: u64) -> Option<usize> {
    let fits = head[0] == epoch && head[1] > 0 && head[1] <= MAX_CONFIG_BYTES as u64;
    fits.then(|| (head[1] as usize).div_ceil(8))
}

/// The configuration in words that were read; `None` if they are torn or not one.
pub(crate) fn config_from_words(words: &[u64]) -> Option<Config> {
    let (head, body) = words.split_at_checked(CONFIG_HEAD)?;
    if checksum(body) != head[2] {
        return None;
    }
    let mut bytes: Vec<u8> = body.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(head[1] as usize);
    Config::decode(&bytes).ok().filter(|config| config.epoch == head[0])
}

/// With the checksum of the others as the last word.
fn sealed<const N: usize>(mut words: [u64; N]) -> [u64; N] {
    words[N - 1] = checksum(&words[..N - 1]);
    words
}

/// The words before the checksum, if it holds.
fn unsealed<const N: usize>(words: &[u64]) -> Option<[u64; N]> {
    let (body, check) = words.split_at_checked(N)?;
    (check == [checksum(body)]).then(|| body.try_into().expect("so many"))
}

/// Tells a torn copy from a whole one.
fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(words.len() as u64, |sum, word| {
        (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two managers wrote the same line, and the name of one stood beside the beat of the other.
    #[test]
    fn announcements_and_signs_that_are_torn_are_not_taken() {
        let one = Announcement { beat: 7, announced: 3, counting: 3, grant: 9, manager: 1 };
        let two = Announcement { beat: 8, manager: 2, ..one };
        assert_eq!(Announcement::from_words(&one.words()), Some(one));
        let mut torn = one.words();
        torn[0] = two.words()[0];
        assert_eq!(Announcement::from_words(&torn), None);
        assert_eq!(Announcement::from_words(&[0; Announcement::WORDS]), None);
        let (latest, drift_ppb, uncertainty) = (5, -6, 7);
        let signs =
            Signs { beat: 1, echo: 2, acknowledged: 3, latest, drift_ppb, uncertainty, client: 4 };
        assert_eq!(Signs::from_words(&signs.words()), Some(signs));
        let mut torn = signs.words();
        torn[2] = 4;
        assert_eq!(Signs::from_words(&torn), None);
    }

    #[test]
    fn a_configuration_is_read_back_and_torn_ones_are_not() {
        let lease = std::time::Duration::from_millis(10);
        let mut config = Config::first(farside_fabric::ClientId(7), lease);
        let node = crate::Newcomer {
            address: "somewhere:1".into(),
            incarnation: 3,
            bytes: 1 << 30,
            versions: false,
        };
        config.add_node(&node);
        let words = config_words(&config);
        assert_eq!(config_body_words(&words, 1), Some(words.len() - CONFIG_HEAD));
        assert_eq!(config_body_words(&words, 2), None);
        assert_eq!(config_from_words(&words), Some(config));
        for torn in CONFIG_HEAD..words.len() {
            let mut words = words.clone();
            words[torn] ^= 1 << 9;
            assert_eq!(config_from_words(&words), None);
        }
    }
}
