//! Address and thread sanitizers, where a nightly toolchain brings them.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::shell::{root, step};

/// The standard library is not instrumented here: the fence with which `Arc` frees its value, and
/// what channels do, is not seen. The test harness is avoided for the same reason.
const SUPPRESSIONS: &str = "race:alloc::sync::Arc\nrace:drop_slow\nrace:std::sync\n";

pub(crate) fn run() -> Result<()> {
    let nightly = Command::new("cargo")
        .args(["+nightly", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !nightly.is_ok_and(|status| status.success()) {
        eprintln!("── skipped: sanitizers need a nightly toolchain");
        return Ok(());
    }
    let tests = ["test", "--quiet", "-p", "farside-fabric", "-p", "farside-conformance", "--tests"];
    step("address sanitizer", &mut sanitized("address", &tests))?;
    let suppressions = root().join("target/tsan-suppressions");
    std::fs::write(&suppressions, SUPPRESSIONS)?;
    let options = format!("suppressions={}", suppressions.display());
    let suite = ["run", "--quiet", "-p", "farside-conformance", "--", "local"];
    step("thread sanitizer", sanitized("thread", &suite).env("TSAN_OPTIONS", options))
}

fn sanitized(sanitizer: &str, args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    let flags = format!("-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer");
    command
        .arg("+nightly")
        .args(args)
        .env("CARGO_BUILD_TARGET", "x86_64-unknown-linux-gnu")
        .env("CARGO_TARGET_DIR", format!("target/{sanitizer}"))
        .env("RUSTFLAGS", flags)
        .current_dir(root());
    command
}
