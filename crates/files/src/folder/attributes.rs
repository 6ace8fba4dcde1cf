//! Owners, extended attributes, modes and times of received entries.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use nix::unistd::{Group, User};
use rustix::fs::{AtFlags, Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use super::StoreOptions;
use super::abilities::Abilities;
use super::state::{StateFolder, TRIAL};
use crate::dir;
use crate::error::{At as _, Result, refuse};
use crate::layout::Layout;
use crate::manifest::{Entry, Owner, Xattr, is_acl};
use crate::name;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// Mode, owner or access control list, which only the file's owner can change.
    OfOwner,
    /// Other extended attributes, which need write permission.
    Xattrs,
}

pub(super) struct Attributes<'a> {
    options: &'a StoreOptions,
    abilities: &'a Abilities,
    owners: BTreeMap<&'a Owner, (Uid, Gid)>,
}

impl<'a> Attributes<'a> {
    pub(super) const fn new(options: &'a StoreOptions, abilities: &'a Abilities) -> Self {
        Self { options, abilities, owners: BTreeMap::new() }
    }

    pub(super) fn give(&mut self, entry: &'a Entry, path: &Path, fd: BorrowedFd<'_>) -> Result<()> {
        const CANNOT: &str = "cannot get its mode and time";
        // `chown` first, since it clears mode bits; then what a mode may forbid to set.
        self.give_owner(entry, path, fd)?;
        self.give_xattrs(entry, path, fd, false)?;
        self.abilities.set_mode(fd, entry.mode).at(path, CANNOT)?;
        self.give_xattrs(entry, path, fd, true)?;
        self.abilities.set_mtime(fd, entry.mtime).at(path, CANNOT)
    }

    /// Returns the changes that an existing file may need; its time is known to match.
    pub(super) fn lacks(&mut self, entry: &'a Entry, there: &Stat) -> Option<Lack> {
        let owner = self.owner(entry).map(|(uid, gid)| (uid.as_raw(), gid.as_raw()));
        let mut xattrs = entry.xattrs.iter().filter(|_| self.options.xattrs);
        let of_owner = owner.is_some_and(|owner| owner != (there.st_uid, there.st_gid))
            || xattrs.clone().any(|xattr| is_acl(&xattr.name))
            || self.lacks_mode(entry, there);
        if of_owner { Some(Lack::OfOwner) } else { xattrs.next().map(|_| Lack::Xattrs) }
    }

    fn lacks_mode(&self, entry: &Entry, there: &Stat) -> bool {
        mode_of(there) != entry.mode && self.abilities.keeps_mode(entry.mode)
    }

    pub(super) fn renew(
        &mut self,
        entry: &'a Entry,
        path: &Path,
        fd: BorrowedFd<'_>,
        there: &Stat,
    ) -> Result<()> {
        const CANNOT: &str = "cannot get its mode";
        self.give_owner(entry, path, fd)?;
        let mode = mode_of(there);
        // Attributes in `user.` need write permission, which a mode may deny even the owner.
        let narrow = mode & 0o200 == 0 && self.options.xattrs && !has_xattrs(entry, fd);
        if narrow {
            self.abilities.set_mode(fd, mode | 0o200).at(path, CANNOT)?;
        }
        let given = self.give_xattrs(entry, path, fd, false);
        if self.lacks_mode(entry, there) {
            self.abilities.set_mode(fd, entry.mode).at(path, CANNOT)?;
        } else if narrow {
            self.abilities.set_mode(fd, mode).at(path, CANNOT)?;
        }
        given?;
        self.give_xattrs(entry, path, fd, true)
    }

    pub(super) fn give_link(
        &mut self,
        entry: &'a Entry,
        path: &Path,
        parent: BorrowedFd<'_>,
        name: &str,
    ) -> Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if let Some((uid, gid)) = self.owner(entry) {
            rustix::fs::chownat(parent, name, Some(uid), Some(gid), flags)
                .at(path, "cannot get its owner")?;
        }
        rustix::fs::utimensat(parent, name, &dir::times(entry.mtime), flags)
            .at(path, "cannot get its time")
    }

    fn give_owner(&mut self, entry: &'a Entry, path: &Path, fd: BorrowedFd<'_>) -> Result<()> {
        let Some((uid, gid)) = self.owner(entry) else { return Ok(()) };
        rustix::fs::fchown(fd, Some(uid), Some(gid)).at(path, "cannot get its owner")
    }

    fn give_xattrs(
        &self,
        entry: &Entry,
        path: &Path,
        fd: BorrowedFd<'_>,
        acls: bool,
    ) -> Result<()> {
        let wanted = entry.xattrs.iter().filter(|_| self.options.xattrs);
        for xattr in wanted.filter(|xattr| is_acl(&xattr.name) == acls) {
            // An unwritable file of another user may have the attribute already.
            if !has(fd, xattr) {
                rustix::fs::fsetxattr(fd, &*xattr.name, &xattr.value, XattrFlags::empty())
                    .at(path, "cannot get its extended attributes")?;
            }
        }
        Ok(())
    }

    fn owner(&mut self, entry: &'a Entry) -> Option<(Uid, Gid)> {
        let owner = entry.owner.as_deref().filter(|_| self.options.owner)?;
        Some(*self.owners.entry(owner).or_insert_with(|| local_ids(owner)))
    }
}

fn mode_of(there: &Stat) -> u16 {
    u16::try_from(Mode::from_raw_mode(there.st_mode).bits() & 0o777).expect("nine bits")
}

fn has(fd: BorrowedFd<'_>, xattr: &Xattr) -> bool {
    let mut value = vec![0; xattr.value.len() + 1];
    let held = rustix::fs::fgetxattr(fd, &*xattr.name, &mut value[..]);
    held.is_ok_and(|len| value[..len] == *xattr.value)
}

pub(super) fn has_xattrs(entry: &Entry, fd: BorrowedFd<'_>) -> bool {
    entry.xattrs.iter().filter(|xattr| !is_acl(&xattr.name)).all(|xattr| has(fd, xattr))
}

/// Returns the local ids of an owner: by name, or else by number. Root stays root.
fn local_ids(owner: &Owner) -> (Uid, Gid) {
    let user = Some(&*owner.user).filter(|name| !name.is_empty() && owner.uid != 0);
    let group = Some(&*owner.group).filter(|name| !name.is_empty() && owner.gid != 0);
    let user = user.and_then(|name| User::from_name(name).ok().flatten());
    let group = group.and_then(|name| Group::from_name(name).ok().flatten());
    (
        Uid::from_raw(user.map_or(owner.uid, |user| user.uid.as_raw())),
        Gid::from_raw(group.map_or(owner.gid, |group| group.gid.as_raw())),
    )
}

pub(super) fn check<'a>(
    options: &StoreOptions,
    layout: &'a Layout,
    state: &StateFolder,
    abilities: &Abilities,
) -> Result<()> {
    const PROBE: &str = "probe";
    let entries = layout.manifest.entries();
    let mut attributes = Attributes::new(options, abilities);
    for entry in entries {
        attributes.owner(entry);
    }
    let xattrs = entries.iter().filter(|entry| options.xattrs && !entry.xattrs.is_empty());
    if attributes.owners.is_empty() && xattrs.clone().next().is_none() {
        return Ok(());
    }
    let probe = state.create(PROBE)?;
    for (owner, (uid, gid)) in &attributes.owners {
        let (user, group) = (uid.as_raw(), gid.as_raw());
        let given = rustix::fs::fchown(&probe, Some(*uid), Some(*gid));
        let held = given.and_then(|()| rustix::fs::fstat(&probe));
        // Some file systems accept an owner and forget it.
        let kept = held.and_then(|held| match (held.st_uid, held.st_gid) == (user, group) {
            true => Ok(()),
            false => Err(Errno::NOTSUP),
        });
        if let Err(error) = kept {
            let what = format!(
                "cannot give files to user {user} ({:?} at the sender) and group {group}: {error}; \
                 start recv as root, or without --owner",
                owner.user
            );
            return refuse(&options.dir, what);
        }
    }
    let directory = state.make_directory(TRIAL)?;
    // Tests the largest set and each name once, for files and for directories: a file system may
    // refuse a size or a name, and only a directory has a default access control list.
    let (mut names, mut most) = (BTreeSet::new(), [0; 2]);
    for entry in xattrs {
        let is_directory = entry.is_directory();
        let key = |xattr: &'a Xattr| (is_directory, &xattr.name);
        let bytes: usize = entry.xattrs.iter().map(|it| it.name.len() + it.value.len()).sum();
        let most = &mut most[usize::from(is_directory)];
        let fresh = entry.xattrs.iter().any(|xattr| !names.contains(&key(xattr)));
        if bytes <= *most && !fresh {
            continue;
        }
        *most = bytes.max(*most);
        names.extend(entry.xattrs.iter().map(key));
        let probe = if is_directory { directory.as_fd() } else { probe.as_fd() };
        let set = |xattr: &Xattr| {
            rustix::fs::fsetxattr(probe, &*xattr.name, &xattr.value, XattrFlags::empty())
        };
        if let Err(error) = entry.xattrs.iter().try_for_each(set) {
            let what = format!(
                "its file system does not take the {bytes} bytes of extended attributes that `{}` has: \
                 {error}; choose another one, or start recv without --xattrs",
                name::shown(&entry.path)
            );
            return refuse(&options.dir, what);
        }
        for xattr in &entry.xattrs {
            let _ = rustix::fs::fremovexattr(probe, &*xattr.name);
        }
    }
    state.remove_directory(TRIAL)?;
    state.remove_file(PROBE)
}
