//! Hardware profiles: one table, one source per number.
//!
//! Sources are raw micro-figures of the papers (by claim id), or derived from them as said. Nothing
//! here is fitted to a figure about transactions or indexes. One value, the number of processing units, was
//! chosen with a figure about locks in sight: `docs/simulator.md` tells how, and what depends on it.

use farside_fabric::Persistence;

/// A kind of hardware. Times are in picoseconds, sizes in bytes, rates in bytes per nanosecond.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the table below documents each field beside its values")]
pub struct Profile {
    pub name: &'static str,
    pub medium: Medium,
    pub wire: u64,
    pub jitter: u64,
    pub bandwidth: f64,
    pub packet_overhead: u64,
    pub nics: usize,
    pub send_write: u64,
    pub send_read: u64,
    pub serve_write: u64,
    pub serve_read: u64,
    pub serve_atomic: u64,
    pub serve_on_chip: u64,
    pub serve_call: u64,
    pub pcie_read: u64,
    pub pcie_write: u64,
    pub units: u64,
    pub atomic_bucket_bits: u32,
    pub on_chip_bytes: u64,
    pub cached_queues: usize,
    pub queue_miss: u64,
    pub memory_read: u64,
    pub memory_write_bandwidth: f64,
    pub memory_grain: u64,
    pub memory_read_hold: u64,
    pub line_atomic: bool,
    pub persistence: Persistence,
    pub cpu: Cpu,
    pub detect: u64,
}

/// What a memory node is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Lost with the power.
    Dram,
    /// Persistent memory (Optane-like), or a journal on disk for `tcp`.
    Persistent,
}

/// CPU time of a compute thread, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Ringing a doorbell (an MMIO write).
    pub doorbell: u64,
    /// Each verb of it (building a work request).
    pub verb: u64,
    /// Taking a completion.
    pub completion: u64,
    /// Switching to a task.
    pub switch: u64,
}

const NS: u64 = 1_000;
const US: u64 = 1_000_000;

/// Picoseconds per message at so many million messages a second.
const fn per_million(millions: f64) -> u64 {
    (1e6 / millions) as u64
}

const CONNECTX_4: Profile = Profile {
    name: "connectx-4",
    medium: Medium::Dram,
    // One way through NICs, cables and a switch: what remains of a 2 µs round trip
    // (r2-table2-1-rdma-latency) beside PCIe and processing.
    wire: 725 * NS,
    // Not in the papers: small beside the wire.
    jitter: 40 * NS,
    // 100 Gbps (r2-table2-1-val-nic-bandwidth).
    bandwidth: 12.5,
    // Headers, acknowledgements and PCIe framing, so that 256-byte WRITEs reach 37 M/s at 100 Gbps
    // (rdpma-fig2-10-write-dram-256-rate).
    packet_overhead: 82,
    // VAL has two per machine (r2-table2-1-val-nics); rates below are per NIC.
    nics: 2,
    // 130 M/s of small WRITEs and 86.9 M/s of READs per machine (r2-fig2-4-write-rate-64b,
    // r2-fig2-4-read-rate), sender and receiver alike.
    send_write: per_million(65.0),
    send_read: per_million(43.45),
    serve_write: per_million(65.0),
    serve_read: per_million(43.45),
    // 48 M/s of atomics per machine (r2-fig2-4-atomic-rate).
    serve_atomic: per_million(24.0),
    serve_on_chip: per_million(65.0),
    // 76 M/s empty RPCs per machine (r2-fig2-4-two-sided-rate).
    serve_call: per_million(38.0),
    // About 1 µs of a NIC access is PCIe (rdpma-table2-3-pcie-latency): four crossings, of which the
    // doorbell and the completion are the requester's. (At first 500 and 250 ns, two crossings; changed
    // after runs of sherman Fig. 16.)
    pcie_read: 250 * NS,
    pcie_write: 250 * NS,
    // An atomic occupies one of so many processing units, and its bucket, for as long as that many together
    // take at the raw rate; whatever else comes to that unit waits (`sherman` §3.2.2 and §5.7). The papers
    // do not say how many there are: the one value of this table that was chosen in sight of a figure about
    // locks (`docs/simulator.md`).
    units: 8,
    // 12 low bits choose the bucket (sherman-setup-atomic-bucket-bits).
    atomic_bucket_bits: 12,
    on_chip_bytes: 0,
    // Fewer than 960 are cached (r2-fig2-4-qps-per-nic); ConnectX-3 slows from 256 on
    // (farmv2-sec3-2-cx3-connection-limit), twice that here.
    cached_queues: 512,
    // From 35 M/s to 15 M/s between 28 and 3200 queue pairs (farmv2-sec3-2-cx4-read-rate-28-qps,
    // farmv2-sec3-2-cx4-qps-equal-to-erpc): 38 ns over a share of 84 % that misses.
    queue_miss: 45 * NS,
    // DRAM (rdpma-table2-3-dram-read-latency).
    memory_read: 82 * NS,
    memory_write_bandwidth: 60.0,
    memory_grain: 64,
    memory_read_hold: 0,
    // As FaRM assumes of RDMA on coherent x86 (rtx-setup-atomic-read-bytes).
    line_atomic: true,
    persistence: Persistence::Volatile,
    cpu: Cpu {
        // Hundreds of cycles for an MMIO (drtmx §2.2.3).
        doorbell: 100 * NS,
        verb: 15 * NS,
        completion: 40 * NS,
        // r2-fig2-2-coroutine-switch.
        switch: 20 * NS,
    },
    // Retries of a reliable connection before it gives up.
    detect: 500 * US,
};

const CONNECTX_5: Profile = Profile {
    name: "connectx-5",
    nics: 1,
    // 110 M/s of CAS on chip (sherman-setup-onchip-cas-rate): the rate of the message engine.
    // WRITEs of up to 128 bytes above 50 M/s (sherman-fig3-write-rate-128b) follow from bandwidth
    // and overhead.
    send_write: per_million(110.0),
    serve_write: per_million(110.0),
    serve_on_chip: per_million(110.0),
    // READs and host atomics in ConnectX-4's proportion to WRITEs: 86.9 / 130 and 48 / 130.
    send_read: per_million(110.0 * 86.9 / 130.0),
    serve_read: per_million(110.0 * 86.9 / 130.0),
    serve_atomic: per_million(110.0 * 48.0 / 130.0),
    serve_call: per_million(110.0 * 76.0 / 130.0),
    // 256 KB open to applications (sherman-setup-onchip-memory).
    on_chip_bytes: 256 << 10,
    cached_queues: 1024,
    ..CONNECTX_4
};

/// The profiles, by name.
const PROFILES: &[Profile] = &[
    Profile {
        name: "connectx-3",
        nics: 1,
        // 56 Gbps (farmv2-setup-nic-bandwidth); message rates in that proportion to ConnectX-4's.
        bandwidth: 7.0,
        send_write: per_million(65.0 * 0.56),
        send_read: per_million(43.45 * 0.56),
        serve_write: per_million(65.0 * 0.56),
        serve_read: per_million(43.45 * 0.56),
        serve_atomic: per_million(24.0 * 0.56),
        serve_call: per_million(38.0 * 0.56),
        // farmv2-sec3-2-cx3-connection-limit.
        cached_queues: 256,
        ..CONNECTX_4
    },
    CONNECTX_4,
    CONNECTX_5,
    Profile {
        name: "connectx-6",
        // 200 Gbps (ford-setup-cx6-port-bandwidth); message rates twice those of ConnectX-5.
        bandwidth: 25.0,
        send_write: CONNECTX_5.send_write / 2,
        send_read: CONNECTX_5.send_read / 2,
        serve_write: CONNECTX_5.serve_write / 2,
        serve_read: CONNECTX_5.serve_read / 2,
        serve_atomic: CONNECTX_5.serve_atomic / 2,
        serve_on_chip: CONNECTX_5.serve_on_chip / 2,
        serve_call: CONNECTX_5.serve_call / 2,
        cached_queues: 4096,
        ..CONNECTX_5
    },
    Profile {
        name: "cxl",
        // A load over a switch takes a few hundred nanoseconds; no NIC, no queue pairs.
        wire: 150 * NS,
        jitter: 10 * NS,
        bandwidth: 50.0,
        packet_overhead: 16,
        nics: 1,
        send_write: per_million(200.0),
        send_read: per_million(200.0),
        serve_write: per_million(200.0),
        serve_read: per_million(200.0),
        serve_atomic: per_million(100.0),
        serve_call: per_million(10.0),
        pcie_read: 0,
        pcie_write: 0,
        cached_queues: usize::MAX,
        queue_miss: 0,
        // Loads and stores of CPUs: words are all that is promised.
        line_atomic: false,
        cpu: Cpu { doorbell: 5 * NS, verb: 5 * NS, completion: 5 * NS, switch: 20 * NS },
        detect: 100 * US,
        ..CONNECTX_4
    },
    Profile {
        name: "tcp-10g",
        // 90 µs round trip, 10 Gbps (dst-table5-1-vale-rtt, dst-table5-1-vale-network).
        wire: 40 * US,
        jitter: 5 * US,
        bandwidth: 1.25,
        packet_overhead: 66,
        nics: 1,
        // One thread of the node, a system call for many doorbells.
        send_write: per_million(5.0),
        send_read: per_million(5.0),
        serve_write: per_million(3.0),
        serve_read: per_million(3.0),
        serve_atomic: per_million(3.0),
        serve_call: per_million(1.0),
        pcie_read: 0,
        pcie_write: 0,
        cached_queues: usize::MAX,
        queue_miss: 0,
        line_atomic: true,
        cpu: Cpu { doorbell: 1500 * NS, verb: 30 * NS, completion: 500 * NS, switch: 20 * NS },
        detect: 10_000 * US,
        ..CONNECTX_4
    },
];

impl Profile {
    /// The names of all profiles; each may be followed by `+pm`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|profile| profile.name)
    }

    /// A profile by its name, with persistent memory if it ends with `+pm`.
    pub fn named(name: &str) -> Option<Profile> {
        let (base, persistent) = match name.strip_suffix("+pm") {
            Some(base) => (base, true),
            None => (name, false),
        };
        let found = PROFILES.iter().find(|profile| profile.name == base)?;
        Some(if persistent { found.with_persistent_memory() } else { *found })
    }

    fn with_persistent_memory(self) -> Self {
        let ordered = self.name == "tcp-10g";
        Profile {
            medium: Medium::Persistent,
            // Six modules: 12.9 GB/s of writes (ford-setup-pm-write-bandwidth), 256-byte grains
            // (rdpma-table2-3-xpline), 271 ns to read (rdpma-table2-3-nvm-read-latency).
            memory_read: 271 * NS,
            memory_write_bandwidth: 12.9,
            memory_grain: 256,
            // For how long reading a grain keeps writes waiting, so that 32 threads that read beside writers cost
            // these 87.5 % of their rate (ford-fig3-write-throughput-drop).
            memory_read_hold: 50 * NS,
            persistence: if ordered { Persistence::Ordered } else { Persistence::Unordered },
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_found_by_name() {
        for name in Profile::names() {
            assert_eq!(Profile::named(name).map(|p| p.medium), Some(Medium::Dram));
            let persistent = Profile::named(&format!("{name}+pm")).unwrap();
            assert_eq!(persistent.medium, Medium::Persistent);
            assert_ne!(persistent.persistence, Persistence::Volatile);
        }
        assert_eq!(Profile::named("connectx-9"), None);
    }
}
