//! The RDMA tests on soft-RoCE, in a virtual machine: real verbs without a NIC.
//!
//! A kernel that has the driver is unpacked from Debian's package, not installed, and boots in QEMU by
//! pure emulation. Node and clients run as processes in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::programs;
use crate::setup::ensure_program;
use crate::shell::{root, which};
use crate::vm::{self, Machine};

/// No run takes longer.
const LIMIT: Duration = Duration::from_secs(600);

/// In the order of their dependencies. A kernel may have some of them built in.
const MODULES: [&str; 7] =
    ["crc32_generic", "udp_tunnel", "ip6_udp_tunnel", "ib_core", "ib_uverbs", "rdma_rxe", "dummy"];

/// What the machine says when all went well.
const VERDICT: &str = "all RDMA tests passed";

pub(crate) fn run() -> Result<()> {
    let programs = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("rdma", "iproute2"),
        ("xz", "xz-utils"),
    ];
    if !programs.into_iter().all(|(program, package)| ensure_program(program, package)) {
        return Ok(());
    }
    let Some(provider) = provider() else {
        eprintln!(
            "── skipped: the package ibverbs-providers is not there, and cannot be installed"
        );
        return Ok(());
    };
    let directory = vm::directory();
    fs::create_dir_all(&directory)?;
    let Some(kernel) = vm::kernel(&directory)? else {
        eprintln!("── skipped: no package linux-image-*-amd64 can be downloaded");
        return Ok(());
    };
    let image = directory.join("initramfs");
    build_image(&directory, &provider, &image)?;
    boot(&kernel, &image)
}

/// Soft-RoCE's half of libibverbs.
fn provider() -> Option<PathBuf> {
    let find = || {
        let lists = ["/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib64/libibverbs"];
        let entries = lists.iter().filter_map(|list| fs::read_dir(list).ok()).flatten().flatten();
        let mut paths = entries.map(|entry| entry.path());
        paths.find(|path| path.to_string_lossy().contains("librxe-rdmav"))
    };
    find().or_else(|| {
        crate::setup::install("ibverbs-providers");
        find()
    })
}

fn build_image(directory: &Path, provider: &Path, image: &Path) -> Result<()> {
    let tests = programs::find("conformance", "test", "rdma")?;
    let bin = |name: &str| root().join("target/debug").join(name);
    let (farside, conformance) = (bin("farside"), bin("farside-conformance"));
    let mut image_files = vm::root_files()?;
    for program in ["ip", "rdma"] {
        let path = which(program).with_context(|| format!("finding {program}"))?;
        image_files.program(&path)?;
    }
    for program in [&tests, &farside, &conformance, &provider.to_owned()] {
        image_files.program(program)?;
    }
    image_files.copy(Path::new("/etc/libibverbs.d/rxe.driver"))?;
    let load = vm::add_modules(&mut image_files, directory, &MODULES)?;
    let begin = vm::script_begin()?;
    let script = format!(
        "{begin}{load}
ip link set lo up
ip link add eth9 type dummy
ip addr add 10.219.0.1/24 dev eth9
ip link set eth9 up
rdma link add rxe0 type rxe netdev eth9
{tests} --test-threads=1 --nocapture &&
  {farside} doctor && {farside} bench verbs --fabric rdma --threads 1 --txns 100 --bytes 64 --outstanding 8 &&
  {{
    # A pool of three nodes behind the NIC, with leases that an emulated machine can keep.
    for port in 7001 7002 7003; do
      {farside} node --fabric rdma --memory 8MiB --listen 127.0.0.1:$port --config-store file:/tmp/pool --lease 2000 &
    done
    for i in 1 2 3 4 5 6 7 8 9 10; do
      sleep 2
      {farside} status --connect file:/tmp/pool > /tmp/status && break
    done
    cat /tmp/status; test $(grep -c 'alive.*rdma:127' /tmp/status) = 3
  }} &&
  echo '{VERDICT}'
poweroff -f
",
        tests = tests.display(),
        farside = farside.display(),
    );
    image_files.file(Path::new("/init"), script.as_bytes());
    image_files.write(image)
}

/// Runs the machine, shows what it says, and fails if that is not what it should be.
fn boot(kernel: &Path, image: &Path) -> Result<()> {
    eprintln!("── RDMA tests on {}", kernel.file_name().unwrap_or_default().to_string_lossy());
    let start = Instant::now();
    let mut machine = Machine::boot(kernel, image, "", &["-m", "1G"])?;
    let mut passed = false;
    while let Some(line) = machine.hear(LIMIT.saturating_sub(start.elapsed()))? {
        eprintln!("   {line}");
        passed |= line.contains(VERDICT);
    }
    ensure!(passed, "the RDMA tests failed in the virtual machine");
    eprintln!("── RDMA tests: fine after {:.1?}", start.elapsed());
    Ok(())
}
