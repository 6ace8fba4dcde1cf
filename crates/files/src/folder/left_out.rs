//! Entries of an object that a receiver's file system cannot store.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;

use super::abilities::{Abilities, Reason};
use crate::layout::Layout;
use crate::manifest::Entry;
use crate::name;

/// Most paths that a report lists; further ones are counted.
const SHOWN_MAX: usize = 20;

/// Entries that are left out: their numbers by kind, and the first ones with the reasons.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Indices in the manifest of the entries that are left out.
    pub(crate) entries: FixedBitSet,
    files: u64,
    links: u64,
    directories: u64,
    shown: Vec<String>,
}

impl LeftOut {
    /// Finds the entries that cannot be stored, and all entries below such directories. Of names
    /// that differ only in case, the first one stays.
    pub(super) fn find(layout: &Layout, abilities: &Abilities) -> Self {
        let all = layout.manifest.entries();
        let mut this = Self { entries: FixedBitSet::with_capacity(all.len()), ..Self::default() };
        let mut seen = BTreeSet::new();
        // In the order of a manifest, the entries below a directory follow it.
        let mut below: Option<&[u8]> = None;
        for (index, entry) in all.iter().enumerate() {
            let inside = below.is_some_and(|directory| name::is_within(directory, &entry.path));
            let mut reason = if inside { Some(Reason::Name) } else { abilities.refuses(entry) };
            if reason.is_none()
                && abilities.ignores_case
                && !seen.insert(name::without_case(&entry.path))
            {
                reason = Some(Reason::Case);
            }
            let Some(reason) = reason else { continue };
            this.entries.insert(index);
            this.note(entry, reason, inside);
            if entry.is_directory() && !inside {
                below = Some(&entry.path);
            }
        }
        this
    }

    fn note(&mut self, entry: &Entry, reason: Reason, inside: bool) {
        *match (entry.is_directory(), entry.link_target().is_some()) {
            (true, _) => &mut self.directories,
            (_, true) => &mut self.links,
            _ => &mut self.files,
        } += 1;
        if self.shown.len() < SHOWN_MAX && !inside {
            let path = name::shown(&entry.path);
            let why = match reason {
                Reason::Name => "its file system has no such names",
                Reason::Case => "its file system ignores case, and another has this name",
                Reason::Link => "its file system has no symbolic links",
            };
            self.shown.push(format!("{path} ({why})"));
        }
    }

    pub(super) fn kept<'l>(&'l self, layout: &'l Layout) -> impl Iterator<Item = &'l Entry> {
        let all = layout.manifest.entries().iter().enumerate();
        all.filter(|(index, _)| !self.entries.contains(*index)).map(|(_, entry)| entry)
    }

    /// Returns the first paths with reasons, and a summary: reports to a sender have 120 bytes.
    /// `None` if nothing is left out.
    pub(crate) fn lines(&self) -> Option<(Vec<String>, String)> {
        let all = self.files + self.links + self.directories;
        if all == 0 {
            return None;
        }
        let mut lines = self.shown.clone();
        let more = all.saturating_sub(lines.len() as u64);
        if more > 0 {
            lines.push(format!("{more} more"));
        }
        let count = |count: u64, one: &str, more: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {more}")),
        };
        let parts = [
            count(self.files, "file", "files"),
            count(self.links, "link", "links"),
            count(self.directories, "folder", "folders"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let parts = parts.join(", ");
        Some((lines, format!("left out {parts}, which its file system cannot hold")))
    }
}
