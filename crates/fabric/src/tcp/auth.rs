//! Proof that both sides know a secret, without sending it.

use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{FabricError, Result};

/// How many bytes a secret must have at least, and at most.
const SHORTEST: usize = 16;
const LONGEST: usize = 4096;

pub(super) const PROOF_BYTES: usize = 32;
pub(super) const NONCE_BYTES: usize = 32;

/// A secret that clients and nodes share.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret from its bytes.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if !(SHORTEST..=LONGEST).contains(&bytes.len()) {
            let why = format!(
                "it has {} bytes, expected {SHORTEST} to {LONGEST}; make one with: head -c 32 /dev/urandom > FILE",
                bytes.len()
            );
            return Err(FabricError::setup("reading the secret", why));
        }
        Ok(Secret(bytes.to_vec()))
    }

    /// A secret from a file that others cannot read.
    pub fn read(path: &Path) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let what = || format!("reading the secret {}", path.display());
        let metadata = std::fs::metadata(path).map_err(|e| FabricError::setup(what(), e))?;
        if !metadata.is_file() {
            return Err(FabricError::setup(what(), "this is not a file"));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            let why = format!("others may read it; run: chmod 600 {}", path.display());
            return Err(FabricError::setup(what(), why));
        }
        if metadata.len() > LONGEST as u64 {
            return Err(FabricError::setup(what(), format!("it is longer than {LONGEST} bytes")));
        }
        let bytes = std::fs::read(path).map_err(|e| FabricError::setup(what(), e))?;
        Secret::new(&bytes)
    }

    fn mac(&self, side: Side, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length will do");
        mac.update(match side {
            Side::Client => b"farside client",
            Side::Node => b"farside node  ",
        });
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// What only one who knows the secret can say about these parts, whose lengths are fixed.
    pub(super) fn prove(&self, side: Side, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
        self.mac(side, parts).finalize().into_bytes().into()
    }

    /// Whether the other side could say it; takes the same time whatever the answer.
    pub(super) fn verify(&self, side: Side, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.mac(side, parts).verify_slice(proof).is_ok()
    }
}

/// Who proves: one side's proof is no good for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Client,
    Node,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Random bytes for a nonce, from the kernel.
pub(super) fn nonce() -> Result<[u8; NONCE_BYTES]> {
    let mut bytes = [0; NONCE_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)
            .map_err(|e| FabricError::setup("drawing random bytes", e))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_its_side_parts_and_secret_only() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let proof = secret.prove(Side::Client, &[b"one", b"two"]);
        assert!(secret.verify(Side::Client, &[b"one", b"two"], &proof));
        assert!(!secret.verify(Side::Node, &[b"one", b"two"], &proof));
        assert!(!secret.verify(Side::Client, &[b"one", b"twp"], &proof));
        assert!(!secret.verify(Side::Client, &[b"one", b"two"], &proof[..31]));
        let other = Secret::new(b"0123456789abcdeF").unwrap();
        assert!(!other.verify(Side::Client, &[b"one", b"two"], &proof));
    }

    #[test]
    fn secrets_that_are_none_are_refused() {
        assert!(Secret::new(b"short").unwrap_err().to_string().contains("head -c 32"));
        assert!(
            Secret::read(Path::new("/dev/null")).unwrap_err().to_string().contains("not a file")
        );
        assert!(Secret::read(Path::new("/nowhere")).is_err());
    }
}
