//! Virtual machines: a kernel that is unpacked from Debian's package, not installed, with a root file system of what is needed, in
//! QEMU by pure emulation.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::initramfs::Initramfs;
use crate::shell::{output, root, step, which};

/// Where kernels and images are.
pub(crate) fn directory() -> PathBuf {
    root().join("target/rdma-vm")
}

/// The newest kernel that Debian's packages offer, unpacked.
pub(crate) fn kernel(directory: &Path) -> Result<Option<PathBuf>> {
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

/// A root file system with a shell.
pub(crate) fn root_files() -> Result<Initramfs> {
    let mut files = Initramfs::default();
    for empty in ["/dev", "/proc", "/sys", "/tmp", "/dev/shm"] {
        files.directory(Path::new(empty));
    }
    files.program(&which("busybox").context("finding busybox")?)?;
    Ok(files)
}

/// How a script begins that is the first program.
pub(crate) fn script_begin() -> Result<String> {
    let busybox = which("busybox").context("finding busybox")?;
    let busybox = busybox.display();
    Ok(format!(
        "#!{busybox} sh
{busybox} mkdir -p /bin /sbin
{busybox} --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin RUST_BACKTRACE=0
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
"
    ))
}

/// Modules of the kernel, in the order of their dependencies; the lines of a script that load them. A kernel may have some of them
/// built in.
pub(crate) fn add_modules(
    to: &mut Initramfs,
    directory: &Path,
    modules: &[&str],
) -> Result<String> {
    let mut there = Vec::new();
    files(&directory.join("kernel/lib/modules"), &mut there);
    let mut load = String::new();
    for module in modules {
        let names = [format!("{module}.ko"), format!("{module}.ko.xz")];
        let is_it = |path: &&PathBuf| names.iter().any(|name| path.ends_with(name));
        let Some(path) = there.iter().find(is_it) else { continue };
        let contents = if path.extension().is_some_and(|extension| extension == "xz") {
            Command::new("xz").arg("-dc").arg(path).output()?.stdout
        } else {
            fs::read(path)?
        };
        to.file(&Path::new("/modules").join(module), &contents);
        load += &format!("insmod /modules/{module}\n");
    }
    Ok(load)
}

/// A machine, which does not outlive this.
pub(crate) struct Machine {
    child: Child,
    lines: Receiver<String>,
}

impl Machine {
    /// Starts one. `command` is for its kernel, and may be read by its first program.
    pub(crate) fn boot(
        kernel: &Path,
        image: &Path,
        command: &str,
        devices: &[&str],
    ) -> Result<Self> {
        let mut child = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-nic", "none"])
            .args(devices)
            .args(["-nographic", "-no-reboot", "-append"])
            .arg(format!("console=ttyS0 quiet panic=-1 {command}"))
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(image)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting QEMU")?;
        let console = child.stdout.take().expect("piped");
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(console).lines().map_while(Result::ok) {
                let _ = said.send(line.trim_end().to_owned());
            }
        });
        Ok(Machine { child, lines })
    }

    /// The next line on its console, within so long; `None` when it is off.
    pub(crate) fn hear(&mut self, within: Duration) -> Result<Option<String>> {
        match self.lines.recv_timeout(within) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(_) => bail!("the virtual machine says nothing within {within:?}"),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
