//! Registered memory: pinned, and known to the device with just the rights it needs.

use std::ffi::c_void;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use super::device::Device;
use super::ffi::{Mr, access};
use crate::memory::Mapping;
use crate::{FabricError, Result};

/// Memory that a device may reach.
#[derive(Debug)]
pub(super) struct Region {
    mr: *mut Mr,
    // Dropped after the region is taken back from the device, see Drop.
    pub(super) memory: Arc<Mapping>,
    device: Arc<Device>,
}

// SAFETY: the pointer is used to read two numbers that never change, and to deregister once.
unsafe impl Send for Region {}

impl Region {
    /// A buffer of a client: the device puts there what it read, and nobody else reaches it.
    pub(super) fn buffer(device: &Arc<Device>, bytes: u64) -> Result<Self> {
        let memory = Arc::new(Mapping::anonymous(bytes)?);
        Self::register(device, memory, access::LOCAL_WRITE)
    }

    /// The memory of a node: its clients read, write, and do atomics.
    pub(super) fn far_memory(device: &Arc<Device>, memory: Arc<Mapping>) -> Result<Self> {
        let remote = access::REMOTE_READ | access::REMOTE_WRITE | access::REMOTE_ATOMIC;
        Self::register(device, memory, access::LOCAL_WRITE | remote)
    }

    fn register(device: &Arc<Device>, memory: Arc<Mapping>, rights: u32) -> Result<Self> {
        let (base, bytes) = (memory.words().as_ptr(), size_of_val(memory.words()));
        // SAFETY: the mapping stays where it is until this region, which keeps it, is dropped.
        let mr = unsafe {
            let base = base.cast_mut().cast::<c_void>();
            (device.verbs.ibv_reg_mr)(device.pd, base, bytes, rights as i32)
        };
        if mr.is_null() {
            let cause = std::io::Error::last_os_error();
            return Err(too_much(bytes, &cause));
        }
        Ok(Region { mr, memory, device: Arc::clone(device) })
    }

    pub(super) fn base(&self) -> u64 {
        self.memory.words().as_ptr() as u64
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: a registered region stays readable until it is deregistered.
        unsafe { (*self.mr).lkey }
    }

    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.mr).rkey }
    }
}

fn too_much(bytes: usize, cause: &std::io::Error) -> FabricError {
    let limit = getrlimit(Resource::Memlock).current;
    let limit = limit.map_or("unlimited".into(), |bytes| format!("{} KiB", bytes >> 10));
    FabricError::setup(
        format!("registering {} KiB of memory with the device", bytes >> 10),
        format!(
            "{cause}; registered memory is locked, and the limit of this process is {limit}: raise it with ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, or in /etc/security/limits.conf"
        ),
    )
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: deregistered once; the memory is unmapped after that.
        let result = unsafe { (self.device.verbs.ibv_dereg_mr)(self.mr) };
        debug_assert_eq!(result, 0);
    }
}
