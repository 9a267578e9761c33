//! Queue pairs, and what both sides tell each other about theirs.

use std::sync::Arc;

use super::device::{Device, check};
use super::ffi::{AddressAttr, Completion, Cq, QP_RC, Qp, QpAttr, QpCap, QpInitAttr, access};
use crate::{FabricError, Result};

/// How much may be in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Depths {
    /// Work requests of a queue.
    pub(super) queue: u32,
    /// Bytes that a WRITE may carry with it, if the device agrees.
    pub(super) inline: u32,
    /// READs and atomics that the device can have asked for at once.
    pub(super) asks: u8,
    /// READs and atomics that the device can answer at once, per queue pair.
    pub(super) answers: u8,
}

/// An end of a connection. The queue pair and its completion queue go when it is dropped: from then on
/// the device neither sends nor touches memory for it.
#[derive(Debug)]
pub(super) struct Pair {
    qp: *mut Qp,
    cq: *mut Cq,
    device: Arc<Device>,
    /// Work requests that may be in flight.
    pub(super) depth: usize,
    /// Bytes that a WRITE may carry with it.
    pub(super) inline: u32,
    first_packet: u32,
}

// SAFETY: used by one thread at a time; the library does not care which.
unsafe impl Send for Pair {}

mod state {
    pub(super) const INIT: u32 = 1;
    pub(super) const READY_TO_RECEIVE: u32 = 2;
    pub(super) const READY_TO_SEND: u32 = 3;
}

mod mask {
    pub(super) const STATE: i32 = 1;
    pub(super) const ACCESS: i32 = 8;
    pub(super) const PKEY_INDEX: i32 = 16;
    pub(super) const PORT: i32 = 32;
    pub(super) const ADDRESS: i32 = 128;
    pub(super) const PATH_MTU: i32 = 256;
    pub(super) const TIMEOUT: i32 = 512;
    pub(super) const RETRIES: i32 = 1024;
    pub(super) const RNR_RETRIES: i32 = 2048;
    pub(super) const RQ_PSN: i32 = 4096;
    pub(super) const MAX_RD_ATOMIC: i32 = 8192;
    pub(super) const MIN_RNR_TIMER: i32 = 32768;
    pub(super) const SQ_PSN: i32 = 65536;
    pub(super) const MAX_DEST_RD_ATOMIC: i32 = 131_072;
    pub(super) const DEST_QP: i32 = 1_048_576;
}

/// A packet is sent again after 4.096 µs · 2^14 = 67 ms, seven times, before its queue fails.
const ACK_TIMEOUT: u8 = 14;
const RETRIES: u8 = 7;

impl Pair {
    /// A client's end, which sends.
    pub(super) fn asking(device: &Arc<Device>) -> Result<Self> {
        Self::new(device, device.depths.queue, device.depths.inline)
    }

    /// A node's end, which only answers.
    pub(super) fn answering(device: &Arc<Device>) -> Result<Self> {
        Self::new(device, 1, 0)
    }

    fn new(device: &Arc<Device>, depth: u32, inline: u32) -> Result<Self> {
        // SAFETY: the device is open.
        let cq = unsafe {
            let none = std::ptr::null_mut();
            (device.verbs.ibv_create_cq)(device.context, depth as i32, none, none, 0)
        };
        if cq.is_null() {
            return Err(failed("making a completion queue", depth));
        }
        let mut pair = Pair {
            qp: std::ptr::null_mut(),
            cq,
            device: Arc::clone(device),
            depth: depth as usize,
            inline: 0,
            first_packet: first_packet()?,
        };
        // Devices differ in how much they take inline, and say so only by refusing.
        for inline in [inline, inline / 2, inline / 4, 0] {
            let cap = QpCap {
                max_send_wr: depth,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline,
            };
            let mut attr = QpInitAttr {
                user: std::ptr::null_mut(),
                send_cq: cq,
                recv_cq: cq,
                srq: std::ptr::null_mut(),
                cap,
                kind: QP_RC,
                signal_all: 0,
            };
            // SAFETY: all that the attributes point to is alive.
            pair.qp = unsafe { (device.verbs.ibv_create_qp)(device.pd, &raw mut attr) };
            if !pair.qp.is_null() {
                pair.inline = attr.cap.max_inline_data.min(inline);
                return Ok(pair);
            }
        }
        Err(failed("making a queue pair", depth))
    }

    fn modify(&mut self, attr: &mut QpAttr, mask: i32, step: &str) -> Result<()> {
        // SAFETY: the queue pair is ours.
        let result = unsafe { (self.device.verbs.ibv_modify_qp)(self.qp, attr, mask) };
        check(result, step, "check that both ends use the same kind of network, and their gids")
    }

    /// What the other end needs to know of this one.
    pub(super) fn card(&self) -> Card {
        Card {
            // SAFETY: the queue pair is ours.
            pair: unsafe { (*self.qp).number },
            first_packet: self.first_packet,
            lid: self.device.lid,
            mtu: self.device.mtu,
            asks: self.device.depths.asks,
            answers: self.device.depths.answers,
            is_global: self.device.is_global,
            gid: self.device.gid,
        }
    }

    /// From now on it answers what `peer` sends.
    pub(super) fn answer(&mut self, peer: &Card) -> Result<()> {
        let remote = access::REMOTE_READ | access::REMOTE_WRITE | access::REMOTE_ATOMIC;
        self.init(remote)?;
        self.ready_to_receive(peer)
    }

    /// From now on it can send to `peer`.
    pub(super) fn ask(&mut self, peer: &Card) -> Result<()> {
        self.init(0)?;
        self.ready_to_receive(peer)?;
        let mut attr = QpAttr {
            state: state::READY_TO_SEND,
            sq_psn: self.first_packet,
            timeout: ACK_TIMEOUT,
            retries: RETRIES,
            rnr_retries: RETRIES,
            max_rd_atomic: self.device.depths.asks.min(peer.answers),
            ..QpAttr::default()
        };
        let mask = mask::STATE
            | mask::SQ_PSN
            | mask::TIMEOUT
            | mask::RETRIES
            | mask::RNR_RETRIES
            | mask::MAX_RD_ATOMIC;
        self.modify(&mut attr, mask, "letting a queue pair send")
    }

    fn init(&mut self, rights: u32) -> Result<()> {
        let mut attr = QpAttr {
            state: state::INIT,
            access: rights,
            port: self.device.port,
            ..QpAttr::default()
        };
        let mask = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS;
        self.modify(&mut attr, mask, "setting up a queue pair")
    }

    fn ready_to_receive(&mut self, peer: &Card) -> Result<()> {
        let device = &self.device;
        if device.is_global != peer.is_global {
            let why = "one end is RoCE, the other InfiniBand; both must be on one network";
            return Err(FabricError::setup("connecting queue pairs", why));
        }
        let address = AddressAttr {
            gid: peer.gid,
            own_gid_index: device.gid_index,
            hop_limit: 64,
            lid: peer.lid,
            is_global: u8::from(device.is_global),
            port: device.port,
            ..AddressAttr::default()
        };
        let mut attr = QpAttr {
            state: state::READY_TO_RECEIVE,
            path_mtu: u32::from(device.mtu.min(peer.mtu)),
            rq_psn: peer.first_packet,
            dest_qp: peer.pair,
            address,
            max_dest_rd_atomic: device.depths.answers.min(peer.asks),
            min_rnr_timer: 12,
            ..QpAttr::default()
        };
        let mask = mask::STATE
            | mask::ADDRESS
            | mask::PATH_MTU
            | mask::DEST_QP
            | mask::RQ_PSN
            | mask::MAX_DEST_RD_ATOMIC
            | mask::MIN_RNR_TIMER;
        self.modify(&mut attr, mask, "introducing a queue pair to its peer")
    }

    /// Posts a chain of work requests; an error is the library's code.
    pub(super) fn post(&mut self, first: *mut super::ffi::SendRequest) -> Result<(), i32> {
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair is ours, and the caller hands in a chain whose buffers stay.
        let result = unsafe {
            let post = (*(*self.qp).context).post_send;
            post(self.qp, first, &raw mut bad)
        };
        if result == 0 { Ok(()) } else { Err(result) }
    }

    /// The next completions; how many there are, or `None` if the queue is of no use any more.
    pub(super) fn completions(&mut self, found: &mut [Completion]) -> Option<usize> {
        // SAFETY: the completion queue is ours, and the slice has room for as many.
        let count = unsafe {
            let poll = (*(*self.cq).context).poll_cq;
            poll(self.cq, found.len() as i32, found.as_mut_ptr())
        };
        usize::try_from(count).ok()
    }

    /// What a status means, in the library's words.
    pub(super) fn meaning(&self, status: u32) -> String {
        // SAFETY: the library returns a string of its own for any number.
        let text =
            unsafe { std::ffi::CStr::from_ptr((self.device.verbs.ibv_wc_status_str)(status)) };
        text.to_string_lossy().into_owned()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: destroyed once, the pair before its completion queue.
        unsafe {
            if !self.qp.is_null() {
                let result = (self.device.verbs.ibv_destroy_qp)(self.qp);
                debug_assert_eq!(result, 0);
            }
            (self.device.verbs.ibv_destroy_cq)(self.cq);
        }
    }
}

fn failed(step: &str, depth: u32) -> FabricError {
    let cause = std::io::Error::last_os_error();
    FabricError::setup(
        format!("{step} of depth {depth}"),
        format!("{cause}; ask for a smaller depth, or end other programs that use the device"),
    )
}

/// Any number of 24 bits, so that late packets of an older pair are not taken for ours.
fn first_packet() -> Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| FabricError::setup("asking for randomness", e))?;
    Ok(u32::from_le_bytes(bytes) & 0xff_ffff)
}

/// What one end tells the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Card {
    pub(super) pair: u32,
    first_packet: u32,
    lid: u16,
    mtu: u8,
    asks: u8,
    answers: u8,
    is_global: bool,
    gid: [u8; 16],
}

impl Card {
    pub(super) const BYTES: usize = 32;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.pair.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.first_packet.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.lid.to_le_bytes());
        bytes[10..14].copy_from_slice(&[
            self.mtu,
            self.asks,
            self.answers,
            u8::from(self.is_global),
        ]);
        bytes[16..].copy_from_slice(&self.gid);
        bytes
    }

    /// `None` if that cannot be one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let card = Card {
            pair: word(0),
            first_packet: word(4),
            lid: u16::from_le_bytes([bytes[8], bytes[9]]),
            mtu: bytes[10],
            asks: bytes[11],
            answers: bytes[12],
            is_global: bytes[13] != 0,
            gid: bytes[16..].try_into().expect("16 bytes"),
        };
        let sane = (1..=5).contains(&card.mtu) && card.asks > 0 && card.answers > 0;
        (sane && bytes[13] <= 1 && bytes[14..16] == [0, 0] && card.encode() == *bytes)
            .then_some(card)
    }
}

#[cfg(test)]
mod tests {
    use super::Card;

    #[test]
    fn cards_are_understood_or_refused() {
        let card = Card {
            pair: 17,
            first_packet: 0xab_cdef,
            lid: 3,
            mtu: 3,
            asks: 16,
            answers: 8,
            is_global: true,
            gid: [7; 16],
        };
        let bytes = card.encode();
        assert_eq!(Card::decode(&bytes), Some(card));
        assert_eq!(Card::decode(&bytes[1..]), None);
        for (at, wrong) in [(10, 0), (10, 6), (11, 0), (12, 0), (13, 2), (14, 1)] {
            let mut bytes = bytes;
            bytes[at] = wrong;
            assert_eq!(Card::decode(&bytes), None, "byte {at}");
        }
    }
}
