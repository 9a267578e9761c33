//! Threads that must not be late.

/// How much sooner than others: `nice` has -20 to 19.
const NICENESS: i32 = -15;

/// This thread works little, and somebody takes it for dead if it is late: it goes before other threads from now on, where the
/// system allows that (`CAP_SYS_NICE`), as `farmv2.txt` §3.1 has it for leases. `false` if it does not.
pub fn hurry() -> bool {
    // Of the calling thread alone, on Linux.
    rustix::process::setpriority_process(None, NICENESS).is_ok()
}
