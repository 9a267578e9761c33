//! The test command: everything that must hold before a change lands.

use anyhow::Result;

use crate::setup::ensure_program;
use crate::shell::{cargo, step};
use crate::{cost, determinism, power, programs, rdma};

pub(crate) fn run() -> Result<()> {
    step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    step("tidy", &mut cargo(&["test", "--package", "xtask", "--locked"]))?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    step("clippy", &mut cargo(&clippy))?;
    let docs = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
    step("docs", cargo(&docs).env("RUSTDOCFLAGS", "-D warnings"))?;
    // Some tests make network namespaces; without the program they say that they skip it.
    ensure_program("ip", "iproute2");
    // And some a config store.
    ensure_program("etcd", "etcd-server");
    // And one looks at the page of the laboratory.
    ensure_program("chromium", "chromium");
    step("tests", &mut cargo(&["test", "--workspace", "--locked"]))?;
    programs::run_examples()?;
    rdma::run()?;
    power::run()?;
    loom()?;
    determinism::run()?;
    if ensure_program("valgrind", "valgrind") {
        cost::run()?;
    }
    Ok(())
}

pub(crate) fn loom() -> Result<()> {
    let args = ["test", "--package", "farside-fabric", "--lib", "--locked", "loom_tests"];
    // A build of its own: the flag changes every crate.
    step("loom", cargo(&args).env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom"))
}
