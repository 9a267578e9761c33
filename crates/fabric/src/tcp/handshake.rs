//! The first frames of a connection: who are you, prove it, welcome.

use super::auth::{NONCE_BYTES, PROOF_BYTES, Secret, Side};
use super::wire::PROTOCOL_VERSION;

const MAGIC: &[u8; 8] = b"FARSIDE-";

/// No frame of the handshake is longer.
pub(super) const MAX_HANDSHAKE: usize = 512;

/// The client's first frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) version: u16,
    pub(super) client: u64,
    /// A connection of the same client that this one replaces, or 0.
    pub(super) replaces: u64,
    pub(super) nonce: [u8; NONCE_BYTES],
}

/// The node's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Challenge {
    pub(super) version: u16,
    /// Whether the client has to prove that it knows the secret.
    pub(super) secret: bool,
    pub(super) nonce: [u8; NONCE_BYTES],
}

/// The node's last frame of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Welcome {
    pub(super) connection: u64,
    pub(super) incarnation: u64,
    pub(super) memory_bytes: u64,
    /// Whether it keeps an ordered journal.
    pub(super) durable: bool,
    /// That the node knows the secret, too.
    pub(super) proof: [u8; PROOF_BYTES],
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&u64::from(self.version).to_le_bytes());
        out.extend_from_slice(&self.client.to_le_bytes());
        out.extend_from_slice(&self.replaces.to_le_bytes());
        out.extend_from_slice(&self.nonce);
        out
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body.strip_prefix(MAGIC)?);
        let version = u16::try_from(fields.word()?).ok()?;
        // Later versions may have more to say; what they are is known by now.
        let hello = Hello {
            version,
            client: fields.word()?,
            replaces: fields.word()?,
            nonce: fields.bytes()?,
        };
        (version != PROTOCOL_VERSION || fields.0.is_empty()).then_some(hello)
    }
}

impl Challenge {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = u64::from(self.version).to_le_bytes().to_vec();
        out.extend_from_slice(&u64::from(self.secret).to_le_bytes());
        out.extend_from_slice(&self.nonce);
        out
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let version = u16::try_from(fields.word()?).ok()?;
        let secret = fields.word()? != 0;
        let challenge = Challenge { version, secret, nonce: fields.bytes()? };
        fields.0.is_empty().then_some(challenge)
    }
}

impl Welcome {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.connection.to_le_bytes().to_vec();
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.memory_bytes.to_le_bytes());
        out.extend_from_slice(&u64::from(self.durable).to_le_bytes());
        out.extend_from_slice(&self.proof);
        out
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let welcome = Welcome {
            connection: fields.word()?,
            incarnation: fields.word()?,
            memory_bytes: fields.word()?,
            durable: fields.word()? != 0,
            proof: fields.bytes()?,
        };
        fields.0.is_empty().then_some(welcome)
    }
}

/// What a side proves: all that both have said, their random numbers included. Without a secret
/// there is nothing to prove.
pub(super) fn proof(
    secret: Option<&Secret>,
    side: Side,
    hello: &Hello,
    challenge: &Challenge,
) -> [u8; PROOF_BYTES] {
    let parts = [hello.encode(), challenge.encode()];
    secret.map_or([0; PROOF_BYTES], |secret| secret.prove(side, &[&parts[0], &parts[1]]))
}

/// Whether the other side's proof is good.
pub(super) fn is_proven(
    secret: &Secret,
    side: Side,
    hello: &Hello,
    challenge: &Challenge,
    proof: &[u8],
) -> bool {
    secret.verify(side, &[&hello.encode(), &challenge.encode()], proof)
}

/// Bytes that are read from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn word(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }
}

pub(super) fn decode_for_fuzzing(body: &[u8]) {
    let _ = (Hello::decode(body), Challenge::decode(body), Welcome::decode(body));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_understood() {
        let hello = Hello { version: PROTOCOL_VERSION, client: 7, replaces: 9, nonce: [3; 32] };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        let challenge = Challenge { version: 1, secret: true, nonce: [4; 32] };
        assert_eq!(Challenge::decode(&challenge.encode()), Some(challenge));
        let (connection, incarnation, memory_bytes, durable) = (1, 2, 3, true);
        let welcome = Welcome { connection, incarnation, memory_bytes, durable, proof: [5; 32] };
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        for end in 0..hello.encode().len() {
            assert_eq!(Hello::decode(&hello.encode()[..end]), None);
        }
        let later = Hello { version: 99, ..hello };
        let mut more = later.encode();
        more.extend_from_slice(b"what a later version adds");
        assert_eq!(Hello::decode(&more), Some(later));
        assert!(hello.encode().len() + 64 < MAX_HANDSHAKE);
    }
}
