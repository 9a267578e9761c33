//! The parts of libibverbs that are used, as its ABI (`libibverbs.so.1`) has them.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

use crate::{FabricError, Result};

/// An opaque object of the library.
#[repr(C)]
pub(super) struct Opaque {
    _private: [u8; 0],
}

pub(super) type DevicePtr = *mut Opaque;
pub(super) type PdPtr = *mut Opaque;

/// An open device. Posting and polling go through its table of functions.
#[repr(C)]
pub(super) struct Context {
    device: DevicePtr,
    before_poll: [*mut c_void; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Completion) -> c_int,
    between: [*mut c_void; 13],
    pub(super) post_send:
        unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> c_int,
}

/// The beginning of a completion queue.
#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
}

/// The beginning of a queue pair.
#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    between: [*mut c_void; 5],
    handle: u32,
    pub(super) number: u32,
}

/// The beginning of a memory region.
#[repr(C)]
pub(super) struct Mr {
    between: [*mut c_void; 3],
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DeviceAttr {
    firmware: [u8; 64],
    guids: [u64; 2],
    sizes: [u64; 2],
    pub(super) vendor: u32,
    part_and_version: [u32; 2],
    max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    flags: c_uint,
    sges: [c_int; 2],
    max_cq: c_int,
    pub(super) max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    ee_and_res: [c_int; 2],
    pub(super) max_qp_init_rd_atom: c_int,
    max_ee_init: c_int,
    pub(super) atomic_cap: c_int,
    others: [c_int; 14],
    max_pkeys: u16,
    ack_delay: u8,
    pub(super) ports: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct PortAttr {
    pub(super) state: c_uint,
    max_mtu: c_uint,
    pub(super) active_mtu: c_uint,
    pub(super) gids: c_int,
    caps_and_counters: [u32; 4],
    pkeys: u16,
    pub(super) lid: u16,
    others: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) user: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) cap: QpCap,
    pub(super) kind: c_uint,
    pub(super) signal_all: c_int,
}

/// Aligned like the gid, which the header has as two words.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct AddressAttr {
    pub(super) gid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) own_gid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) lid: u16,
    pub(super) service_level: u8,
    pub(super) path_bits: u8,
    pub(super) rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpAttr {
    pub(super) state: c_uint,
    pub(super) current_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) migration: c_uint,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp: u32,
    pub(super) access: c_uint,
    pub(super) cap: QpCap,
    pub(super) address: AddressAttr,
    pub(super) other_address: AddressAttr,
    pub(super) pkey_index: u16,
    pub(super) other_pkey_index: u16,
    pub(super) notify: u8,
    pub(super) draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
    pub(super) others: [u8; 2],
    pub(super) rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Sge {
    pub(super) address: u64,
    pub(super) bytes: u32,
    pub(super) key: u32,
}

/// A work request. READ and WRITE have their key where an atomic has its first operand.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct SendRequest {
    pub(super) id: u64,
    pub(super) next: *mut SendRequest,
    pub(super) list: *mut Sge,
    pub(super) list_len: c_int,
    pub(super) opcode: c_uint,
    pub(super) flags: c_uint,
    immediate: u32,
    pub(super) remote: u64,
    /// The key of a READ or WRITE; what an atomic compares with or adds.
    pub(super) key_or_operand: u64,
    pub(super) swap: u64,
    pub(super) atomic_key: u32,
    unused: [u64; 7],
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Completion {
    pub(super) id: u64,
    pub(super) status: c_uint,
    opcode: c_uint,
    pub(super) vendor_error: u32,
    others: [u32; 7],
}

// As `offsetof` and `sizeof` have them in the library's own header.
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(offset_of!(Context, poll_cq) == 8 + 88 && offset_of!(Context, post_send) == 8 + 200);
    assert!(offset_of!(Qp, number) == 52);
    assert!(offset_of!(Mr, lkey) == 36 && offset_of!(Mr, rkey) == 40);
    assert!(size_of::<DeviceAttr>() == 232 && offset_of!(DeviceAttr, vendor) == 96);
    assert!(offset_of!(DeviceAttr, max_qp_rd_atom) == 144);
    assert!(offset_of!(DeviceAttr, atomic_cap) == 164 && offset_of!(DeviceAttr, ports) == 227);
    assert!(size_of::<PortAttr>() == 52 && offset_of!(PortAttr, lid) == 34);
    assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, kind) == 52);
    assert!(size_of::<AddressAttr>() == 32);
    assert!(size_of::<QpAttr>() == 144 && offset_of!(QpAttr, address) == 56);
    assert!(offset_of!(QpAttr, pkey_index) == 120 && offset_of!(QpAttr, max_rd_atomic) == 126);
    assert!(size_of::<Sge>() == 16 && size_of::<Completion>() == 48);
    assert!(cfg!(target_endian = "little"), "a key stands in the low half of an operand");
    assert!(size_of::<SendRequest>() == 128 && offset_of!(SendRequest, remote) == 40);
};

pub(super) mod opcode {
    pub(in super::super) const WRITE: u32 = 0;
    pub(in super::super) const READ: u32 = 4;
    pub(in super::super) const CAS: u32 = 5;
    pub(in super::super) const FAA: u32 = 6;
}

pub(super) mod flag {
    pub(in super::super) const FENCE: u32 = 1;
    pub(in super::super) const SIGNALED: u32 = 2;
    pub(in super::super) const INLINE: u32 = 8;
}

pub(super) mod access {
    pub(in super::super) const LOCAL_WRITE: u32 = 1;
    pub(in super::super) const REMOTE_WRITE: u32 = 2;
    pub(in super::super) const REMOTE_READ: u32 = 4;
    pub(in super::super) const REMOTE_ATOMIC: u32 = 8;
}

pub(super) mod status {
    pub(in super::super) const SUCCESS: u32 = 0;
    pub(in super::super) const REMOTE_INVALID: u32 = 9;
    pub(in super::super) const REMOTE_ACCESS: u32 = 10;
}

pub(super) const PORT_ACTIVE: u32 = 4;
pub(super) const QP_RC: u32 = 2;

impl SendRequest {
    pub(super) fn new(id: u64, opcode: u32, flags: u32, remote: u64) -> Self {
        SendRequest {
            id,
            next: std::ptr::null_mut(),
            list: std::ptr::null_mut(),
            list_len: 1,
            opcode,
            flags,
            immediate: 0,
            remote,
            key_or_operand: 0,
            swap: 0,
            atomic_key: 0,
            unused: [0; 7],
        }
    }
}

macro_rules! verbs {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The library, loaded, with the functions that are used.
        #[derive(Debug)]
        pub(super) struct Verbs {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _library: Library,
        }

        impl Verbs {
            /// Loads a library of this name.
            pub(super) fn load(name: &str) -> Result<Self> {
                let remedy = "install the package libibverbs1 and your NIC's provider (ibverbs-providers)";
                // SAFETY: libibverbs has no initializers that could disturb this process.
                let library = unsafe { Library::new(name) }.map_err(|e| {
                    FabricError::setup(format!("loading {name}"), format!("{e}; {remedy}"))
                })?;
                Ok(Verbs {
                    $($name: {
                        // SAFETY: the types are those of the library's header.
                        *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                            .map_err(|e| {
                                let why = format!("{e}; is this the libibverbs of rdma-core?");
                                FabricError::setup(format!("finding a function in {name}"), why)
                            })?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

verbs! {
    ibv_get_device_list: fn(*mut c_int) -> *mut DevicePtr;
    ibv_free_device_list: fn(*mut DevicePtr);
    ibv_get_device_name: fn(DevicePtr) -> *const c_char;
    ibv_open_device: fn(DevicePtr) -> *mut Context;
    ibv_close_device: fn(*mut Context) -> c_int;
    ibv_query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
    ibv_query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    ibv_query_gid: fn(*mut Context, u8, c_int, *mut [u8; 16]) -> c_int;
    ibv_alloc_pd: fn(*mut Context) -> PdPtr;
    ibv_dealloc_pd: fn(PdPtr) -> c_int;
    ibv_reg_mr: fn(PdPtr, *mut c_void, usize, c_int) -> *mut Mr;
    ibv_dereg_mr: fn(*mut Mr) -> c_int;
    ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut c_void, c_int) -> *mut Cq;
    ibv_destroy_cq: fn(*mut Cq) -> c_int;
    ibv_create_qp: fn(PdPtr, *mut QpInitAttr) -> *mut Qp;
    ibv_modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut Qp) -> c_int;
    ibv_wc_status_str: fn(c_uint) -> *const c_char;
}
