//! Address and thread sanitizers, where a nightly toolchain brings them.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::shell::{root, step};

/// The standard library is not instrumented here, so the fence with which `Arc` frees its value is
/// not seen.
const SUPPRESSIONS: &str = "race:alloc::sync::Arc\nrace:drop_slow\n";

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
    let suppressions = root().join("target/tsan-suppressions");
    std::fs::write(&suppressions, SUPPRESSIONS)?;
    for sanitizer in ["address", "thread"] {
        let flags = format!("-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer");
        let mut tests = Command::new("cargo");
        tests
            .args(["+nightly", "test", "--quiet", "--target", "x86_64-unknown-linux-gnu"])
            .args(["--package", "farside-fabric", "--package", "farside-conformance", "--tests"])
            .env("RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", format!("target/{sanitizer}"))
            .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()))
            .current_dir(root());
        step(&format!("{sanitizer} sanitizer"), &mut tests)?;
    }
    Ok(())
}
