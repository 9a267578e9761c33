//! A virtual machine loses its power under load, again and again: what was committed to a database in a file is there when it boots.
//! Once on a disk, and once on persistent memory: a part of the machine's memory that is kept in a file, with a file system that maps it
//! directly (DAX).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::programs;
use crate::setup::ensure_program;
use crate::shell::step;
use crate::vm::{self, Machine};

/// How often, if `FARSIDE_POWER_LOSSES` says nothing.
const LOSSES: u64 = 2;

/// A machine that says nothing for so long has failed.
const SILENCE: Duration = Duration::from_secs(120);

/// In the order of their dependencies.
const MODULES: [&str; 11] = [
    "virtio_blk",
    "crc32c_generic",
    "libcrc32c",
    "crc16",
    "mbcache",
    "jbd2",
    "ext4",
    "libnvdimm",
    "nd_btt",
    "nd_pmem",
    "nd_e820",
];

/// What a machine keeps; of its memory, from there on: between what the kernel takes and where it is loaded.
const DISK_BYTES: u64 = 256 << 20;
const MEMORY_BYTES: u64 = 1 << 30;
const PMEM_AT: u64 = 256 << 20;
const BLOCK: u64 = 4096;

/// Where the database is.
struct Disk {
    /// The name of its device, and how that is mounted.
    device: &'static str,
    options: &'static str,
    durability: &'static str,
}

const DISKS: [Disk; 2] = [
    Disk { device: "vda", options: "defaults", durability: "flush" },
    Disk { device: "pmem0", options: "dax=always", durability: "flush" },
];

/// Where commits are reported before they are on the disk.
const CARELESS: Disk = Disk { device: "vda", options: "defaults", durability: "none" };

/// What is said when the checker in the machine failed.
const WRONG: &str = "what is there is wrong";

/// How far each writer is known to be.
type Known = BTreeMap<u64, u64>;

pub(crate) fn run() -> Result<()> {
    let programs = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("xz", "xz-utils"),
        ("mkfs.ext4", "e2fsprogs"),
    ];
    if !programs.into_iter().all(|(program, package)| ensure_program(program, package)) {
        return Ok(());
    }
    let directory = vm::directory();
    fs::create_dir_all(&directory)?;
    let Some(kernel) = vm::kernel(&directory)? else {
        eprintln!("── skipped: no package linux-image-*-amd64 can be downloaded");
        return Ok(());
    };
    let image = directory.join("power-initramfs");
    build_image(&directory, &image)?;
    let said = std::env::var("FARSIDE_POWER_LOSSES").ok();
    let losses = said.map_or(Ok(LOSSES), |text| text.parse()).context("FARSIDE_POWER_LOSSES")?;
    for disk in &DISKS {
        let start = Instant::now();
        let commits = lose_power(&kernel, &image, disk, losses)?;
        let (device, took) = (disk.device, start.elapsed());
        eprintln!(
            "── {device}: {commits} commits are there after {losses} losses of power, {took:.1?}"
        );
    }
    // Otherwise this would find nothing.
    let lost = lose_power(&kernel, &image, &CARELESS, losses).err();
    for disk in &DISKS {
        fs::remove_file(disk_file(disk.device))?;
    }
    let why = lost.context("nothing is lost without durability")?;
    // Commits are missing, or half there: either is a loss, and by chance.
    let told = why.to_string();
    let is_loss = told.contains("was committed") || told.contains(WRONG);
    ensure!(is_loss, "without durability: {why}");
    eprintln!("── without durability something is lost, as it should be: {why}");
    Ok(())
}

fn build_image(directory: &Path, image: &Path) -> Result<()> {
    let tests = programs::find("farside", "test", "power")?;
    let mut files = vm::root_files()?;
    files.program(&tests)?;
    files.directory(Path::new("/data"));
    let load = vm::add_modules(&mut files, directory, &MODULES)?;
    let script = format!(
        "{begin}{load}
device=$(sed 's/.*farside-device=//; s/ .*//' /proc/cmdline)
options=$(sed 's/.*farside-options=//; s/ .*//' /proc/cmdline)
durability=$(sed 's/.*farside-durability=//; s/ .*//' /proc/cmdline)
for i in 1 2 3 4 5 6 7 8 9; do test -b /dev/$device && break; sleep 1; done
mount -t ext4 -o $options /dev/$device /data || echo 'no file system'
export FARSIDE_POWER_CHECK=\"file:/data/database?memory=64MiB&durability=$durability\"
{tests} checker --exact --nocapture --test-threads=1 || echo 'the checker failed'
export FARSIDE_POWER_URL=$FARSIDE_POWER_CHECK
{tests} client --exact --nocapture --test-threads=1
poweroff -f
",
        begin = vm::script_begin()?,
        tests = tests.display(),
    );
    files.file(Path::new("/init"), script.as_bytes());
    files.write(image)
}

fn disk_file(name: &str) -> PathBuf {
    vm::directory().join(format!("{name}.disk"))
}

/// An empty file system in a file, from some place on.
fn new_disk(name: &str, bytes: u64, from: u64) -> Result<PathBuf> {
    let path = disk_file(name);
    fs::File::create(&path)?.set_len(bytes)?;
    let blocks = DISK_BYTES / BLOCK;
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-F", "-b", &BLOCK.to_string(), "-E", &format!("offset={from}")]);
    step("make a file system", make.arg(&path).arg(blocks.to_string()))?;
    Ok(path)
}

/// A machine with a device that it keeps, and what its kernel is told of it.
fn hardware(device: &str) -> Result<(Vec<String>, String)> {
    Ok(match device {
        "vda" => {
            let disk = new_disk(device, DISK_BYTES, 0)?;
            let drive = format!("file={},format=raw,if=virtio", disk.display());
            (["-m", "1G", "-drive", &drive].map(String::from).to_vec(), String::new())
        }
        _ => {
            let disk = new_disk(device, MEMORY_BYTES, PMEM_AT)?;
            let path = disk.display();
            let memory =
                format!("memory-backend-file,id=ram,share=on,mem-path={path},size={MEMORY_BYTES}");
            let args = ["-m", "1G", "-machine", "pc,memory-backend=ram", "-object", &memory];
            let told = format!("nokaslr memmap={DISK_BYTES}!{PMEM_AT}");
            (args.map(String::from).to_vec(), told)
        }
    })
}

/// Lets a machine lose its power so often; how many commits are there in the end.
fn lose_power(kernel: &Path, image: &Path, disk: &Disk, losses: u64) -> Result<u64> {
    let Disk { device, options, durability } = disk;
    let (args, more) = hardware(device)?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let command = format!(
        "{more} farside-device={device} farside-options={options} farside-durability={durability} end"
    );
    let mut told = Known::new();
    for time in 0..=losses {
        let mut machine = Machine::boot(kernel, image, &command, &args)?;
        let seen = check(&mut machine, device)?;
        for (writer, number) in &told {
            let there = seen.get(writer).copied().unwrap_or(0);
            ensure!(
                there >= *number,
                "writer {writer}: {there} is there, and {number} was committed"
            );
        }
        told.extend(seen);
        // The last time only what is there counts.
        let lines = if time < losses { 30 + time * 37 % 90 } else { 0 };
        for _ in 0..lines {
            let Some(line) = machine.hear(SILENCE)? else {
                bail!("the machine went off by itself")
            };
            note(&line, "told ", &mut told);
        }
        if time < losses {
            // Its power goes, here.
            let commits: u64 = told.values().sum();
            eprintln!("   {device}: loss {} of {losses} after {commits} commits", time + 1);
        }
    }
    let commits: u64 = told.values().sum();
    ensure!(commits >= losses * 15, "hardly anything was committed");
    Ok(commits)
}

/// What is there when a machine has booted.
fn check(machine: &mut Machine, device: &str) -> Result<Known> {
    let mut seen = Known::new();
    while let Some(line) = machine.hear(SILENCE)? {
        note(&line, "seen ", &mut seen);
        ensure!(!line.contains("no file system"), "the machine has no file system: {line}");
        ensure!(!line.contains("the checker failed"), "{WRONG}");
        if line.contains("panicked") {
            eprintln!("   {line}");
        }
        if line.contains("checked, ") {
            let by_lines = line.contains("by lines");
            ensure!(by_lines == (device != "vda"), "{device}: {line}");
            return Ok(seen);
        }
    }
    bail!("the machine went off by itself")
}

/// Takes in `WHAT WRITER NUMBER`, whatever is before it.
fn note(line: &str, what: &str, known: &mut Known) {
    let Some((_, said)) = line.split_once(what) else { return };
    let mut words = said.split_whitespace().map(str::parse);
    if let (Some(Ok(writer)), Some(Ok(number)), None) = (words.next(), words.next(), words.next()) {
        known.insert(writer, number);
    }
}
