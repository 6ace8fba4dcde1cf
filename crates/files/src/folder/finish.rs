//! End of a transfer: compares content with its digests, and moves files into place.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use bstr::{BStr, BString};
use rustix::fs::Mode;
use rustix::io::Errno;

use super::attributes::Attributes;
use super::files::{Files, Identity, Location, MISPLACED};
use super::locked::Widened;
use super::survey::DIFFERS;
use super::{Folder, locked, reuse};
use crate::dir::{self, Cursor};
use crate::error::{At as _, FilesError, Result, refuse};
use crate::hash::file_hashes;
use crate::manifest::Entry;
use crate::name;
use crate::store::{Shared, Written as _};

/// Most files to sync one by one; above, the whole file system is synced at once.
const SYNC_ONE_BY_ONE_MAX: usize = 32;

pub(super) fn compare(folder: &mut Folder, announced: Option<&[u8; 32]>) -> Result<Vec<u32>> {
    let files = folder.files.clone();
    let cannot = |error| files.state.cannot(error);
    if let Some(announced) = announced
        && folder.shared.digests.lock().hash().map_err(cannot)? != *announced
    {
        return Err(FilesError::Sender("the digests are not the ones it announced".into()));
    }
    for file in 0..files.layout.files() {
        let written = matches!(files.location(file), Location::Target | Location::Part);
        if written && !files.layout.entry(file).holes().is_empty() && !files.holes_are_zero(file)? {
            take_over(folder, file)?;
        }
    }
    let mut damaged = Vec::new();
    for index in 0..files.layout.groups {
        folder.shared.go_on()?;
        let group = files.layout.group(index);
        if !folder.hashed.contains(index as usize) {
            folder.hash(&group)?;
        }
        let want = folder.shared.digests.lock().digest(index).map_err(cannot)?;
        if folder.chain.digest(index).map_err(cannot)? != want {
            damaged.push(index);
        } else if !folder.have.contains(index as usize) {
            folder.complete(&group);
        }
    }
    Ok(damaged)
}

pub(super) fn finish(folder: &mut Folder) -> Result<()> {
    let Folder { shared, files, hole_hashes, chain, existing, replaced, .. } = folder;
    let go_on = || shared.go_on();
    let hashes = file_hashes(hole_hashes, &files.layout, go_on, |group| chain.digest(group))
        .map_err(|error| files.state.cannot(error))??;
    find_locked(files, replaced, &mut existing.locked)?;
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

/// Copies a file of which a part must be received again; the old file stays until the end.
fn take_over(folder: &mut Folder, file: u32) -> Result<()> {
    const COPY: &str = "copy";
    let files = folder.files.clone();
    let Some(old) = files.handle(file)? else { return Ok(()) };
    let path = files.target_path(file);
    // The time may differ within rounding, so the file may be another one rather than damaged.
    if folder.existing.doubtful.contains(&file) && !folder.shared.options.overwrite {
        return refuse(&path, DIFFERS);
    }
    const CANNOT: &str = "cannot be copied";
    let entry = files.layout.entry(file);
    let copy = files.state.create(COPY)?;
    copy.set_len(entry.size()).map_err(|error| files.state.cannot(error))?;
    if entry.holes().is_empty() {
        std::io::copy(&mut (&*old).take(entry.size()), &mut (&copy)).at(&path, CANNOT)?;
    } else {
        let mut piece = vec![0; 1 << 20];
        for index in files.layout.groups_of(file) {
            let group = files.layout.group(index);
            let piece = &mut piece[..group.len as usize];
            files.read(&group, 0, piece)?;
            copy.write_all_at(piece, group.file_offset).at(&path, CANNOT)?;
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

pub(super) struct Finish<'a> {
    pub(super) shared: &'a Shared<Folder>,
    pub(super) files: &'a Files,
    pub(super) attributes: Attributes<'a>,
    made: Vec<&'a Entry>,
    pub(super) touched: BTreeSet<&'a BStr>,
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
        let copies = self.make_hard_links(replaced)?;
        self.make_links()?;
        self.files.inner.lock().handles.open.clear();
        self.finish_directories()?;
        self.sync_directories()?;
        self.remark(copies);
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
            let (parent, name) = name::split(&entry.path);
            let there = match cursor.enter(parent)? {
                Some(parent) => dir::stat(parent, name).at(&path, "cannot be looked at")?,
                None => None,
            };
            if there.as_ref().map(Identity::of) != Some(*identity) {
                let what =
                    "was changed while it was compared; receive again when nothing writes to it";
                return refuse(&path, what);
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
                part.sync_all().at(&path, "cannot be synced")?;
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
            const CANNOT: &str = "cannot be made";
            let path = files.root.path(&entry.path);
            let (parent, name) = name::split(&entry.path);
            let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).at(&path, CANNOT)?;
            match rustix::fs::mkdirat(fd, &**name, Mode::RWXU) {
                // Entering fails unless a directory, and not a link, exists.
                Err(Errno::EXIST) => drop(cursor.enter(Some(&entry.path))?),
                made => {
                    made.at(&path, CANNOT)?;
                    self.made.push(entry);
                    self.touched.insert(parent.unwrap_or_default());
                    self.touched.insert(&entry.path);
                    cursor.look_again();
                    // Set now, so that an interrupted run leaves only the time wrong.
                    let fd = cursor.enter(Some(&entry.path))?.ok_or(Errno::NOENT);
                    let mode = entry.mode | 0o700;
                    fd.and_then(|fd| files.abilities.set_mode(fd, mode)).at(&path, CANNOT)?;
                }
            }
        }
        Ok(())
    }

    fn rename(&mut self, replaced: &BTreeMap<u32, Identity>) -> Result<()> {
        let files = self.files;
        let mut cursor = Cursor::new(&files.root);
        for file in 0..files.layout.files() {
            if files.location(file) == Location::Target
                || files.left_out.entries.contains(files.layout.entry_index(file))
            {
                continue;
            }
            let (parent, name) = name::split(&files.layout.entry(file).path);
            let path = files.target_path(file);
            let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).at(&path, MISPLACED)?;
            let part = Files::part_name(file);
            // A damaged file may be replaced, but no file that came since.
            let overwrite = self.shared.options.overwrite
                || match replaced.get(&file) {
                    Some(old) => {
                        let there = dir::stat(fd, name).at(&path, "cannot be looked at")?;
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
            let fd = cursor.enter(Some(&entry.path))?.ok_or(Errno::NOENT);
            self.attributes.give(entry, &path, fd.at(&path, "cannot be opened")?)?;
        }
        Ok(())
    }

    fn sync_directories(&self) -> Result<()> {
        if !self.shared.options.sync {
            return Ok(());
        }
        const CANNOT: &str = "cannot be synced";
        let root = &self.files.root;
        if self.touched.len() > SYNC_ONE_BY_ONE_MAX {
            return rustix::fs::syncfs(&root.fd).at(&root.path, CANNOT);
        }
        let mut cursor = Cursor::new(root);
        for path in &self.touched {
            if let Ok(Some(fd)) = cursor.enter((!path.is_empty()).then_some(*path)) {
                rustix::fs::fsync(fd).at(root.path(path), CANNOT)?;
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
        if locked::is_locked(fd).at(files.root.path(at), "cannot be written to")?
            && !found.iter().any(|known| known == at)
        {
            found.push(at.to_owned());
        }
    }
    Ok(())
}
