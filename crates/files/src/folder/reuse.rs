//! Reuse of content of earlier versions and of files that have grown; digests verify it at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::IpAddr;

use bstr::{BStr, BString};
use fixedbitset::FixedBitSet;
use rustix::fs::OFlags;

use super::Folder;
use super::files::Files;
use super::state::{Neighbour, StateFolder, read_source};
use crate::dir::{self, Cursor, Root};
use crate::error::Result;
use crate::layout::{GROUP_BYTES, Layout};
use crate::manifest::{Entry, Mtime};
use crate::name;
use crate::store::Shared;

const COPY_BYTES: u64 = 64 << 20;

pub(super) fn from_others(
    shared: &Shared<Folder>,
    (layout, state): (&Layout, &StateFolder),
    missing: &mut Vec<u32>,
    have: &mut FixedBitSet,
) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    for neighbour in state.neighbours() {
        let Some((manifest, complete)) = neighbour.content() else { continue };
        let other = Layout::new(manifest);
        let index = Index::new(&other, &complete);
        let mut rest = Vec::new();
        for file in std::mem::take(missing) {
            shared.go_on()?;
            let taken = index.find(layout.entry(file)).and_then(|found| {
                take(shared, (state, &neighbour), (layout, file), (&other, found), &complete)
            });
            match taken {
                Some(groups) => have.extend(groups),
                None => rest.push(file),
            }
        }
        *missing = rest;
        neighbour.remove_if_empty();
    }
    Ok(())
}

/// Reuses whole groups of shorter existing files for the files that replace them.
pub(super) fn from_targets(
    shared: &Shared<Folder>,
    (layout, root, state): (&Layout, &Root, &StateFolder),
    grown: &[u32],
    have: &mut FixedBitSet,
) -> Result<()> {
    let mut cursor = Cursor::new(root);
    for &file in grown {
        let entry = layout.entry(file);
        let (parent, name) = name::split(&entry.path);
        let Some(parent) = cursor.enter(parent)? else { continue };
        let Ok(old) = dir::open_file(parent, name, OFlags::RDONLY) else { continue };
        let Ok(bytes) = old.metadata().map(|old| beginning(old.len(), entry.size())) else {
            continue;
        };
        if bytes == 0 || !copy(shared, &old, (state, file), entry.size(), bytes)? {
            continue;
        }
        let groups = layout.groups_of(file);
        let count = u32::try_from(bytes / GROUP_BYTES).unwrap_or(0);
        (groups.start..groups.start + count).for_each(|group| have.insert(group as usize));
    }
    Ok(())
}

/// Returns the bytes of shared whole groups. `there` may be larger: programs append at any time.
pub(super) fn beginning(there: u64, wanted: u64) -> u64 {
    let bytes = there.min(wanted);
    bytes - bytes % GROUP_BYTES
}

/// Files of an object by properties that an existing file can share.
struct Index<'l> {
    layout: &'l Layout,
    by_path: BTreeMap<&'l BStr, u32>,
    /// Files by size and time; `None` if ambiguous.
    by_look: BTreeMap<(u64, Mtime), Option<u32>>,
}

impl<'l> Index<'l> {
    fn new(layout: &'l Layout, complete: &FixedBitSet) -> Self {
        let (mut by_path, mut by_look) = (BTreeMap::new(), BTreeMap::new());
        for file in 0..layout.files() {
            if !layout.groups_of(file).any(|group| complete.contains(group as usize)) {
                continue;
            }
            let entry = layout.entry(file);
            by_path.insert(&*entry.path, file);
            let look = by_look.entry((entry.size(), entry.mtime)).or_insert(Some(file));
            if *look != Some(file) {
                *look = None;
            }
        }
        Self { layout, by_path, by_look }
    }

    /// Finds a file of equal path and time, of equal size and time, or shorter at the same path.
    fn find(&self, wanted: &Entry) -> Option<u32> {
        let same = |file: &u32| {
            let found = self.layout.entry(*file);
            (found.size(), found.mtime, found.holes())
                == (wanted.size(), wanted.mtime, wanted.holes())
        };
        let named = self.by_path.get(&*wanted.path).copied();
        let grown = |file: &u32| {
            let found = self.layout.entry(*file);
            found.size() < wanted.size() && found.holes().is_empty() && wanted.holes().is_empty()
        };
        let look = self.by_look.get(&(wanted.size(), wanted.mtime)).copied().flatten();
        named.filter(same).or(look.filter(same)).or(named.filter(grown))
    }
}

/// Moves a file of another object here, or copies it while a receiver uses that object.
fn take(
    shared: &Shared<Folder>,
    (state, neighbour): (&StateFolder, &Neighbour),
    (layout, file): (&Layout, u32),
    (other, found): (&Layout, u32),
    complete: &FixedBitSet,
) -> Option<Vec<usize>> {
    let (theirs, ours) = (other.entry(found), layout.entry(file));
    let part = Files::part_name(found);
    let old = dir::open_file(neighbour.fd(), &part, OFlags::RDWR).ok()?;
    let stat = rustix::fs::fstat(&old).ok()?;
    if !dir::is_file(&stat) || stat.st_nlink != 1 || old.metadata().ok()?.len() != theirs.size() {
        return None;
    }
    let (from, to) = (other.groups_of(found), layout.groups_of(file));
    let same = theirs.size() == ours.size();
    let usable = |group: &u32| {
        complete.contains(*group as usize)
            && (same || u64::from(other.group(*group).len) == GROUP_BYTES)
    };
    let groups: Vec<usize> = from
        .clone()
        .filter(usable)
        .map(|group| (to.start + (group - from.start)) as usize)
        .collect();
    if groups.is_empty() {
        return None;
    }
    if let Some(_lock) = neighbour.lock() {
        old.set_len(ours.size()).ok()?;
        rustix::fs::renameat(neighbour.fd(), &*part, state.fd(), &*Files::part_name(file)).ok()?;
    } else if !copy(shared, &old, (state, file), ours.size(), theirs.size()).ok()? {
        return None;
    }
    Some(groups)
}

/// Copies the beginning of a file into the state folder. Returns false if it cannot be read.
fn copy(
    shared: &Shared<Folder>,
    mut old: &File,
    (state, file): (&StateFolder, u32),
    size: u64,
    bytes: u64,
) -> Result<bool> {
    let name = Files::part_name(file);
    let new = state.create(&name)?;
    let mut at = 0;
    while at < bytes {
        shared.go_on()?;
        let piece = COPY_BYTES.min(bytes - at);
        let from = old.seek(SeekFrom::Start(at));
        match from.and_then(|_| std::io::copy(&mut old.take(piece), &mut (&new))) {
            Ok(count) if count == piece => at += piece,
            _ => {
                state.remove_file(&name)?;
                return Ok(false);
            }
        }
    }
    new.set_len(size).map_err(|error| state.cannot(error))?;
    Ok(true)
}

/// Removes idle leftovers of earlier versions: objects from the same host with equal title and
/// outermost names. Different hosts may share names, so a leftover of an unknown host stays.
pub(super) fn remove_superseded(layout: &Layout, state: &StateFolder, source: Option<IpAddr>) {
    if source.is_none() {
        return;
    }
    let roots = |layout: &Layout| -> Vec<BString> {
        let entries = layout.manifest.entries().iter();
        let outermost = entries.filter(|entry| name::parent(&entry.path).is_none());
        outermost.map(|entry| (*entry.path).to_owned()).collect()
    };
    for neighbour in state.neighbours().filter(|neighbour| read_source(neighbour.fd()) == source) {
        let Some((manifest, _)) = neighbour.content() else { continue };
        let other = Layout::new(manifest);
        if other.manifest.name() == layout.manifest.name() && roots(&other) == roots(layout) {
            neighbour.remove();
        }
    }
}
