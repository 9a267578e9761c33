//! The RDMA tests on soft-RoCE, in a virtual machine: real verbs without a NIC.
//!
//! A kernel that has the driver is unpacked from Debian's package, not installed, and boots in QEMU by
//! pure emulation. Node and clients run as processes in it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::initramfs::Initramfs;
use crate::setup::ensure_program;
use crate::shell::{cargo, output, root, step, which};

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
    let directory = root().join("target/rdma-vm");
    fs::create_dir_all(&directory)?;
    let Some(kernel) = kernel(&directory)? else {
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

/// The newest kernel that Debian's packages offer, unpacked.
fn kernel(directory: &Path) -> Result<Option<PathBuf>> {
    let unpacked = directory.join("kernel");
    if let Some(kernel) = find(&unpacked.join("boot"), "vmlinuz-") {
        return Ok(Some(kernel));
    }
    if which("apt-get").is_none() {
        return Ok(None);
    }
    let pattern = r"^linux-image-[0-9][^ ]*[0-9]\+?(deb[0-9]+)?-amd64$";
    let search = || {
        output(Command::new("apt-cache").args(["search", "--names-only", pattern]))
            .unwrap_or_default()
    };
    let mut listed = search();
    if listed.is_empty() {
        crate::setup::refresh();
        listed = search();
    }
    let numbers = |name: &str| -> Vec<u32> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    let Some(package) = names.max_by_key(|name| numbers(name)) else { return Ok(None) };
    let download = directory.join("download");
    let _ = fs::remove_dir_all(&download);
    fs::create_dir_all(&download)?;
    eprintln!("── downloading {package}");
    let fetch = || {
        let mut command = Command::new("apt-get");
        command.args(["download", "-q", package]).current_dir(&download);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    // The lists of packages may be older than the packages.
    let fetched = fetch() || (crate::setup::refresh() && fetch());
    if !fetched {
        return Ok(None);
    }
    let file = find(&download, "linux-image").context("apt-get download left nothing behind")?;
    step("unpack the kernel", Command::new("dpkg-deb").arg("-x").args([&file, &unpacked]))?;
    fs::remove_dir_all(&download)?;
    Ok(find(&unpacked.join("boot"), "vmlinuz-"))
}

fn find(directory: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)))
        .max()
}

/// All files below a directory.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.is_symlink() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn build_image(directory: &Path, provider: &Path, image: &Path) -> Result<()> {
    step("build", &mut cargo(&["build", "--locked", "--workspace", "--bins"]))?;
    let tests = test_program()?;
    let bin = |name: &str| root().join("target/debug").join(name);
    let (farside, conformance) = (bin("farside"), bin("farside-conformance"));
    let mut image_files = Initramfs::default();
    for empty in ["/dev", "/proc", "/sys", "/tmp", "/dev/shm"] {
        image_files.directory(Path::new(empty));
    }
    for program in ["busybox", "ip", "rdma"] {
        let path = which(program).with_context(|| format!("finding {program}"))?;
        image_files.program(&path)?;
    }
    for program in [&tests, &farside, &conformance, &provider.to_owned()] {
        image_files.program(program)?;
    }
    image_files.copy(Path::new("/etc/libibverbs.d/rxe.driver"))?;
    let mut there = Vec::new();
    files(&directory.join("kernel/lib/modules"), &mut there);
    let mut load = String::new();
    for module in MODULES {
        let names = [format!("{module}.ko"), format!("{module}.ko.xz")];
        let is_it = |path: &&PathBuf| names.iter().any(|name| path.ends_with(name));
        let Some(path) = there.iter().find(is_it) else { continue };
        let contents = if path.extension().is_some_and(|extension| extension == "xz") {
            Command::new("xz").arg("-dc").arg(path).output()?.stdout
        } else {
            fs::read(path)?
        };
        image_files.file(&Path::new("/modules").join(module), &contents);
        load += &format!("insmod /modules/{module}\n");
    }
    let busybox = which("busybox").context("finding busybox")?;
    let script = format!(
        "#!{busybox} sh
{busybox} mkdir -p /bin /sbin
{busybox} --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin RUST_BACKTRACE=0
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
{load}
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
        busybox = busybox.display(),
        tests = tests.display(),
        farside = farside.display(),
    );
    image_files.file(Path::new("/init"), script.as_bytes());
    image_files.write(image)
}

/// The tests as a program, built but not run.
fn test_program() -> Result<PathBuf> {
    let args =
        ["test", "--locked", "--workspace", "--test", "rdma", "--no-run", "--message-format=json"];
    let messages = output(&mut cargo(&args))?;
    let program = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "rdma";
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    program.max().context("cargo built no test program")
}

/// A child process that does not outlive this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the machine, shows what it says, and fails if that is not what it should be.
fn boot(kernel: &Path, image: &Path) -> Result<()> {
    eprintln!("── RDMA tests on {}", kernel.file_name().unwrap_or_default().to_string_lossy());
    let start = Instant::now();
    let child = Command::new("qemu-system-x86_64")
        .args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-m",
            "1G",
            "-smp",
            "2",
            "-nic",
            "none",
        ])
        .args(["-nographic", "-no-reboot", "-append", "console=ttyS0 quiet panic=-1"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(image)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting QEMU")?;
    let mut machine = Running(child);
    let console = machine.0.stdout.take().expect("piped");
    let (said, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(console).lines().map_while(Result::ok) {
            let _ = said.send(line);
        }
    });
    let mut passed = false;
    loop {
        let left = LIMIT.saturating_sub(start.elapsed());
        match lines.recv_timeout(left) {
            Ok(line) => {
                eprintln!("   {}", line.trim_end());
                passed |= line.contains(VERDICT);
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            Err(_) => bail!("the virtual machine did not finish within {LIMIT:?}"),
        }
    }
    ensure!(passed, "the RDMA tests failed in the virtual machine");
    eprintln!("── RDMA tests: fine after {:.1?}", start.elapsed());
    Ok(())
}
