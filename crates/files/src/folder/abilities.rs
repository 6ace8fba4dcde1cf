//! Abilities of the target's file system, tested in the state folder before the transfer.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};

use bstr::{BStr, ByteSlice as _};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::state::{StateFolder, TRIAL};
use crate::dir;
use crate::error::{FilesError, Result};
use crate::layout::Layout;
use crate::manifest::{Entry, Mtime};
use crate::name;

/// Time steps in nanoseconds: ext4, NTFS, microseconds, milliseconds, exFAT, seconds, FAT.
const TIME_STEPS: [i128; 7] = [1, 100, 1_000, 1_000_000, 10_000_000, NANOS, 2 * NANOS];
const NANOS: i128 = 1_000_000_000;
/// Time in the range of every file system, and no multiple of any step.
const ODD: Mtime = Mtime { seconds: 1_000_000_001, nanos: 987_654_321 };
/// Size from which the largest file is tested: FAT has no files of 4 GiB.
const LARGE: u64 = u32::MAX as u64;

const PROBE: &str = "probe";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SameTime {
    Yes,
    /// Equal if times have larger steps than measured; other content may have this time too.
    Rounded,
    No,
}

#[derive(Debug)]
pub(super) struct Abilities {
    pub(super) calls: Calls,
    /// Step of times in nanoseconds.
    time_step: i128,
    /// Earliest and latest time of the object, each with the nanoseconds that are kept of it.
    times: [Option<(Mtime, i128)>; 2],
    lost_modes: BTreeSet<u16>,
    pub(super) symlinks: bool,
    pub(super) hard_links: bool,
    pub(super) sparse: bool,
    pub(super) ignores_case: bool,
    name_bytes_max: u64,
    bad_names: BTreeSet<Box<[u8]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Name,
    Case,
    Link,
}

impl Abilities {
    pub(super) fn learn(calls: Calls, layout: &Layout, state: &StateFolder) -> Result<Self> {
        let cannot = |error: Errno| state.cannot(error);
        let entries = layout.manifest.entries();
        let probe = state.create(PROBE)?;
        let fd = probe.as_fd();
        let mut this = Self {
            calls,
            time_step: 1,
            times: [None; 2],
            lost_modes: BTreeSet::new(),
            symlinks: true,
            hard_links: true,
            sparse: true,
            ignores_case: false,
            name_bytes_max: rustix::fs::fstatvfs(state.fd()).map_err(cannot)?.f_namemax,
            bad_names: BTreeSet::new(),
        };
        this.times(entries, fd).map_err(cannot)?;
        this.modes(entries, fd).map_err(cannot)?;
        this.sizes(layout, state)?;
        if entries.iter().any(|entry| entry.link_target().is_some()) {
            // Any refusal counts, since links are left out then.
            this.symlinks = calls.symlink(b"x", state.fd(), "probe.link").is_ok();
            state.remove_file("probe.link")?;
        }
        if entries.iter().any(|entry| entry.hard_link_to().is_some()) {
            let (from, to) = ((state.fd(), PROBE.as_bytes()), (state.fd(), &b"probe.link"[..]));
            this.hard_links = calls.link(from, to).is_ok();
            state.remove_file("probe.link")?;
        }
        let upper = dir::stat(state.fd(), PROBE.to_uppercase());
        this.ignores_case = upper.is_ok_and(|there| there.is_some());
        state.remove_file(PROBE)?;
        this.names(entries, state)?;
        Ok(this)
    }

    fn times(&mut self, entries: &[Entry], probe: BorrowedFd<'_>) -> Result<(), Errno> {
        let held = self.held_time(probe, ODD)?;
        let off = held.map_or(0, |held| (held - nanos(ODD)).abs());
        let coarsest = TIME_STEPS[TIME_STEPS.len() - 1];
        self.time_step = TIME_STEPS.into_iter().find(|step| off < *step).unwrap_or(coarsest);
        let times = || entries.iter().filter(|it| it.hard_link_to().is_none()).map(|it| it.mtime);
        for (place, end) in [times().min(), times().max()].into_iter().enumerate() {
            let Some(end) = end else { continue };
            self.times[place] = self.held_time(probe, end)?.map(|held| (end, held));
        }
        Ok(())
    }

    fn held_time(&self, probe: BorrowedFd<'_>, mtime: Mtime) -> Result<Option<i128>, Errno> {
        if self.calls.set_mtime(probe, mtime).is_err() {
            return Ok(None);
        }
        rustix::fs::fstat(probe).map(|stat| Some(time_of(&stat)))
    }

    fn modes(&mut self, entries: &[Entry], probe: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut modes = BTreeSet::new();
        for entry in entries.iter().filter(|it| it.is_directory() || it.has_content()) {
            modes.insert(entry.mode);
            if entry.is_directory() {
                modes.insert(entry.mode | 0o700);
            }
        }
        for mode in modes {
            let set = self.calls.set_mode(probe, mode);
            let held = Mode::from_raw_mode(rustix::fs::fstat(probe)?.st_mode).bits() & 0o777;
            if set.is_err() || held != u32::from(mode) {
                self.lost_modes.insert(mode);
            }
        }
        Ok(())
    }

    fn sizes(&mut self, layout: &Layout, state: &StateFolder) -> Result<()> {
        const HOLE: u64 = 1 << 20;
        let cannot = |error: std::io::Error| state.cannot(error);
        let probe = state.create(PROBE)?;
        probe.set_len(HOLE).map_err(cannot)?;
        let stat = rustix::fs::fstat(&probe).map_err(|error| state.cannot(error))?;
        self.sparse = u64::try_from(stat.st_blocks).unwrap_or(0) * 512 < HOLE;
        let entries = layout.manifest.entries().iter();
        if let Some(largest) = entries.max_by_key(|entry| entry.size())
            && largest.size() >= LARGE
            && let Err(error) = probe.set_len(largest.size())
            && error.kind() == std::io::ErrorKind::FileTooLarge
        {
            return Err(FilesError::Unwanted(format!(
                "`{}` has {} bytes, and the file system of {} has no files that large; receive into \
                 another one",
                name::shown(&largest.path),
                largest.size(),
                name::shown_path(state.path.parent().unwrap_or(&state.path))
            )));
        }
        Ok(())
    }

    fn names(&mut self, entries: &[Entry], state: &StateFolder) -> Result<()> {
        let plain = |name: &BStr| {
            let safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
            name.len() <= 64 && name.iter().all(safe) && !name.ends_with(b".") && !is_device(name)
        };
        let components = || entries.iter().map(|entry| name::split(&entry.path).1);
        if components().all(plain) {
            return Ok(());
        }
        let (calls, directory) = (self.calls, state.make_directory(TRIAL)?);
        let holds = |name: &[u8]| {
            holds_name(calls, directory.as_fd(), name).map_err(|error| state.cannot(error))
        };
        let long = "\u{e9}".repeat(127) + "x";
        let odd: [&[u8]; 10] = [
            b"a\\b:c*d?e\"f<g>h|i",
            b"a\x01b\nc\x7fd",
            b"a\xff\xfeb",
            b"dot.",
            b"blank ",
            b" blank",
            b"nul",
            "e\u{301}".as_bytes(),
            "\u{e9}".as_bytes(),
            long.as_bytes(),
        ];
        let mut held = !self.ignores_case;
        for name in odd {
            held = held && holds(name)?;
        }
        if !held {
            for name in components().filter(|name| !plain(name)).collect::<BTreeSet<_>>() {
                if !holds(name)? {
                    self.bad_names.insert(Box::from(name.as_bytes()));
                }
            }
        }
        state.remove_directory(TRIAL)
    }

    pub(super) fn refuses(&self, entry: &Entry) -> Option<Reason> {
        let (_, name) = name::split(&entry.path);
        if name.len() as u64 > self.name_bytes_max || self.bad_names.contains(name.as_bytes()) {
            return Some(Reason::Name);
        }
        (entry.link_target().is_some() && !self.symlinks).then_some(Reason::Link)
    }

    pub(super) fn keeps_mode(&self, mode: u16) -> bool {
        !self.lost_modes.contains(&mode)
    }

    pub(super) fn set_mode(&self, fd: BorrowedFd<'_>, mode: u16) -> Result<(), Errno> {
        let set = self.calls.set_mode(fd, mode);
        if self.keeps_mode(mode) { set } else { Ok(()) }
    }

    pub(super) fn set_mtime(&self, fd: BorrowedFd<'_>, mtime: Mtime) -> Result<(), Errno> {
        match self.calls.set_mtime(fd, mtime) {
            Err(Errno::INVAL | Errno::OVERFLOW | Errno::RANGE) => Ok(()),
            done => done,
        }
    }

    /// Compares times within the precision of the file system; digests decide in doubt.
    pub(super) fn compare_time(&self, stat: &Stat, mtime: Mtime) -> SameTime {
        let there = time_of(stat);
        let [earliest, latest] = self.times;
        let mut want = nanos(mtime);
        // The file system clamps times outside its range.
        if let Some((asked, held)) = earliest
            && held - nanos(asked) >= self.time_step
        {
            want = want.max(held);
        }
        if let Some((asked, held)) = latest
            && nanos(asked) - held >= self.time_step
        {
            want = want.min(held);
        }
        let off = (there - want).abs();
        match off < self.time_step {
            true => SameTime::Yes,
            // The file system may have kept the precise time of the test in memory alone.
            false if TIME_STEPS.iter().any(|step| off < *step && there % *step == 0) => {
                SameTime::Rounded
            }
            false => SameTime::No,
        }
    }
}

fn nanos(mtime: Mtime) -> i128 {
    i128::from(mtime.seconds) * NANOS + i128::from(mtime.nanos)
}

fn time_of(stat: &Stat) -> i128 {
    i128::from(stat.st_mtime) * NANOS + i128::from(stat.st_mtime_nsec)
}

/// True for names of devices on Windows, alone or before a dot.
fn is_device(name: &[u8]) -> bool {
    const DEVICES: [&[u8]; 4] = [b"con", b"prn", b"aux", b"nul"];
    let stem = name.split(|byte| *byte == b'.').next().unwrap_or_default();
    let numbered = stem.len() == 4
        && [&b"com"[..], b"lpt"].iter().any(|kind| stem[..3].eq_ignore_ascii_case(kind));
    numbered || DEVICES.iter().any(|device| stem.eq_ignore_ascii_case(device))
}

/// True if a file of this name can be created, and keeps exactly this name.
fn holds_name(calls: Calls, directory: BorrowedFd<'_>, name: &[u8]) -> Result<bool, Errno> {
    match calls.create(directory, name) {
        Ok(_) => {}
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS | Errno::MFILE)) => {
            return Err(error);
        }
        Err(_) => return Ok(false),
    }
    let found = dir::names_in(directory)?;
    for there in &found {
        rustix::fs::unlinkat(directory, &**there, AtFlags::empty())?;
    }
    Ok(matches!(&*found, [only] if only.to_bytes() == name))
}

/// System calls that depend on the file system, with a simulation of FAT for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// True to simulate FAT: times of 2 s from 1980; modes, links and some names refused.
    #[cfg(test)]
    pub(super) fat: bool,
}

impl Calls {
    const fn is_fat(self) -> bool {
        #[cfg(test)]
        return self.fat;
        #[cfg(not(test))]
        false
    }

    fn check(self) -> Result<(), Errno> {
        if self.is_fat() { Err(Errno::PERM) } else { Ok(()) }
    }

    pub(super) fn set_mode(self, fd: BorrowedFd<'_>, mode: u16) -> Result<(), Errno> {
        self.check()?;
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode.into()))
    }

    pub(super) fn set_mtime(self, fd: BorrowedFd<'_>, mtime: Mtime) -> Result<(), Errno> {
        let mtime = match self.is_fat() {
            true => Mtime { seconds: (mtime.seconds & !1).max(315_532_800), nanos: 0 },
            false => mtime,
        };
        rustix::fs::futimens(fd, &dir::times(mtime))
    }

    pub(super) fn symlink(
        self,
        text: &[u8],
        parent: BorrowedFd<'_>,
        name: &str,
    ) -> Result<(), Errno> {
        self.check()?;
        rustix::fs::symlinkat(text, parent, name)
    }

    pub(super) fn link(
        self,
        (parent, from): (BorrowedFd<'_>, &[u8]),
        (to, name): (BorrowedFd<'_>, &[u8]),
    ) -> Result<(), Errno> {
        self.check()?;
        rustix::fs::linkat(parent, from, to, name, AtFlags::empty())
    }

    pub(super) fn create(self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<File, Errno> {
        let mut name = name;
        if self.is_fat() {
            if name.iter().any(|byte| *byte < 32 || b"\"*:<>?|\\\xff".contains(byte)) {
                return Err(Errno::INVAL);
            }
            while let [rest @ .., b'.' | b' '] = name {
                name = rest;
            }
        }
        dir::open_file(parent, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// True if a new directory of mode 0700 in `parent` has another owner, or is open to others.
    pub(super) fn ignores_owners(self, parent: BorrowedFd<'_>) -> Result<bool, Errno> {
        let time = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let name = format!(".faircast-probe-{}-{:x}", std::process::id(), time.as_nanos());
        rustix::fs::mkdirat(parent, &*name, Mode::RWXU)?;
        let looked = dir::open_directory(parent, &name).and_then(|fd| is_foreign(fd.as_fd()));
        rustix::fs::unlinkat(parent, &*name, AtFlags::REMOVEDIR)?;
        looked
    }
}

pub(super) fn is_foreign(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let stat = rustix::fs::fstat(directory)?;
    let others = Mode::from_raw_mode(stat.st_mode) & (Mode::WGRP | Mode::WOTH);
    Ok(stat.st_uid != rustix::process::geteuid().as_raw() || !others.is_empty())
}
