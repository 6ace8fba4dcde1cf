//! Device or file in place as a store: written at the content's offsets, verified by reading back.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use faircast_proto::object::{Announcement, Part};
use fixedbitset::FixedBitSet;
use rustix::fs::{Advice, FallocateFlags, OFlags};

use super::check_target;
use crate::error::{At as _, FilesError, Result, refuse};
use crate::handles::read_or_zero;
use crate::hash::{HoleHashes, file_hashes, group_digest};
use crate::layout::{Group, Layout};
use crate::lock::Locked;
use crate::manifest::Entry;
use crate::store::{Flight, GroupStore, Journal, Medium, Request, Shared, Written};
use crate::table::LOST;

const ZEROS_BYTES: u64 = 1 << 20;

/// Settings of a device store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Block device, or a file, which is created if missing.
    pub target: PathBuf,
    /// Name of the only accepted object.
    pub object: String,
    /// Journal of written groups, for a later run. Default: none; a later run starts over.
    pub journal: Option<PathBuf>,
    /// True to sync, and to read back from the device itself. Default: yes.
    pub sync: bool,
}

impl DeviceOptions {
    /// Returns default settings for a target and an object.
    pub fn new(target: impl AsRef<Path>, object: impl Into<String>) -> Self {
        let target = target.as_ref().to_path_buf();
        Self { target, object: object.into(), journal: None, sync: true }
    }

    /// Checks that target and journal can be written, as far as known before.
    pub fn check(&self) -> Result<()> {
        check_target(&self.target)?;
        if let Some(path) = &self.journal {
            journal_file(path)?;
        }
        Ok(())
    }
}

/// Device or file as a store of one image, opened exclusively. Memory: at most 32 MiB.
pub type DeviceStore = GroupStore<DeviceWork>;

#[derive(Debug)]
pub struct DeviceWork {
    shared: Arc<Shared<Self>>,
    device: Arc<Device>,
    journal: Option<(Journal, Locked)>,
}

#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    file: File,
    _lock: Option<Locked>,
    /// Bytes of a device; `None` for a file, which grows.
    room: Option<u64>,
    object: Entry,
}

impl Medium for DeviceWork {
    type Options = DeviceOptions;
    type Written = Device;
    const FILES_MAX: u32 = 1;
    const GROWS: bool = true;

    fn path(options: &DeviceOptions) -> &Path {
        &options.target
    }

    fn folder(_options: &DeviceOptions) -> Result<PathBuf> {
        Ok(std::env::temp_dir())
    }

    fn open(
        shared: &Arc<Shared<Self>>,
        request: Request,
    ) -> Result<(Self, Arc<Device>, FixedBitSet)> {
        let Request { announcement, manifest } = &request;
        let options = &shared.options;
        // Checked again: the device may have been mounted meanwhile.
        options.check()?;
        let object = super::open_single(manifest, announcement, &options.object, &shared.counters)?;
        let device = Arc::new(Device::open(&options.target, object)?);
        device.check_room(announcement)?;
        let groups = device.layout(announcement)?.groups;
        let mut found = FixedBitSet::with_capacity(groups as usize);
        let mut opened = Self { shared: shared.clone(), device: device.clone(), journal: None };
        if let Some(path) = &options.journal {
            let (journal, lock);
            (journal, lock, found) = open_journal(shared, path, announcement.object, groups)?;
            opened.journal = Some((journal, lock));
        }
        Ok((opened, device, found))
    }

    fn journal(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut().map(|(journal, _)| journal)
    }

    fn write(&mut self, flight: &Flight) -> Result<()> {
        let group = flight.group;
        flight.write(&self.shared.counters, |at, bytes| {
            self.device.write(group.file_offset + u64::from(at), bytes)
        })?;
        if flight.complete
            && let Some(journal) = self.journal()
        {
            journal.complete(&group);
        }
        Ok(())
    }

    fn compare(&mut self, announced: &Announcement) -> Result<Vec<u32>> {
        let (shared, device) = (&self.shared, &self.device);
        let layout = device.layout(announced)?;
        for hole in device.object.hole_ranges() {
            device.zero(hole)?;
        }
        if device.room.is_none() {
            let size = super::size(&device.object, announced);
            device.file.set_len(size).at(&device.path, "cannot get its length")?;
        }
        if shared.options.sync {
            device.file.sync_all().at(&device.path, "cannot be synced")?;
            // Drops cached pages, to read from the device itself; optional.
            let _ = rustix::fs::fadvise(&device.file, 0, None, Advice::DontNeed);
        }
        let mut buffer = Vec::new();
        let mut damaged = Vec::new();
        for index in 0..layout.groups {
            shared.go_on()?;
            let group = layout.group(index);
            buffer.resize(group.len as usize, 0);
            device.read_at(group.file_offset, &mut buffer)?;
            let want = shared.digests.lock().digest(index).at(std::env::temp_dir(), LOST)?;
            if group_digest(&group, &buffer) != want {
                damaged.push(index);
            }
        }
        for hole in device.object.hole_ranges() {
            self.check_zeros(hole, &mut buffer)?;
        }
        Ok(damaged)
    }

    fn finish(&mut self, announced: &Announcement) -> Result<()> {
        let temporary = std::env::temp_dir();
        let layout = self.device.layout(announced)?;
        let mut holes = HoleHashes::new(&layout, &temporary).at(&temporary, LOST)?;
        let go_on = || self.shared.go_on();
        let digest = |group| self.shared.digests.lock().digest(group);
        let hashes = file_hashes(&mut holes, &layout, go_on, digest).at(&temporary, LOST)??;
        let counters = &self.shared.counters;
        counters.file_hashes.get_or_init(|| hashes);
        counters.update(|counts| counts.files_done = 1);
        if let (Some(_), Some(path)) = (self.journal.take(), &self.shared.options.journal) {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }

    fn give_up(&self, _group: u32, times: u32) -> FilesError {
        let what =
            format!("does not keep what is written to it, after {times} times; try another device");
        FilesError::refused(&self.device.path, what)
    }

    fn abandon(options: &DeviceOptions, _device: &Device, discarded: bool) {
        if let Some(path) = options.journal.as_ref().filter(|_| discarded) {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl DeviceWork {
    fn check_zeros(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        let mut offset = range.start;
        while offset < range.end {
            self.shared.go_on()?;
            let piece = (range.end - offset).min(ZEROS_BYTES);
            buffer.resize(usize::try_from(piece).expect("small"), 0);
            self.device.read_at(offset, buffer)?;
            if buffer.iter().any(|byte| *byte != 0) {
                let what = "does not keep the zeros that are written to it; try another device";
                return refuse(&self.device.path, what);
            }
            offset += piece;
        }
        Ok(())
    }
}

impl Written for Device {
    fn layout(&self, announced: &Announcement) -> Result<Arc<Layout>> {
        super::layout(&self.object, announced)
    }

    fn check_room(&self, announced: &Announcement) -> Result<()> {
        let Some(room) = self.room else {
            const CANNOT: &str = "cannot be looked at";
            let bytes = announced.len(Part::Content);
            let space = rustix::fs::fstatvfs(&self.file).at(&self.path, CANNOT)?;
            let there = rustix::fs::fstat(&self.file).at(&self.path, CANNOT)?.st_blocks;
            let there = u64::try_from(there).unwrap_or(0).saturating_mul(512);
            let free = space.f_bavail.saturating_mul(space.f_frsize).saturating_add(there);
            if free < bytes {
                let what = "bytes, and there is room for";
                return refuse(&self.path, format!("is to get {bytes} {what} {free}; make room"));
            }
            return Ok(());
        };
        let bytes = super::size(&self.object, announced);
        if room < bytes {
            let what = format!("it has {room} bytes, and the object {bytes} or more");
            return refuse(&self.path, format!("is too small: {what}"));
        }
        Ok(())
    }

    fn read(&self, group: &Group, within: u32, out: &mut [u8]) -> Result<()> {
        self.read_at(group.file_offset + u64::from(within), out)
    }
}

impl Device {
    fn open(path: &Path, object: Entry) -> Result<Self> {
        let is_device = std::fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
        // Exclusive: no other user of a device now or later.
        let exclusive = if is_device { OFlags::EXCL } else { OFlags::empty() };
        let flags = (exclusive | OFlags::CLOEXEC).bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(!is_device)
            .truncate(false)
            .custom_flags(flags)
            .mode(0o600)
            .open(path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::ResourceBusy => FilesError::refused(
                    path,
                    "is in use by the system (mounted, swap, a volume manager, a RAID); free it first",
                ),
                _ => FilesError::io(path, "cannot be opened for writing", error),
            })?;
        const CANNOT: &str = "cannot be looked at";
        let (mut lock, mut room) = (None, None);
        if is_device {
            room = Some((&file).seek(SeekFrom::End(0)).at(path, CANNOT)?);
        } else {
            lock = Some(Locked::new(file.try_clone().at(path, CANNOT)?).map_err(|_| {
                let what = "is being written by another faircast; give each a file of its own";
                FilesError::refused(path, what)
            })?);
        }
        Ok(Self { path: path.to_path_buf(), file, _lock: lock, room, object })
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let error = match read_or_zero(&self.file, offset, out) {
            Ok(whole) if whole || self.room.is_none() => return Ok(()),
            Ok(_) => io::ErrorKind::UnexpectedEof.into(),
            Err(error) => error,
        };
        Err(error).at(&self.path, "cannot be read back")
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).at(&self.path, "cannot be written")
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        // A file gets a hole; for a device, the device or the kernel writes zeros.
        let how = match self.room {
            Some(_) => FallocateFlags::ZERO_RANGE,
            None => FallocateFlags::PUNCH_HOLE,
        };
        let how = how | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.file, how, range.start, range.end - range.start).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; usize::try_from(ZEROS_BYTES).expect("small")];
        let mut offset = range.start;
        while offset < range.end {
            let piece = usize::try_from((range.end - offset).min(ZEROS_BYTES)).expect("small");
            self.write(offset, &zeros[..piece])?;
            offset += piece as u64;
        }
        Ok(())
    }
}

const NO_JOURNAL: &str = "cannot be used as a journal";

fn journal_file(path: &Path) -> Result<File> {
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = how.open(path).at(path, NO_JOURNAL)?;
    let is_file = file.metadata().at(path, NO_JOURNAL)?.is_file();
    if !is_file || !Journal::may_be(&file).at(path, NO_JOURNAL)? {
        return refuse(path, "is something else than a journal of faircast; name another file");
    }
    Ok(file)
}

fn open_journal(
    shared: &Shared<DeviceWork>,
    path: &Path,
    object: [u8; 32],
    groups: u32,
) -> Result<(Journal, Locked, FixedBitSet)> {
    let mut file = journal_file(path)?;
    let lock = Locked::new(file.try_clone().at(path, NO_JOURNAL)?).map_err(|_| {
        let what =
            "is the journal of another faircast that is running; let it finish, or name another";
        FilesError::refused(path, what)
    })?;
    let there = file.try_clone().at(path, NO_JOURNAL)?;
    let found = Journal::read(there, &object, groups).at(path, NO_JOURNAL)?;
    // Rewritten in place: a loss here only repeats the transfer.
    file.set_len(0).and_then(|()| file.rewind()).at(path, NO_JOURNAL)?;
    let mut journal = Journal::new(file, path, object, shared.journal());
    journal.begin(&found, groups).at(path, NO_JOURNAL)?;
    Ok((journal, lock, found))
}
