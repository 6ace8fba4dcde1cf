//! Walk through directories of a sender, which creates the entries of a manifest.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::{BStr, BString, ByteSlice as _};
use faircast_base::is_format;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::{Access, AtFlags, CWD, OFlags, SeekFrom, accessat};
use rustix::io::Errno;

use super::scan::{Links, ScanOptions};
use super::skipped::{EXAMPLES_MAX, Examples, Skip, Skips, listed};
use super::{changed, identity, mtime};
use crate::error::{At as _, FilesError, Result};
use crate::layout::{GROUP_BYTES, groups_in};
use crate::manifest::{
    ENTRIES_MAX, Entry, HOLES_MAX, Hole, Kind, ManifestError, Owner, Xattr, boxed, travels,
};
use crate::name::{self, NameError};

const UNREADABLE_SHOWN: usize = 20;

pub(super) struct ScannedEntry {
    pub(super) entry: Entry,
    pub(super) identity: (u64, u64),
    has_links: bool,
}

impl ScannedEntry {
    /// Turns all names of a file but the first into hard links. `all` is in manifest order.
    pub(super) fn join_names(all: &mut [Self]) {
        let mut first: BTreeMap<(u64, u64), BString> = BTreeMap::new();
        for Self { entry, identity, .. } in all.iter_mut().filter(|found| found.has_links) {
            match first.get(identity) {
                Some(to) => *entry = Entry::hard_link(&*entry.path, to),
                None => drop(first.insert(*identity, (*entry.path).to_owned())),
            }
        }
    }
}

pub(super) struct Walk<'a> {
    pub(super) found: Vec<ScannedEntry>,
    pub(super) skips: Skips,
    pub(super) special_bits: Examples,
    unreadable: Examples,
    options: &'a ScanOptions,
    exclude: Gitignore,
    owners: BTreeMap<(u32, u32), Arc<Owner>>,
    holes: u64,
}

/// Device and inode of each directory above, to detect loops of followed links.
type Trail = Vec<(u64, u64)>;

/// Path on this host, path in the object, and trail of a directory whose entries are to be taken.
type OpenDirectory = (PathBuf, BString, Trail);

impl<'a> Walk<'a> {
    pub(super) fn new(options: &'a ScanOptions) -> Result<Self> {
        let mut patterns = GitignoreBuilder::new("");
        let wrong = |text: &str, error: ignore::Error| {
            FilesError::Unwanted(format!(
                "the pattern {text:?} cannot be used: {error}; expected one as in a .gitignore, such \
                 as '*.tmp' or /photos/raw"
            ))
        };
        for text in &options.exclude {
            patterns.add_line(None, text).map_err(|error| wrong(text, error))?;
        }
        let exclude = patterns.build().map_err(|error| wrong("--exclude", error))?;
        Ok(Self {
            found: Vec::new(),
            skips: Skips::default(),
            special_bits: Examples::default(),
            unreadable: Examples::default(),
            options,
            exclude,
            owners: BTreeMap::new(),
            holes: 0,
        })
    }

    pub(super) fn check(&self) -> Result<()> {
        let Examples(count, paths) = &self.unreadable;
        if *count == 0 {
            return Ok(());
        }
        let paths = listed(paths, *count);
        Err(FilesError::Unwanted(format!(
            "cannot be read: {paths}; look at permissions and owners, or leave them out with --exclude"
        )))
    }

    fn is_bad(&self, path: &BStr, metadata: &Metadata) -> bool {
        let Err(wrong) = name::check_path(path) else { return false };
        let state = wrong == NameError::State && metadata.is_dir();
        !state && !self.is_excluded(path, metadata.is_dir())
    }

    /// Adds a file, or a directory with its content. A stack replaces recursion: trees may be deep.
    pub(super) fn root(&mut self, at: PathBuf, path: BString, metadata: &Metadata) -> Result<()> {
        let mut open = Vec::new();
        self.take(at, path, metadata, None, &mut open)?;
        while let Some((at, path, trail)) = open.pop() {
            const CANNOT: &str = "cannot be read";
            let all = match fs::read_dir(&at) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.unreadable.add(UNREADABLE_SHOWN, || at);
                    continue;
                }
                all => all.at(&at, CANNOT)?,
            };
            for found in all {
                let found = found.at(&at, CANNOT)?;
                let at = found.path();
                let name = found.file_name();
                let metadata = fs::symlink_metadata(&at).at(&at, CANNOT)?;
                let path = BString::from([&**path, b"/", name.as_bytes()].concat());
                match self.is_bad(path.as_bstr(), &metadata) {
                    true => self.skips.add(Skip::BadName, || at),
                    false => self.take(at, path, &metadata, Some(&trail), &mut open)?,
                }
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        at: PathBuf,
        path: BString,
        metadata: &Metadata,
        above: Option<&Trail>,
        open: &mut Vec<OpenDirectory>,
    ) -> Result<()> {
        let followed = match metadata.is_symlink() {
            true => match self.links(&at, path.as_bstr(), metadata, above)? {
                Some(followed) => followed,
                None => return Ok(()),
            },
            false => metadata.clone(),
        };
        let metadata = &followed;
        if self.is_excluded(path.as_bstr(), metadata.is_dir()) {
            self.skips.add(Skip::Excluded, || at);
        } else if metadata.is_dir() {
            let (_, name) = name::split(&path);
            // A path given by the user is refused because of its name instead.
            if above.is_some() && name.eq_ignore_ascii_case(name::STATE_FOLDER.as_bytes()) {
                self.skips.add(Skip::State, || at);
                return Ok(());
            }
            self.push(&at, path.as_bstr(), Kind::Directory, metadata)?;
            let mut trail = Trail::new();
            if self.options.links == Links::Follow {
                trail.extend(above.into_iter().flatten());
                trail.push(identity(metadata));
            }
            open.push((at, path, trail));
        } else if metadata.is_file() {
            let access = accessat(CWD, &at, Access::READ_OK, AtFlags::EACCESS);
            if matches!(access, Err(Errno::ACCESS | Errno::PERM)) {
                self.unreadable.add(UNREADABLE_SHOWN, || at);
                return Ok(());
            }
            let holes = self.holes(&at, metadata)?;
            self.push(&at, path.as_bstr(), Kind::File { size: metadata.len(), holes }, metadata)?;
        } else {
            let socket = metadata.file_type().is_socket();
            self.skips.add(if socket { Skip::Socket } else { Skip::Special }, || at);
        }
        Ok(())
    }

    fn links(
        &mut self,
        at: &Path,
        path: &BStr,
        metadata: &Metadata,
        above: Option<&Trail>,
    ) -> Result<Option<Metadata>> {
        let skip = match self.options.links {
            _ if self.options.links != Links::Follow && self.is_excluded(path, false) => {
                Skip::Excluded
            }
            Links::Skip => Skip::Unwanted,
            Links::Keep => {
                let target = fs::read_link(at).at(at, "cannot be read")?;
                // Links that lead outside are found once all entries are known.
                let kind = Kind::Link { target: boxed(target.as_os_str().as_bytes()) };
                self.push(at, path, kind, metadata)?;
                return Ok(None);
            }
            Links::Follow => match fs::metadata(at) {
                Ok(followed) => {
                    let loops = above.is_some_and(|above| above.contains(&identity(&followed)));
                    if !(followed.is_dir() && loops) {
                        return Ok(Some(followed));
                    }
                    Skip::Loop
                }
                Err(_) => Skip::Dangling,
            },
        };
        self.skips.add(skip, || at.to_path_buf());
        Ok(None)
    }

    fn push(&mut self, at: &Path, path: &BStr, kind: Kind, metadata: &Metadata) -> Result<()> {
        if self.found.len() == ENTRIES_MAX as usize {
            return Err(ManifestError::Entries(u64::from(ENTRIES_MAX) + 1).into());
        }
        // Checked now, so that the walk of a tree that is too deep stops.
        name::check_path(path)
            .map_err(|what| ManifestError::Name { path: name::shown(path).into(), what })?;
        let is_link = matches!(kind, Kind::Link { .. });
        // The mode of a link has no meaning.
        if !is_link && metadata.mode() & 0o7000 != 0 {
            self.special_bits.add(EXAMPLES_MAX, || at.to_path_buf());
        }
        let mode = if is_link { 0 } else { metadata.mode() & 0o777 };
        let mode = u16::try_from(mode).expect("nine bits");
        let mut entry = Entry::new(path, kind, mode, mtime(metadata));
        if self.options.owner {
            let key = (metadata.uid(), metadata.gid());
            let owner = self.owners.entry(key).or_insert_with(|| owner(key).into());
            entry.owner = Some(owner.clone());
        }
        if self.options.xattrs && !is_link {
            entry.xattrs = xattrs(at)?;
        }
        let has_links = metadata.nlink() > 1 && entry.is_file();
        self.found.push(ScannedEntry { entry, identity: identity(metadata), has_links });
        Ok(())
    }

    /// Finds the holes of a file. Only files with fewer bytes on disk than in length are searched.
    fn holes(&mut self, at: &Path, metadata: &Metadata) -> Result<Box<[Hole]>> {
        let size = metadata.len();
        if size < GROUP_BYTES || metadata.blocks().saturating_mul(512) >= size {
            return Ok(Box::default());
        }
        let most = usize::try_from(HOLES_MAX - self.holes).unwrap_or(0);
        let holes = find_holes(at, metadata, most)?;
        self.holes += holes.len() as u64;
        Ok(holes)
    }

    fn is_excluded(&self, path: &BStr, is_dir: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        !self.options.exclude.is_empty() && self.exclude.matched(path, is_dir).is_ignore()
    }
}

fn owner((uid, gid): (u32, u32)) -> Owner {
    let name = |name: String| if name.contains(is_format) { "".into() } else { name.into() };
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    Owner {
        uid,
        gid,
        user: user.map_or("".into(), |user| name(user.name)),
        group: group.map_or("".into(), |group| name(group.name)),
    }
}

fn xattrs(path: &Path) -> Result<Box<[Xattr]>> {
    const CANNOT: &str = "its extended attributes cannot be read";
    let mut names = Vec::with_capacity(XATTR_BYTES_MAX);
    match rustix::fs::listxattr(path, rustix::buffer::spare_capacity(&mut names)) {
        Err(Errno::NOTSUP) => return Ok(Box::default()),
        listed => drop(listed.at(path, CANNOT)?),
    }
    let mut xattrs = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        let Some(name) = std::str::from_utf8(name).ok().filter(|name| travels(name)) else {
            continue;
        };
        let mut value = Vec::with_capacity(XATTR_BYTES_MAX);
        match rustix::fs::getxattr(path, name, rustix::buffer::spare_capacity(&mut value)) {
            Err(Errno::NODATA) => {}
            read => {
                read.at(path, CANNOT)?;
                xattrs.push(Xattr { name: name.into(), value: value.into() });
            }
        }
    }
    xattrs.sort_by(|a: &Xattr, b| a.name.cmp(&b.name));
    Ok(xattrs.into())
}

/// Limit of Linux for all names, and for a value.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Finds up to `most` holes of whole groups in a file; later holes count as content.
fn find_holes(path: &Path, scanned: &Metadata, most: usize) -> Result<Box<[Hole]>> {
    const CANNOT: &str = "cannot be read";
    // The path may be a pipe now, which must not block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).at(path, CANNOT)?;
    let holes = holes_in(&file, scanned.len(), most).at(path, CANNOT)?;
    // The check comes last, so that the holes are of the scanned file.
    let now = file.metadata().at(path, CANNOT)?;
    let same = identity(&now) == identity(scanned)
        && now.len() == scanned.len()
        && mtime(&now) == mtime(scanned);
    if same { Ok(holes) } else { Err(changed(path)) }
}

fn holes_in(file: &File, size: u64, most: usize) -> Result<Box<[Hole]>, Errno> {
    let mut holes = Vec::new();
    let mut at = 0;
    while at < size && holes.len() < most {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(size),
            Err(Errno::NXIO) => size,
            Err(Errno::INVAL | Errno::NOTSUP) => return Ok(Box::default()),
            Err(error) => return Err(error),
        };
        let first = groups_in(at);
        let end = match data == size {
            true => groups_in(size),
            false => u32::try_from(data / GROUP_BYTES).expect("less than the groups of a file"),
        };
        if first < end {
            holes.push(Hole { first, groups: end - first });
        }
        if data == size {
            break;
        }
        at = rustix::fs::seek(file, SeekFrom::Hole(data))?;
    }
    Ok(holes.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn holes_are_found_where_nothing_was_written(
            size in prop_oneof![0..9u64, 0..9 * GROUP_BYTES],
            writes in prop::collection::vec((0..9 * GROUP_BYTES, 1..9000usize), 0..5),
        ) {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("f");
            let file = File::create(&path).unwrap();
            file.set_len(size).unwrap();
            let mut written = vec![false; groups_in(size) as usize];
            for (at, len) in writes {
                let len = len.min(size.saturating_sub(at) as usize);
                file.write_all_at(&vec![1; len], at).unwrap();
                if len > 0 {
                    let last = (at + len as u64 - 1) / GROUP_BYTES;
                    written[(at / GROUP_BYTES) as usize..=last as usize].fill(true);
                }
            }
            file.sync_all().unwrap();
            let metadata = file.metadata().unwrap();
            let holes = find_holes(&path, &metadata, 99).unwrap();
            let mut found = vec![false; written.len()];
            for hole in &holes {
                found[hole.first as usize..hole.end() as usize].fill(true);
            }
            let unwritten: Vec<bool> = written.iter().map(|written| !written).collect();
            prop_assert_eq!(found, unwritten);
            prop_assert!(find_holes(&path, &metadata, 1).unwrap().len() <= 1);
        }
    }

    #[test]
    fn a_file_that_was_changed_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let file = File::create(&path).unwrap();
        let scanned = file.metadata().unwrap();
        file.set_len(9).unwrap();
        assert!(find_holes(&path, &scanned, 9).unwrap_err().to_string().contains("changed"));
    }
}
