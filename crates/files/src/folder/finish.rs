//! End of a transfer: compares content with its digests, and moves files into place.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use bstr::{BStr, BString};
use rustix::fs::Mode;
use rustix::io::Errno;

use super::attributes::Attributes;
use super::files::{Files, Identity, Location};
use super::locked::Widened;
use super::survey::DIFFERS;
use super::{Folder, hard_links, links, locked, reuse};
use crate::dir::{self, Cursor};
use crate::error::{FilesError, Result};
use crate::hole_hashes::file_hashes;
use crate::manifest::Entry;
use crate::name;
use crate::store::{Shared, Written as _};

/// Most files to sync one by one; above, the whole file system is synced at once.
const SYNC_ONE_BY_ONE_MAX: usize = 32;

pub(super) fn compare(folder: &mut Folder, announced: Option<&[u8; 32]>) -> Result<Vec<u32>> {
    check_digests(folder, announced)?;
    check_holes(folder)?;
    let files = folder.files.clone();
    let cannot = |error| files.state.cannot(error);
    let mut damaged = Vec::new();
    for index in 0..files.layout.groups() {
        folder.shared.go_on()?;
        let group = files.layout.group(index);
        if !folder.hashed.contains(index as usize) {
            folder.hash(&group)?;
        }
        let want = folder.shared.digests().digest(index).map_err(cannot)?;
        if folder.chain.digest(index).map_err(cannot)? != want {
            damaged.push(index);
        } else if !folder.have.contains(index as usize) {
            folder.complete(&group);
        }
    }
    Ok(damaged)
}

pub(super) fn finish(folder: &mut Folder) -> Result<()> {
    let hashes = hash_files(folder)?;
    find_locked(&folder.files, &folder.replaced, &mut folder.existing.locked)?;
    let Folder { shared, files, existing, replaced, .. } = folder;
    let attributes = Attributes::new(&shared.options, &files.abilities);
    let widened = Widened::widen(&files.root, &files.state, &existing.locked)?;
    let put = Finish { shared, files, attributes, made: Vec::new(), touched: BTreeSet::new() }
        .run(&existing.targets, replaced);
    let restored = widened.restore(&files.root, files.state.fd());
    put.and(restored)?;
    reuse::remove_superseded(&files.layout, &files.state, shared.options.source);
    files.state.remove()?;
    shared.counters.file_hashes.get_or_init(|| hashes);
    Ok(())
}

pub(super) fn reopen(folder: &mut Folder, damaged: &[u32]) -> Result<()> {
    let files = folder.files.clone();
    for index in damaged {
        folder.have.set(*index as usize, false);
        folder.hashed.set(*index as usize, false);
    }
    for file in damaged.iter().map(|index| files.layout.group(*index).file) {
        match files.location(file) {
            Location::Target => take_over(folder, file)?,
            _ => files.mark_written(file),
        }
    }
    Ok(())
}

fn check_digests(folder: &Folder, announced: Option<&[u8; 32]>) -> Result<()> {
    let Some(announced) = announced else { return Ok(()) };
    let hash = folder.shared.digests().hash();
    match hash.map_err(|error| folder.files.state.cannot(error))? == *announced {
        true => Ok(()),
        false => Err(FilesError::Sender("the digests are not the ones it announced".into())),
    }
}

fn check_holes(folder: &mut Folder) -> Result<()> {
    let files = folder.files.clone();
    for file in 0..files.layout.files() {
        let written = matches!(files.location(file), Location::Target | Location::Part);
        if written && !files.layout.entry(file).holes().is_empty() && !files.holes_are_zero(file)? {
            take_over(folder, file)?;
        }
    }
    Ok(())
}

fn hash_files(folder: &mut Folder) -> Result<Vec<Option<[u8; 32]>>> {
    let Folder { shared, files, hole_hashes, chain, .. } = folder;
    let go_on = || shared.go_on();
    file_hashes(hole_hashes, &files.layout, go_on, |group| chain.digest(group))
        .map_err(|error| files.state.cannot(error))?
}

/// Copies a file of which a part must be received again; the old file stays until the end.
fn take_over(folder: &mut Folder, file: u32) -> Result<()> {
    const COPY: &str = "copy";
    let files = folder.files.clone();
    let Some(old) = files.handle(file)? else { return Ok(()) };
    let path = files.target_path(file);
    // The time may differ within rounding, so the file may be another one rather than damaged.
    if folder.existing.doubtful.contains(&file) && !folder.shared.options.overwrite {
        return Err(FilesError::refused(&path, DIFFERS));
    }
    let cannot = |error| FilesError::io(&path, "cannot be copied", error);
    let entry = files.layout.entry(file);
    let copy = files.state.create(COPY)?;
    copy.set_len(entry.size()).map_err(|error| files.state.cannot(error))?;
    if entry.holes().is_empty() {
        std::io::copy(&mut (&*old).take(entry.size()), &mut (&copy)).map_err(cannot)?;
    } else {
        let mut piece = vec![0; 1 << 20];
        for index in files.layout.groups_of(file) {
            let group = files.layout.group(index);
            let piece = &mut piece[..group.len as usize];
            files.read(&group, 0, piece)?;
            copy.write_all_at(piece, group.file_offset).map_err(cannot)?;
        }
    }
    drop(copy);
    files.state.rename(COPY, &Files::part_name(file))?;
    files.set_location(file, Location::Part);
    let targets = &mut folder.existing.targets;
    if let Ok(at) = targets.binary_search_by_key(&file, |(of, _)| *of) {
        let (_, identity) = targets.remove(at);
        folder.replaced.insert(file, identity);
    }
    for index in files.layout.groups_of(file) {
        // The copy is hashed again: the file may have changed meanwhile.
        folder.hashed.set(index as usize, false);
        if folder.have.contains(index as usize) {
            folder.complete(&files.layout.group(index));
        }
    }
    folder.cursor = 0;
    Ok(())
}

/// Last step: attributes, renames, directories and links.
struct Finish<'a> {
    shared: &'a Shared<Folder>,
    files: &'a Files,
    attributes: Attributes<'a>,
    /// Directories that were made, in order of their paths.
    made: Vec<&'a Entry>,
    /// Directories with changed entries, to be synced.
    touched: BTreeSet<&'a BStr>,
}

impl Finish<'_> {
    fn run(
        mut self,
        targets: &[(u32, Identity)],
        replaced: &BTreeMap<u32, Identity>,
    ) -> Result<()> {
        self.check_unchanged(targets)?;
        self.prepare()?;
        self.make_directories()?;
        self.rename(replaced)?;
        let options = &self.shared.options;
        let hard = hard_links::make(options, self.files, &mut self.attributes, replaced)?;
        self.touched.extend(hard.touched);
        self.touched.extend(links::make(options, self.files, &mut self.attributes)?);
        self.files.close();
        self.finish_directories()?;
        self.sync_directories()?;
        self.remark(hard.copies);
        Ok(())
    }

    fn remark(&self, copies: u64) {
        let mut remarks = Vec::new();
        if copies > 0 {
            let are = if copies == 1 { "1 hard link is a copy" } else { "hard links are copies" };
            let count = if copies == 1 { String::new() } else { format!("{copies} ") };
            let reason = match self.files.abilities.hard_links {
                true => {
                    "no link could be made (fs.protected_hardlinks, or too many links of a file)"
                }
                false => "the file system of the folder has no hard links",
            };
            remarks.push(format!("{count}{are}: {reason}"));
        }
        let kept = self.files.left_out.kept(&self.files.layout);
        let kept = kept.filter(|it| it.is_directory() || it.has_content());
        let lost = kept.filter(|it| !self.files.abilities.keeps_mode(it.mode)).count();
        if lost > 0 {
            let are = if lost == 1 { "file or folder has" } else { "files and folders have" };
            remarks.push(format!(
                "{lost} {are} another mode than at the sender: the file system keeps no such modes"
            ));
        }
        self.shared.counters.remarks.get_or_init(|| remarks);
    }

    fn check_unchanged(&mut self, targets: &[(u32, Identity)]) -> Result<()> {
        let mut cursor = Cursor::new(&self.files.root);
        for (file, identity) in targets {
            let entry = self.files.layout.entry(*file);
            let path = self.files.target_path(*file);
            let cannot = |error| FilesError::io(&path, "cannot be looked at", error);
            let (parent, name) = name::split(&entry.path);
            let parent = cursor.enter(parent)?;
            let there = match parent {
                Some(parent) => dir::stat(parent, name).map_err(cannot)?,
                None => None,
            };
            if there.as_ref().map(Identity::of) != Some(*identity) {
                return Err(FilesError::refused(
                    &path,
                    "was changed while it was compared; receive again when nothing writes to it",
                ));
            }
            if let Some(there) = there.filter(|there| self.attributes.lacks(entry, there).is_some())
                && let Some(handle) = self.files.handle(*file)?
            {
                self.attributes.renew(entry, &path, handle.as_fd(), &there)?;
            }
            self.shared.counters.update(|counts| counts.files_done += 1);
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<()> {
        let files = self.files;
        let own = |file: &u32| files.location(*file) != Location::Target;
        let count = (0..files.layout.files()).filter(own).count();
        let one_by_one = count <= SYNC_ONE_BY_ONE_MAX;
        for file in (0..files.layout.files()).filter(own) {
            self.shared.go_on()?;
            let entry = files.layout.entry(file);
            let part = files.part(file)?;
            let path = files.target_path(file);
            self.attributes.give(entry, &path, part.as_fd())?;
            if self.shared.options.sync && one_by_one {
                part.sync_all()
                    .map_err(|error| FilesError::io(&path, "cannot be synced", error))?;
            }
        }
        if self.shared.options.sync && !one_by_one {
            rustix::fs::syncfs(files.state.fd()).map_err(|error| files.state.cannot(error))?;
        }
        Ok(())
    }

    fn make_directories(&mut self) -> Result<()> {
        let files = self.files;
        let mut cursor = Cursor::new(&files.root);
        for entry in files.left_out.kept(&files.layout).filter(|entry| entry.is_directory()) {
            let path = files.root.path(&entry.path);
            let cannot = |error: Errno| FilesError::io(&path, "cannot be made", error);
            let (parent, name) = name::split(&entry.path);
            let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).map_err(cannot)?;
            match rustix::fs::mkdirat(fd, &**name, Mode::RWXU) {
                Ok(()) => {
                    self.made.push(entry);
                    self.touched.insert(parent.unwrap_or_default());
                    self.touched.insert(&entry.path);
                    cursor.look_again();
                    // Set now, so that an interrupted run leaves only the time wrong.
                    let made = cursor.enter(Some(&entry.path))?.ok_or(Errno::NOENT);
                    let made = made.map_err(cannot)?;
                    files.abilities.set_mode(made, entry.mode | 0o700).map_err(cannot)?;
                }
                Err(Errno::EXIST) => {
                    // Entering fails unless a directory, and not a link, exists.
                    cursor.enter(Some(&entry.path))?;
                }
                Err(error) => return Err(cannot(error)),
            }
        }
        Ok(())
    }

    fn rename(&mut self, replaced: &BTreeMap<u32, Identity>) -> Result<()> {
        let files = self.files;
        let mut cursor = Cursor::new(&files.root);
        for file in 0..files.layout.files() {
            if files.location(file) == Location::Target || files.is_left_out(file) {
                continue;
            }
            let (parent, name) = name::split(&files.layout.entry(file).path);
            let path = files.target_path(file);
            let cannot =
                |error: Errno| FilesError::io(&path, "cannot be put into its place", error);
            let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).map_err(cannot)?;
            let part = Files::part_name(file);
            let overwrite = self.shared.options.overwrite
                || match replaced.get(&file) {
                    // A damaged file may be replaced, but no file that came since.
                    Some(old) => {
                        let there = dir::stat(fd, name).map_err(cannot)?;
                        there.as_ref().map(Identity::of) == Some(*old)
                    }
                    None => false,
                };
            files.put_into_place(&part, &path, fd, name, overwrite)?;
            files.set_location(file, Location::Done);
            self.touched.insert(parent.unwrap_or_default());
            self.shared.counters.update(|counts| counts.files_done += 1);
        }
        Ok(())
    }

    fn finish_directories(&mut self) -> Result<()> {
        let mut cursor = Cursor::new(&self.files.root);
        for entry in self.made.iter().rev() {
            let path = self.files.root.path(&entry.path);
            let cannot = |error: Errno| FilesError::io(&path, "cannot be opened", error);
            let fd = cursor.enter(Some(&entry.path))?.ok_or(Errno::NOENT).map_err(cannot)?;
            self.attributes.give(entry, &path, fd)?;
        }
        Ok(())
    }

    fn sync_directories(&self) -> Result<()> {
        if !self.shared.options.sync {
            return Ok(());
        }
        let root = &self.files.root;
        let cannot = |path: &BStr| {
            let path = root.path(path);
            move |error: Errno| FilesError::io(&path, "cannot be synced", error)
        };
        if self.touched.len() > SYNC_ONE_BY_ONE_MAX {
            return rustix::fs::syncfs(root.fd()).map_err(cannot("".into()));
        }
        let mut cursor = Cursor::new(root);
        for path in &self.touched {
            let fd = cursor.enter((!path.is_empty()).then_some(*path));
            if let Ok(Some(fd)) = fd {
                rustix::fs::fsync(fd).map_err(cannot(path))?;
            }
        }
        Ok(())
    }
}

fn find_locked(
    files: &Files,
    replaced: &BTreeMap<u32, Identity>,
    found: &mut Vec<BString>,
) -> Result<()> {
    if replaced.is_empty() {
        return Ok(());
    }
    let entry = |file: &u32| files.layout.entry(*file);
    let paths: BTreeSet<&BStr> = replaced.keys().map(|file| &*entry(file).path).collect();
    let mut cursor = Cursor::new(&files.root);
    for entry in files.left_out.kept(&files.layout) {
        let of = entry.hard_link_to().unwrap_or(&entry.path);
        if !paths.contains(of) {
            continue;
        }
        let parent = name::parent(&entry.path);
        let Some(fd) = cursor.enter(parent)? else { continue };
        let at = parent.unwrap_or_default();
        let path = files.root.path(at);
        if locked::is_locked(fd)
            .map_err(|error| FilesError::io(&path, "cannot be written to", error))?
            && !found.iter().any(|known| known == at)
        {
            found.push(at.to_owned());
        }
    }
    Ok(())
}
