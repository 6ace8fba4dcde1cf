//! Refused targets: devices in use, and names under /dev without a device.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use crate::error::{At as _, Result, refuse};

/// Refuses directories, missing names under `/dev`, and devices in use (mount, swap, volume
/// manager, RAID), also of a partition.
pub(crate) fn check_target(path: &Path) -> Result<()> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_below_dev(path) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            return check_writable(path, folder.unwrap_or(Path::new(".")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return refuse(path, "there is no such device; `lsblk` lists those that there are");
        }
        metadata => metadata.at(path, "cannot be looked at")?,
    };
    if metadata.file_type().is_block_device() {
        return match device_user(path) {
            Some(user) => refuse(path, format!("{user}; free it first, or choose another device")),
            None => check_writable(path, path),
        };
    }
    if metadata.is_file() && !is_below_dev(path) {
        return check_writable(path, path);
    }
    if metadata.file_type().is_fifo() {
        let how = "is a pipe, which cannot be written in place; use --to-command 'cat > PIPE'";
        return refuse(path, how);
    }
    refuse(path, "is neither a block device nor a file; it cannot be written in place")
}

fn check_writable(path: &Path, place: &Path) -> Result<()> {
    rustix::fs::accessat(CWD, place, Access::WRITE_OK, AtFlags::EACCESS)
        .at(path, "cannot be written")
}

/// Returns the user of a device or its partitions, as text: a mount, swap or another device.
pub(crate) fn device_user(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    user_of(metadata.rdev(), &mounts, &swaps, Path::new("/sys"))
}

/// True for a path below `/dev`, which is for devices only.
pub fn is_below_dev(path: &Path) -> bool {
    // `/dev/shm` is memory with ordinary files.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    absolute.starts_with("/dev") && !absolute.starts_with("/dev/shm")
}

fn user_of(device: u64, mounts: &str, swaps: &str, sys: &Path) -> Option<String> {
    let parts = with_partitions(device, sys);
    let is_part = |device: u64| parts.iter().any(|(part, _)| *part == device);
    let device_of = |path: &str| {
        let metadata = fs::metadata(unescape(path)).ok()?;
        metadata.file_type().is_block_device().then(|| metadata.rdev())
    };
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (number, place) = (fields.nth(2), fields.nth(1));
        let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1));
        let number = number.and_then(parse_number);
        let mounted = number.is_some_and(is_part)
            || source
                .filter(|source| source.starts_with('/'))
                .and_then(device_of)
                .is_some_and(is_part);
        if mounted {
            let place = unescape(place.unwrap_or("?"));
            return Some(format!("is mounted at {place}"));
        }
    }
    for line in swaps.lines().skip(1) {
        let Some(path) = line.split_whitespace().next() else { continue };
        if device_of(path).is_some_and(is_part) {
            return Some(format!("is in use for swapping ({path})"));
        }
    }
    for (_, folder) in &parts {
        let Ok(mut holders) = fs::read_dir(folder.join("holders")) else { continue };
        if let Some(Ok(holder)) = holders.next() {
            let holder = holder.file_name().to_string_lossy().into_owned();
            return Some(format!("belongs to {holder} (a volume manager, a RAID or encryption)"));
        }
    }
    None
}

fn with_partitions(device: u64, sys: &Path) -> BTreeSet<(u64, PathBuf)> {
    let number = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = sys.join(format!("dev/block/{}:{}", number.0, number.1));
    let mut all = BTreeSet::from([(device, folder.clone())]);
    for found in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let below = found.path();
        if below.join("partition").exists()
            && let Ok(text) = fs::read_to_string(below.join("dev"))
            && let Some(number) = parse_number(text.trim())
        {
            all.insert((number, below));
        }
    }
    all
}

fn parse_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn unescape(text: &str) -> String {
    ["040", "011", "012", "134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_string(), |text, (number, character)| {
            text.replace(&format!("\\{number}"), character)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_device_is_refused_below_dev_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), b"x").unwrap();
        for (path, want) in [
            (at("file"), None),
            (at("new"), None),
            (at("no/such/folder"), Some("cannot be written: No such file")),
            (folder.path().to_path_buf(), Some("neither a block device nor a file")),
            ("/dev/no-such-disk".into(), Some("no such device; `lsblk`")),
            ("/dev/../dev/no-such-disk".into(), Some("no such device")),
            ("/dev/null".into(), Some("neither a block device nor a file")),
        ] {
            let got = check_target(&path).err().map(|error| error.to_string());
            match want {
                None => assert_eq!(got, None, "{path:?}"),
                Some(want) => {
                    assert!(got.as_ref().is_some_and(|got| got.contains(want)), "{got:?}")
                }
            }
        }
    }

    #[test]
    fn a_mounted_device_is_refused_by_its_number_or_by_its_name() {
        let device = rustix::fs::makedev(7, 200);
        let line = "36 35 7:200 / /mnt/my\\040disk rw shared:1 - ext4 /dev/nothing rw\n";
        let sys = Path::new("/no-such-folder");
        let found = user_of(device, line, "", sys).unwrap();
        assert!(found.contains("mounted at /mnt/my disk"), "{found}");
        let other = "36 35 7:201 / /mnt rw - ext4 none rw\n36 35 0:5 / /proc rw - proc proc rw\n";
        assert_eq!(user_of(device, other, "Filename Type\n", sys), None);
    }

    #[test]
    fn a_device_that_lies_below_another_one_is_refused_also_where_a_part_of_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("dev/block/8:0");
        fs::create_dir_all(disk.join("holders")).unwrap();
        fs::create_dir_all(disk.join("sda1/holders")).unwrap();
        fs::write(disk.join("sda1/partition"), "1\n").unwrap();
        fs::write(disk.join("sda1/dev"), "8:1\n").unwrap();
        let user = || user_of(rustix::fs::makedev(8, 0), "", "", folder.path());
        assert_eq!(user(), None);
        for (holder, part) in [("dm-0", "sda1/holders"), ("md127", "holders")] {
            fs::create_dir(disk.join(part).join(holder)).unwrap();
            let found = user().unwrap();
            assert!(found.contains(&format!("belongs to {holder}")), "{found}");
        }
    }
}
