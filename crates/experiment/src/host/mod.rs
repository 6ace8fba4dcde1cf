//! Hosts of experiments on real sockets: programs on them, and their CPU time.

mod process;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use faircast_base::NodeId;
use faircast_lab::Field;
use faircast_lab::lan::INTERFACE;
use faircast_seal::{Exposure, GroupKey};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::unistd::Uid;
use serde_json::Value;

pub(crate) use process::Running;

use crate::Error;
use crate::monitor::Monitor;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// File system in memory over a folder, until dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn new(folder: &Path, options: &str) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder).stdin(Stdio::null());
        let done = command.output()?;
        if !done.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim()));
        }
        Ok(Self(folder.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a program that was just killed may still use it.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).stderr(Stdio::null()).status();
    }
}

pub(crate) fn need_root(suite: &str) -> Result<(), Error> {
    if Uid::effective().is_root() {
        return Ok(());
    }
    let message = format!("{suite} makes network namespaces, which needs root: run it with sudo");
    Err(Error::Usage(message))
}

pub(crate) fn words(first: &[&str], more: &str) -> Vec<String> {
    first.iter().copied().chain(more.split(' ')).map(str::to_string).collect()
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(crate) fn make_key(file: &Path) -> Result<(), Error> {
    GroupKey::create(file).map(|_| ()).map_err(|error| Error::Work(error.to_string()))
}

pub(crate) fn make_relay_key(group: &Path, file: &Path) -> Result<(), Error> {
    let key = GroupKey::read(group, Exposure::Refuse).and_then(|key| key.relay().write(file));
    key.map_err(|error| Error::Work(error.to_string()))
}

/// Writes an incompressible file whose bytes depend on `name` alone. Returns its hash.
pub(crate) fn make_content(file: &Path, name: &str, bytes: u64) -> io::Result<blake3::Hash> {
    let mut random = blake3::Hasher::new().update(name.as_bytes()).finalize_xof();
    let (mut hasher, mut out) = (blake3::Hasher::new(), File::create(file)?);
    let mut block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let some = &mut block[..left.min(1 << 20) as usize];
        random.fill(some);
        hasher.update(some);
        out.write_all(some)?;
        left -= some.len() as u64;
    }
    Ok(hasher.finalize())
}

pub(crate) fn hash_of(file: &Path) -> Option<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(file).ok()?).ok()?;
    Some(hasher.finalize())
}

pub(crate) fn spawn(
    field: &Field,
    node: NodeId,
    mut command: Command,
    log: &Path,
) -> io::Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    field.spawn(node, command)
}

pub(crate) fn wait_until(
    deadline: Instant,
    monitor: &dyn Monitor,
    mut is_so: impl FnMut() -> bool,
) -> Result<bool, Error> {
    while !is_so() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        if monitor.is_to_stop() {
            return Err(Error::Interrupted("there is no verdict"));
        }
        std::thread::sleep(POLL_INTERVAL.min(left));
    }
    Ok(true)
}

pub(crate) fn said(log: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned()
}

pub(crate) fn new_lines(log: &Path, read: &mut u64) -> String {
    let mut bytes = Vec::new();
    let _ = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(*read))?;
        file.read_to_end(&mut bytes)
    });
    bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    *read += bytes.len() as u64;
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn events(said: &str) -> impl DoubleEndedIterator<Item = Value> {
    said.lines().filter_map(|line| serde_json::from_str(line).ok())
}

pub(crate) fn last_words(log: &Path) -> String {
    let said = said(log);
    said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_string()
}

fn proc(process: u32, file: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{process}/{file}")).ok()
}

/// Returns the answer to an HTTP request, with its head.
pub(crate) fn http_get(at: SocketAddr, path: &str, read_max: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(read_max))?;
    let head = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("GET /{path} {head}").as_bytes())?;
    io::read_to_string(stream)
}

/// Returns the bytes that left the process's host by its interface to the bridge.
pub(crate) fn sent_bytes(process: u32) -> Option<u64> {
    let table = proc(process, "net/dev")?;
    let line = table.lines().find_map(|line| line.trim().strip_prefix(INTERFACE))?;
    line.strip_prefix(':')?.split_whitespace().nth(8)?.parse().ok()
}

/// Returns a figure of memory, such as `VmHWM:`, the peak.
pub(crate) fn memory_bytes(process: u32, key: &str) -> Option<u64> {
    let status = proc(process, "status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

pub(crate) fn usage(who: UsageWho) -> Result<Usage, Error> {
    getrusage(who).map_err(|error| Error::doing("the system does not tell CPU time", error))
}

pub(crate) fn cpu_s(usage: &Usage) -> f64 {
    (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
}

pub(crate) fn children(process: u32) -> Vec<u32> {
    let children = proc(process, &format!("task/{process}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Returns the fields of /proc/PID/stat after the process name, which may contain any character.
pub(crate) fn stat(process: u32) -> Option<Vec<String>> {
    Some(proc(process, "stat")?.rsplit(')').next()?.split_whitespace().map(String::from).collect())
}

/// Clock ticks per second in the kernel's interfaces, the same on all architectures.
const TICKS_PER_S: f64 = 100.0;

pub(crate) fn cpu_s_of(process: u32) -> Option<f64> {
    // The times follow the state and ten more numbers.
    let ticks = stat(process)?.into_iter().skip(11).take(2).map(|word| word.parse::<f64>());
    Some(ticks.sum::<Result<f64, _>>().ok()? / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpu_time_is_known() {
        assert!(super::cpu_s_of(std::process::id()).is_some());
        assert_eq!(super::cpu_s_of(u32::MAX), None);
    }
}
