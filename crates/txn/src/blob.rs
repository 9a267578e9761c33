//! Bodies that are too large for an object, at places of their own. They are written before the object that names
//! them, and never changed.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | the heap's word |
//! | 8… | the body, in whole words |

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{Doorbell, Ticket, Words};
use farside_pool::Addr;
use farside_pool::alloc::{MAX_OBJECT_BYTES, SizeClass};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::object::IN_USE;
use crate::queues::{replicas, waves};
use crate::txn::{Doomed, Txn};
use crate::words::checksum;
use crate::{BLOB, EXECUTE, TxnError};

/// Where a large body is: three words of the object that names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blob {
    /// Where.
    pub addr: Addr,
    /// How many bytes.
    pub bytes: u64,
    check: u64,
}

impl Blob {
    /// Bytes of it in an object.
    pub const BYTES: usize = 24;

    /// For the object that names it.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice([self.addr.to_word(), self.bytes, self.check].as_bytes());
        bytes
    }

    /// Reads it from a replica of its region that begins there.
    pub(crate) fn read(self, mut bell: Doorbell<'_>, base: u64) -> Ticket<Words> {
        let bytes = self.bytes.next_multiple_of(8).max(8) as usize;
        bell.read(base + self.addr.offset() + 8, bytes)
    }

    /// Whether what was read is what was written.
    pub(crate) fn is_whole(self, words: &[u64]) -> bool {
        let body = words.get(..self.bytes.div_ceil(8) as usize);
        body.is_some_and(|body| checksum(&[body]) == self.check)
    }

    /// From the object that names it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at * 8..)?.first_chunk()?));
        let (addr, check) = (Addr::from_word(word(0)?), word(2)?);
        let blob = Blob { addr, bytes: word(1)?, check };
        let may_be = blob.bytes <= MAX_OBJECT_BYTES - 8 && addr.offset().is_multiple_of(8);
        (bytes.len() == Self::BYTES && may_be).then_some(blob)
    }
}

/// One that will be written.
#[derive(Debug)]
pub(crate) struct NewBlob {
    pub(crate) addr: Addr,
    /// The heap's word first.
    words: Rc<[u64]>,
}

/// How often a large body is read again that is not what it should be.
const TRIES: u32 = 5;

impl Txn {
    /// A place for a large body, which is written before anything else when this commits.
    pub async fn put_blob(&mut self, body: &[u8]) -> Result<Blob, TxnError> {
        let bytes = body.len() as u64;
        // Not where objects are or were: somebody may still look for one there.
        let class = SizeClass::of(bytes + 8).ok_or(TxnError::Full(bytes))?.raw();
        let addr = self.agent.allocate(class).await?;
        let mut words = vec![0; 1 + body.len().div_ceil(8)];
        words[0] = IN_USE;
        words[1..].as_mut_bytes()[..body.len()].copy_from_slice(body);
        let blob = Blob { addr, bytes, check: checksum(&[&words[1..]]) };
        self.blobs.push(NewBlob { addr, words: words.into() });
        Ok(blob)
    }

    /// A large body is not named any more when this commits, except by old versions.
    pub fn drop_blob(&mut self, blob: Blob) {
        self.doomed.push(Doomed::Blob(blob.addr));
    }

    /// Reads a large body.
    pub async fn get_blob(&self, blob: Blob) -> Result<Vec<u8>, TxnError> {
        let whole = |words: &[u64]| words.as_bytes()[..blob.bytes as usize].to_vec();
        if let Some(own) = self.blobs.iter().find(|own| own.addr == blob.addr) {
            return Ok(whole(&own.words[1..]));
        }
        let agent = &self.agent;
        let copies = replicas(self.leave.config(), blob.addr)?;
        let first = agent.worker.random() as usize;
        for tries in 0..TRIES {
            // Each in turn: one that was made while old versions were there does not have their bodies.
            let replica = copies[first.wrapping_add(tries as usize) % copies.len()];
            let mut round = agent.worker.round().counted(&agent.tally, EXECUTE);
            let words = blob.read(round.to(self.queues.to(replica.node)?), replica.base);
            self.trip();
            let done = round.ring().await?;
            if blob.is_whole(&done[words]) {
                return Ok(whole(&done[words]));
            }
            agent.worker.sleep(Duration::from_micros(1 << tries)).await;
        }
        Err(TxnError::TooOld)
    }

    /// Writes all of them, to all replicas.
    pub(crate) async fn write_blobs(&self) -> Result<(), TxnError> {
        if self.blobs.is_empty() {
            return Ok(());
        }
        let agent = &self.agent;
        self.blobs_posted.set(true);
        // First where copies are whole, and then where they are in the making.
        for wave in 0..2 {
            let mut round = agent.worker.round().counted(&agent.tally, BLOB);
            let mut nodes = SmallVec::<[u16; 8]>::new();
            for blob in &self.blobs {
                let copies = waves(self.leave.config(), blob.addr)?.nth(wave).unwrap_or_default();
                for replica in copies {
                    let at = replica.base + blob.addr.offset();
                    round.to(self.queues.to(replica.node)?).write(at, &blob.words);
                    nodes.push(replica.node);
                }
            }
            if !nodes.is_empty() {
                if agent.session.limits.durable {
                    // Bodies are of other regions than what names them.
                    self.queues.flush(&mut round, nodes.into_iter());
                }
                self.trip();
                round.ring().await?;
            }
        }
        Ok(())
    }
}
