//! What is on the replicas of an object, and what is wrong with it.

use super::{Flaw, Names, Wrong};
use crate::blob::Blob;
use crate::object::{IN_USE, Target, Version};
use crate::system;

/// What is on the replicas of an object.
#[derive(PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) target: Target,
    /// The words from its header on, the primary's first.
    pub(super) copies: Vec<(u16, Vec<u64>)>,
    /// Where the large body that it names is not what it should be.
    pub(super) bodies: Vec<(u16, Wrong)>,
}

impl Reading {
    pub(super) fn new(target: Target) -> Self {
        Reading { target, copies: Vec::new(), bodies: Vec::new() }
    }

    fn is_root(&self) -> bool {
        self.target.addr == system::catalog_root()
    }

    /// Whether some replica says so: another one may have lost that word.
    pub(super) fn is_in_use(&self) -> bool {
        self.is_root() || self.copies.iter().any(|(_, words)| words[0] == IN_USE)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.copies.iter().map(|(_, words)| words.len() as u64 * 8).sum()
    }

    fn versions(&self) -> Vec<Option<Version>> {
        self.copies.iter().map(|(_, words)| Version::from_words(&words[2..])).collect()
    }

    /// The large body that the newest version names.
    pub(super) fn blob(&self, names: Names) -> Option<Blob> {
        let versions = self.versions();
        newest(&versions).filter(|_| self.is_in_use()).and_then(names)
    }

    /// What is wrong with it, unless somebody is about to change it.
    pub(super) fn flaws(&self, is_locked: impl Fn(u64) -> bool) -> Vec<Flaw> {
        if !self.is_in_use() || self.copies.iter().any(|(_, words)| is_locked(words[1])) {
            return Vec::new();
        }
        let versions = self.versions();
        let newest = newest(&versions);
        // What was taken away is freed on one replica after the other. What never was is in use nowhere.
        let gone = newest.is_some_and(|version| !version.is_present() && version.ts > 0);
        let flaw = |node: u16, what| Flaw { object: self.target.addr, node, what };
        let wrong = self.copies.iter().zip(&versions).filter_map(|((node, words), version)| {
            let has_header = self.is_root() || words[0] == IN_USE;
            match version {
                None => Some(flaw(*node, Wrong::Damaged)),
                Some(version) if version.ts == 0 && !self.is_root() && !gone => {
                    Some(flaw(*node, Wrong::Damaged))
                }
                Some(_) if gone => None,
                Some(_) if !has_header => Some(flaw(*node, Wrong::Damaged)),
                version if version.as_ref() != newest => Some(flaw(*node, Wrong::Different)),
                _ => None,
            }
        });
        wrong.chain(self.bodies.iter().map(|(node, what)| flaw(*node, *what))).collect()
    }
}

/// What was committed is everywhere: the newest is right; the primary's, if there are several.
fn newest(versions: &[Option<Version>]) -> Option<&Version> {
    versions.iter().rev().flatten().max_by_key(|version| version.ts)
}
