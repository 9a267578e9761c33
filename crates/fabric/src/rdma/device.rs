//! Finding a device, a port and an address; each failing step says what to do.

use std::ffi::CStr;
use std::fs;
use std::net::Ipv6Addr;
use std::sync::Arc;

use super::ffi::{Context, DeviceAttr, PORT_ACTIVE, PdPtr, PortAttr, Verbs};
use super::pair::{Depths, Pair};
use super::region::Region;
use crate::{FabricError, Result};

/// Which device to use, and how. What is not given is found out.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device, such as `mlx5_0`; otherwise the first with an active port.
    pub device: Option<String>,
    /// Its port, from 1 on; otherwise the first that is active.
    pub port: Option<u8>,
    /// The entry of the port's table of addresses; otherwise the best one: RoCE v2 over IPv4 first.
    pub gid_index: Option<u8>,
    /// The most bytes of a packet (256, 512, 1024, 2048 or 4096); otherwise what both ends can do.
    pub mtu: Option<u16>,
    /// Work requests that a queue has in flight at most; what is beyond waits in line.
    pub queue_depth: u32,
    /// Up to so many bytes a WRITE carries its data with it, as far as the device goes.
    pub inline_bytes: u32,
    /// READs and atomics that a queue has in flight at most; otherwise what both ends can do.
    pub outstanding_reads: Option<u8>,
    /// Registered memory per queue, through which data passes. It is locked.
    pub buffer_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            device: None,
            port: None,
            gid_index: None,
            mtu: None,
            queue_depth: 256,
            inline_bytes: 128,
            outstanding_reads: None,
            buffer_bytes: 1 << 20,
        }
    }
}

/// The library, by the name of its ABI.
const LIBRARY: &str = "libibverbs.so.1";

/// Vendor ids of devices that are software: their copies are not atomic by lines.
const SOFTWARE_VENDORS: [u32; 2] = [0xff_ffff, 0x62_6d74];

/// An open device with the port that is used.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) verbs: Verbs,
    pub(super) context: *mut Context,
    pub(super) pd: PdPtr,
    name: String,
    pub(super) port: u8,
    pub(super) lid: u16,
    /// Addresses are gids, as RoCE needs them.
    pub(super) is_global: bool,
    pub(super) gid_index: u8,
    pub(super) gid: [u8; 16],
    /// As the library counts: 1 is 256 bytes, 5 is 4096.
    pub(super) mtu: u8,
    pub(super) depths: Depths,
    pub(super) line_atomic: bool,
}

// SAFETY: the library's objects may be used by several threads at once, as its manual says; each queue
// pair of ours is used by one at a time.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

fn failed(step: impl Into<String>, cause: impl std::fmt::Display, remedy: &str) -> FabricError {
    FabricError::setup(step, format!("{cause}; {remedy}"))
}

impl Device {
    /// Opens the device that the options ask for.
    pub(super) fn open(options: &Options) -> Result<Arc<Self>> {
        let verbs = Verbs::load(LIBRARY)?;
        let mut found = Vec::new();
        let mut count = 0;
        // SAFETY: the list is freed below, after its last use.
        let list = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
        if !list.is_null() {
            for number in 0..usize::try_from(count).unwrap_or(0) {
                // SAFETY: the library says that there are so many.
                let device = unsafe { *list.add(number) };
                // SAFETY: names are C strings that live as long as the list.
                let name = unsafe { CStr::from_ptr((verbs.ibv_get_device_name)(device)) };
                let name = name.to_string_lossy().into_owned();
                let port = choose_port(&name, options.port);
                found.push((name, port, device));
            }
        }
        let names: Vec<String> = found.iter().map(|(name, ..)| name.clone()).collect();
        let chosen = match &options.device {
            Some(wanted) => found.iter().find(|(name, ..)| name == wanted),
            None => found.iter().find(|(_, port, _)| port.is_ok()).or(found.first()),
        };
        let opened = match chosen {
            None => Err(no_device(options.device.as_deref(), &names)),
            Some((name, port, device)) => port.clone().map(|port| {
                // SAFETY: the device is on the list, which is not freed yet.
                let context = unsafe { (verbs.ibv_open_device)(*device) };
                (name.clone(), port, context)
            }),
        };
        if !list.is_null() {
            // SAFETY: nothing on the list is used after this; an open device has its own reference.
            unsafe { (verbs.ibv_free_device_list)(list) };
        }
        let (name, port, context) = opened?;
        if context.is_null() {
            let cause = std::io::Error::last_os_error();
            let remedy = "give this user access to /dev/infiniband/uverbs* (often the group rdma)";
            return Err(failed(format!("opening {name}"), cause, remedy));
        }
        let mut device = Device {
            verbs,
            context,
            pd: std::ptr::null_mut(),
            name,
            port,
            lid: 0,
            is_global: true,
            gid_index: 0,
            gid: [0; 16],
            mtu: 0,
            depths: Depths::default(),
            line_atomic: false,
        };
        device.query(options)?;
        device.choose_gid(options)?;
        // SAFETY: the context is open.
        device.pd = unsafe { (device.verbs.ibv_alloc_pd)(device.context) };
        if device.pd.is_null() {
            let cause = std::io::Error::last_os_error();
            let step = format!("making a protection domain on {}", device.name);
            return Err(failed(step, cause, "end other programs that use the device"));
        }
        Ok(Arc::new(device))
    }

    fn query(&mut self, options: &Options) -> Result<()> {
        let name = &self.name;
        // SAFETY: plain numbers, for which zeros are fine.
        let mut attr: DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and the place is ours.
        let result = unsafe { (self.verbs.ibv_query_device)(self.context, &raw mut attr) };
        check(result, format!("asking {name} what it can do"), "look at dmesg for its driver")?;
        if attr.atomic_cap == 0 {
            let remedy = "use another NIC: locks need CAS";
            return Err(failed(format!("using {name}"), "it has no atomics", remedy));
        }
        let mut port = PortAttr::default();
        // SAFETY: as above.
        let result = unsafe { (self.verbs.ibv_query_port)(self.context, self.port, &raw mut port) };
        let step = format!("asking for port {} of {name}", self.port);
        check(result, step.clone(), "give a port from 1 on")?;
        if port.state != PORT_ACTIVE {
            let remedy = "bring up its network interface and the cable";
            return Err(failed(step, "it is not active", remedy));
        }
        self.lid = port.lid;
        self.is_global = sysfs(name, self.port, "link_layer").as_deref() != Some("InfiniBand");
        self.mtu = match options.mtu {
            None => port.active_mtu as u8,
            Some(bytes) => mtu_number(bytes, port.active_mtu as u8)?,
        };
        let most = |number: i32| u8::try_from(number.clamp(0, 128)).expect("clamped");
        let asked = options.outstanding_reads.unwrap_or(u8::MAX);
        self.depths = Depths {
            queue: options.queue_depth.clamp(8, attr.max_qp_wr.min(attr.max_cqe).max(8) as u32),
            inline: options.inline_bytes,
            asks: most(attr.max_qp_init_rd_atom).min(asked).max(1),
            answers: most(attr.max_qp_rd_atom).max(1),
        };
        self.line_atomic = cfg!(target_arch = "x86_64") && !SOFTWARE_VENDORS.contains(&attr.vendor);
        Ok(())
    }

    /// The address under which the other side sends to this one.
    fn choose_gid(&mut self, options: &Options) -> Result<()> {
        let (name, port) = (&self.name, self.port);
        let known = known_gids(name, port);
        let Some(index) = options.gid_index.or_else(|| best_gid(&known)) else {
            if !self.is_global {
                return Ok(());
            }
            let remedy = "give its network interface an IP address";
            return Err(failed(format!("choosing a gid of {name}"), "there is none", remedy));
        };
        let mut gid = [0; 16];
        // SAFETY: the context is open, and the place is ours.
        let result = unsafe {
            (self.verbs.ibv_query_gid)(self.context, port, i32::from(index), &raw mut gid)
        };
        if result != 0 || gid == [0; 16] {
            let there: Vec<String> = known.iter().map(ToString::to_string).collect();
            let remedy = format!("port {port} has: {}", there.join(", "));
            return Err(failed(format!("using gid {index} of {name}"), "it is empty", &remedy));
        }
        (self.gid_index, self.gid) = (index, gid);
        Ok(())
    }

    /// In a few words.
    fn describe(&self) -> String {
        let (name, port, mtu) = (&self.name, self.port, 128u32 << self.mtu);
        let gid = Ipv6Addr::from(self.gid);
        format!("{name} port {port}, gid {} ({gid}), MTU {mtu}, atomics", self.gid_index)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: regions and pairs keep the device alive, so nothing uses these any more.
        unsafe {
            if !self.pd.is_null() {
                (self.verbs.ibv_dealloc_pd)(self.pd);
            }
            (self.verbs.ibv_close_device)(self.context);
        }
    }
}

/// Turns the library's return value into an error.
pub(super) fn check(result: i32, step: impl Into<String>, remedy: &str) -> Result<()> {
    match result {
        0 => Ok(()),
        // Some calls return -1 and set errno, others return it.
        -1 => Err(failed(step, std::io::Error::last_os_error(), remedy)),
        code => Err(failed(step, std::io::Error::from_raw_os_error(code.abs()), remedy)),
    }
}

fn no_device(wanted: Option<&str>, names: &[String]) -> FabricError {
    let step = wanted.map_or("finding an RDMA device".into(), |name| format!("finding {name}"));
    if names.is_empty() {
        let remedy = "load your NIC's driver and ib_uverbs; without a NIC, soft-RoCE runs over any interface: rdma link add rxe0 type rxe netdev IF";
        return failed(step, "this machine has none", remedy);
    }
    failed(step, "there is no such device", &format!("there are: {}", names.join(", ")))
}

fn sysfs(device: &str, port: u8, what: &str) -> Option<String> {
    let path = format!("/sys/class/infiniband/{device}/ports/{port}/{what}");
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn choose_port(device: &str, wanted: Option<u8>) -> Result<u8> {
    let ports = fs::read_dir(format!("/sys/class/infiniband/{device}/ports"));
    let mut ports: Vec<u8> = ports
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    ports.sort_unstable();
    let is_active =
        |port: &u8| sysfs(device, *port, "state").is_some_and(|state| state.ends_with("ACTIVE"));
    match wanted {
        Some(port) if ports.contains(&port) => Ok(port),
        Some(port) => {
            let remedy = format!("it has ports {ports:?}");
            Err(failed(format!("using port {port} of {device}"), "it is not there", &remedy))
        }
        None => ports.iter().copied().find(is_active).ok_or_else(|| {
            let remedy = "bring up its network interface and the cable";
            failed(format!("choosing a port of {device}"), "none is active", remedy)
        }),
    }
}

fn mtu_number(bytes: u16, most: u8) -> Result<u8> {
    let number = (1..=5).find(|number| 128u16 << number == bytes);
    match number {
        Some(number) if number <= most => Ok(number),
        Some(_) => {
            let cause = format!("the port is set to {}", 128u16 << most);
            let remedy = "raise the MTU of its network interface, or give less";
            Err(failed(format!("using an MTU of {bytes}"), cause, remedy))
        }
        None => {
            let step = format!("using an MTU of {bytes}");
            Err(failed(step, "there is no such MTU", "give 256, 512, 1024, 2048 or 4096"))
        }
    }
}

/// An entry of a port's table of addresses.
struct KnownGid {
    index: u8,
    address: Ipv6Addr,
    kind: String,
}

impl std::fmt::Display for KnownGid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, {})", self.index, self.address, self.kind)
    }
}

fn known_gids(device: &str, port: u8) -> Vec<KnownGid> {
    let read = |index: u8| {
        let address: Ipv6Addr = sysfs(device, port, &format!("gids/{index}"))?.parse().ok()?;
        let kind = sysfs(device, port, &format!("gid_attrs/types/{index}")).unwrap_or_default();
        (!address.is_unspecified()).then_some(KnownGid { index, address, kind })
    };
    (0..=u8::MAX).filter_map(read).collect()
}

/// RoCE v2 is routed, and IPv4 addresses are what hosts are known by.
fn best_gid(known: &[KnownGid]) -> Option<u8> {
    let worth = |gid: &&KnownGid| {
        let version_2 = gid.kind.contains("v2");
        let (v4, local) = (gid.address.to_ipv4_mapped().is_some(), gid.address.segments()[0]);
        (version_2, v4, local != 0xfe80, std::cmp::Reverse(gid.index))
    };
    known.iter().max_by_key(worth).map(|gid| gid.index)
}

/// One step of what a queue needs of this machine.
#[derive(Debug)]
pub struct Check {
    /// What was tried.
    pub step: &'static str,
    /// What was found, or what failed, why, and what to do.
    pub found: Result<String>,
}

/// Tries what a client or node does at its start, step by step, up to the first that fails.
pub fn checks(options: &Options) -> Vec<Check> {
    let device = Device::open(options);
    let mut checks = vec![Check {
        step: "device",
        found: device.as_ref().map(|device| device.describe()).map_err(Clone::clone),
    }];
    let Ok(device) = device else { return checks };
    let region = Region::buffer(&device, options.buffer_bytes);
    let registered = format!("{} KiB can be registered", options.buffer_bytes >> 10);
    checks.push(Check { step: "memory", found: region.map(|_| registered) });
    let pair = Pair::asking(&device);
    let found = pair.map(|pair| format!("{} requests, {} bytes inline", pair.depth, pair.inline));
    checks.push(Check { step: "queue pair", found });
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_says_what_to_install() {
        let error = Verbs::load("libibverbs-that-is-not-there.so.9").unwrap_err().to_string();
        assert!(error.contains("install the package libibverbs1"), "{error}");
    }

    #[test]
    fn a_missing_device_says_which_there_are() {
        let none = no_device(None, &[]).to_string();
        assert!(none.contains("rdma link add"), "{none}");
        let others = no_device(Some("mlx5_7"), &["mlx5_0".into(), "rxe0".into()]).to_string();
        assert!(others.contains("finding mlx5_7") && others.contains("mlx5_0, rxe0"), "{others}");
    }

    #[test]
    fn routable_addresses_are_better() {
        let gid = |index, address: &str, kind: &str| KnownGid {
            index,
            address: address.parse().unwrap(),
            kind: kind.into(),
        };
        let known = [
            gid(0, "fe80::1", "IB/RoCE v1"),
            gid(1, "fe80::1", "RoCE v2"),
            gid(2, "::ffff:10.0.0.1", "IB/RoCE v1"),
            gid(3, "::ffff:10.0.0.1", "RoCE v2"),
            gid(4, "::ffff:10.0.0.2", "RoCE v2"),
        ];
        assert_eq!(best_gid(&known), Some(3));
        assert_eq!(best_gid(&known[..1]), Some(0));
        assert_eq!(best_gid(&[]), None);
    }

    #[test]
    fn packet_sizes_are_powers_of_two() {
        assert_eq!(mtu_number(1024, 3), Ok(3));
        assert_eq!(mtu_number(256, 5), Ok(1));
        assert!(mtu_number(4096, 3).unwrap_err().to_string().contains("set to 1024"));
        assert!(mtu_number(1500, 5).unwrap_err().to_string().contains("give 256"));
    }
}
