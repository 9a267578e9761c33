//! Files of a store: what their first sector says.

use crate::JournalError;
use crate::disk::{Disk, DiskFile};
use crate::sector::{Found, Owner, Part, SECTOR, words};

/// "Farside", and the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"Farside1");

/// What is wrong with a file of somebody else.
pub(crate) const NOT_OURS: &str =
    "it is no file of a farside node; give an empty directory, or that of a node";

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Journal,
    Checkpoint,
}

/// The first sector of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// Which store it belongs to.
    pub(crate) store: u64,
    pub(crate) kind: Kind,
    /// Of a journal: which one it is. Of a checkpoint: with which one to go on.
    pub(crate) number: u64,
    /// How many words were appended before it.
    pub(crate) position: u64,
    /// How much memory there was, in words.
    pub(crate) memory: u64,
}

impl Head {
    pub(crate) fn owner(&self) -> Owner {
        let file = self.number << 1 | u64::from(self.kind == Kind::Checkpoint);
        Owner { store: self.store, file }
    }

    pub(crate) fn name(&self) -> String {
        name(self.kind, self.number)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let kind = u64::from(self.kind == Kind::Checkpoint);
        let words = [MAGIC, self.store, kind, self.number, self.position, self.memory];
        let mut sector = Vec::with_capacity(SECTOR);
        self.owner().frame(0, Part::File, &words, &mut sector);
        sector
    }

    /// Reads that of a file; `None` if it was made, and nothing was written to it.
    pub(crate) fn read(file: &dyn DiskFile, name: &str) -> Result<Option<Head>, JournalError> {
        let mut sector = [0; SECTOR];
        let failed = |error| JournalError::disk(&format!("reading {name}"), &error);
        let bytes = file.read_at(0, &mut sector).map_err(failed)?;
        if sector.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let [magic, store, kind, number, position, memory, ..] = words(&sector);
        if bytes < SECTOR || magic != MAGIC {
            // One damaged bit makes no other file of it.
            let near = (magic ^ MAGIC).count_ones() <= 2;
            return Err(match near {
                true => JournalError::damaged(name, 0, "its first words are damaged"),
                false => JournalError::foreign(name, NOT_OURS),
            });
        }
        let kind = if kind == 0 { Kind::Journal } else { Kind::Checkpoint };
        let head = Head { store, kind, number, position, memory };
        match head.owner().look(0, &sector) {
            Found::Whole(Part::File) if parse(name) == Some((kind, number)) => Ok(Some(head)),
            Found::Whole(Part::File) => {
                Err(JournalError::foreign(name, format!("it was {} once", head.name())))
            }
            _ => Err(JournalError::damaged(name, 0, "its first sector is damaged")),
        }
    }
}

pub(crate) fn name(kind: Kind, number: u64) -> String {
    match kind {
        Kind::Journal => format!("journal-{number:016x}"),
        Kind::Checkpoint => format!("checkpoint-{number:016x}"),
    }
}

/// What a file is, by its name.
pub(crate) fn parse(name: &str) -> Option<(Kind, u64)> {
    let (kind, number) = name.split_once('-')?;
    let kind = match kind {
        "journal" => Kind::Journal,
        "checkpoint" => Kind::Checkpoint,
        _ => return None,
    };
    (number.len() == 16)
        .then(|| u64::from_str_radix(number, 16).ok().map(|number| (kind, number)))?
}

/// Before the name of a file that is not finished yet, and means nothing.
const UNFINISHED: &str = "unfinished-";

/// Whether a name is that of a file that was not finished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_prefix(UNFINISHED).and_then(parse).is_some()
}

/// Makes a file with a first sector, under a name that means nothing yet.
pub(crate) fn begin(
    disk: &dyn Disk,
    head: &Head,
    bytes: u64,
) -> std::io::Result<(String, Box<dyn DiskFile>)> {
    let name = format!("{UNFINISHED}{}", head.name());
    let file = disk.create(&name, bytes)?;
    file.write_at(0, &head.write())?;
    Ok((name, file))
}
