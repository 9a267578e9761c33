//! A small root file system for a virtual machine, as the kernel unpacks it (cpio, format newc).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell::output;

/// Files that will be there, by their absolute paths.
#[derive(Default)]
pub(crate) struct Initramfs {
    archive: Vec<u8>,
    there: BTreeSet<PathBuf>,
}

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

impl Initramfs {
    /// A directory, with those above it.
    pub(crate) fn directory(&mut self, path: &Path) {
        for part in path.ancestors().collect::<Vec<_>>().into_iter().rev().skip(1) {
            if self.there.insert(part.to_owned()) {
                self.entry(part, DIRECTORY, &[]);
            }
        }
    }

    /// A file with these contents; whoever may run it.
    pub(crate) fn file(&mut self, path: &Path, contents: &[u8]) {
        self.directory(path.parent().expect("an absolute path"));
        if self.there.insert(path.to_owned()) {
            self.entry(path, FILE, contents);
        }
    }

    /// A copy of a file of this machine, at the same place.
    pub(crate) fn copy(&mut self, path: &Path) -> Result<()> {
        let contents = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        self.file(path, &contents);
        Ok(())
    }

    /// A program or library at the same place, without what only debuggers need, and all libraries that
    /// it loads.
    pub(crate) fn program(&mut self, path: &Path) -> Result<()> {
        let stripped =
            std::env::temp_dir().join(format!("farside-stripped-{}", std::process::id()));
        let strip = Command::new("strip").arg("-o").arg(&stripped).arg(path).status();
        if strip.is_ok_and(|status| status.success()) {
            self.file(path, &fs::read(&stripped)?);
        } else {
            self.copy(path)?;
        }
        let _ = fs::remove_file(&stripped);
        // A static program has no such list, and ldd fails.
        let libraries = output(Command::new("ldd").arg(path)).unwrap_or_default();
        for word in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            self.copy(Path::new(word))?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, mode: u32, contents: &[u8]) {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/');
        let number = self.there.len();
        let (size, name_size) = (contents.len(), name.len() + 1);
        let header = format!(
            "070701{number:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{size:08x}{0:08x}{0:08x}{0:08x}{0:08x}{name_size:08x}{0:08x}",
            0, 1
        );
        self.archive.extend_from_slice(header.as_bytes());
        self.archive.extend_from_slice(name.as_bytes());
        self.archive.push(0);
        self.pad();
        self.archive.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.archive.resize(self.archive.len().next_multiple_of(4), 0);
    }

    /// Writes it down.
    pub(crate) fn write(mut self, to: &Path) -> Result<()> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        fs::File::create(to)?.write_all(&self.archive)?;
        Ok(())
    }
}
