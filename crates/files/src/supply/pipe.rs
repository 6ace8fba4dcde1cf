//! Content of a pipe as an object: kept in an unnamed file and hashed on the way.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blake3::Hasher;
use faircast_proto::object::{ObjectError, ObjectResult, Part, Supply};
use parking_lot::{Condvar, Mutex};

use super::{FileHash, Observed, SupplyCounts, SupplyHandle};
use crate::error::{At as _, FilesError, Result};
use crate::guard::guarded;
use crate::hash::{hash_of_groups, piece_digest};
use crate::layout::{DIGEST_BYTES, GROUP_BYTES};
use crate::manifest::{CONTENT_BYTES_MAX, Entry, Kind, Manifest, ManifestError, Mtime};

/// Default name of a pipe's content.
pub const PIPE_NAME: &str = "pipe";

/// Most bytes read ahead of requests: more than a fast network transfers between announcements.
const AHEAD_BYTES: u64 = 64 << 20;

/// Content of a pipe as a supply. An unnamed file keeps all of it, for repairs and late receivers.
#[derive(Debug)]
pub struct PipeSupply {
    shared: Arc<PipeReader>,
    manifest: Vec<u8>,
    object: [u8; 32],
}

#[derive(Debug)]
struct PipeReader {
    manifest: Manifest,
    folder: PathBuf,
    content: File,
    digests: File,
    state: Mutex<State>,
    requested: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    /// Number of digests, and their hash, once the pipe has ended.
    ended: Option<(u64, [u8; 32])>,
    failure: Option<String>,
    requested_end: u64,
    stop: bool,
}

impl PipeSupply {
    /// Starts to read `pipe` as content called `name`, kept in the folder `spool`.
    pub fn new(pipe: impl Read + Send + 'static, name: &str, spool: &Path) -> Result<Self> {
        // The time distinguishes contents of pipes that are equal otherwise.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(now.as_secs()).unwrap_or_default();
        let mtime = Mtime { seconds, nanos: now.subsec_nanos() };
        let entry = Entry::new(name, Kind::Image { size: None }, 0o600, mtime);
        let manifest = Manifest::new(name, vec![entry])?;
        let encoded = manifest.encode();
        const CANNOT: &str = "cannot keep what comes";
        let shared = Arc::new(PipeReader {
            manifest,
            folder: spool.to_path_buf(),
            content: tempfile::tempfile_in(spool).at(spool, CANNOT)?,
            digests: tempfile::tempfile_in(spool).at(spool, CANNOT)?,
            state: Mutex::default(),
            requested: Condvar::new(),
        });
        let reader = shared.clone();
        // Never joined: the thread may block in the pipe.
        std::thread::Builder::new()
            .name("faircast-pipe".into())
            .spawn(move || reader.run(pipe))
            .at("faircast", "cannot start")?;
        let object = blake3::hash(&encoded).into();
        Ok(Self { shared, manifest: encoded, object })
    }

    /// Returns a handle for observers.
    pub fn handle(&self) -> SupplyHandle {
        SupplyHandle(self.shared.clone())
    }
}

impl PipeReader {
    fn run(&self, pipe: impl Read) {
        if let Err(fault) = guarded("reads the pipe", || self.take(pipe)) {
            self.state.lock().failure.get_or_insert(fault);
        }
    }

    fn take(&self, mut pipe: impl Read) -> Result<()> {
        let cannot_keep = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let what = "is full, and all that comes is kept until the end; send it again with \
                            --spool DIR where there is room for it";
                FilesError::refused(&self.folder, what)
            }
            _ => FilesError::io(&self.folder, "cannot keep what comes", error),
        };
        let mut group = vec![0; usize::try_from(GROUP_BYTES).expect("small")];
        let (mut bytes, mut fill, mut digests) = (0, 0, 0);
        let mut of_digests = Hasher::new();
        let mut alone = None;
        loop {
            if !self.wait_for_requests(bytes) {
                return Ok(());
            }
            let count = match pipe.read(&mut group[fill..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count.at("the pipe", "cannot be read")?,
            };
            self.content.write_all_at(&group[fill..fill + count], bytes).map_err(cannot_keep)?;
            fill += count;
            bytes += count as u64;
            if bytes > CONTENT_BYTES_MAX {
                return Err(ManifestError::Content(bytes).into());
            }
            let ended = count == 0;
            if fill == group.len() || ended && fill > 0 {
                let bytes = &group[..fill];
                if digests == 0 {
                    alone = Some(piece_digest(true, 0, bytes));
                }
                let digest = piece_digest(false, digests * GROUP_BYTES, bytes);
                self.digests.write_all_at(&digest, digests * DIGEST_BYTES).map_err(cannot_keep)?;
                of_digests.update(&digest);
                digests += 1;
                fill = 0;
            }
            let mut hash = of_digests.finalize().into();
            if ended
                && digests == 1
                && let Some(digest) = alone
            {
                self.digests.write_all_at(&digest, 0).map_err(cannot_keep)?;
                hash = blake3::hash(&digest).into();
            }
            let mut state = self.state.lock();
            state.bytes = bytes;
            if ended {
                state.ended = Some((digests, hash));
                return Ok(());
            }
        }
    }

    fn wait_for_requests(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let full = |state: &mut State| !state.stop && bytes >= state.requested_end + AHEAD_BYTES;
        self.requested.wait_while(&mut state, full);
        !state.stop
    }
}

impl Observed for PipeReader {
    fn counts(&self) -> SupplyCounts {
        let bytes = self.state.lock().bytes;
        // Only content that has been read is announced, so readers never wait.
        let waited = Duration::ZERO;
        SupplyCounts { files: 1, bytes, bytes_hashed: bytes, bytes_read: bytes, waited }
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn file_hashes(&self) -> io::Result<Option<Vec<FileHash>>> {
        let Some((count, _)) = self.state.lock().ended else { return Ok(None) };
        let count = usize::try_from(count).expect("limited");
        let mut digests = vec![[0; 32]; count];
        self.digests.read_exact_at(digests.as_flattened_mut(), 0)?;
        Ok(Some(vec![FileHash {
            path: crate::manifest::boxed(self.manifest.name().as_bytes()),
            hash: Some(hash_of_groups(&digests)),
        }]))
    }
}

impl Supply for PipeSupply {
    fn len(&self, part: Part) -> u64 {
        let state = self.shared.state.lock();
        match part {
            Part::Manifest => self.manifest.len() as u64,
            Part::Content => state.bytes,
            Part::Digests => state.ended.map_or(0, |(digests, _)| digests * DIGEST_BYTES),
        }
    }

    fn growing(&self) -> bool {
        self.shared.state.lock().ended.is_none()
    }

    fn object(&self) -> [u8; 32] {
        self.object
    }

    fn is_repeatable(&self) -> bool {
        false
    }

    fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>> {
        let state = self.shared.state.lock();
        match &state.failure {
            Some(reason) => Err(ObjectError::new(reason)),
            None => Ok(state.ended.map(|(_, hash)| hash)),
        }
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<u32> {
        let end = offset.checked_add(len.into()).filter(|end| *end <= Supply::len(self, part));
        let end = end.expect("a sender asks for what it announced");
        if part == Part::Manifest {
            let start = usize::try_from(offset).expect("within what is in memory");
            out.extend_from_slice(&self.manifest[start..start + len as usize]);
            return Ok(0);
        }
        let file = match part {
            Part::Digests => &self.shared.digests,
            _ => &self.shared.content,
        };
        let start = out.len();
        out.resize(start + len as usize, 0);
        if let Err(error) = file.read_exact_at(&mut out[start..], offset) {
            out.truncate(start);
            return Ok(Err(error).at(&self.shared.folder, "lost what was kept")?);
        }
        let mut state = self.shared.state.lock();
        if part == Part::Content && end > state.requested_end {
            state.requested_end = end;
            drop(state);
            self.shared.requested.notify_one();
        }
        Ok(0)
    }
}

impl Drop for PipeSupply {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.requested.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::testing::{digests, noise, wait};

    struct Stuttering {
        bytes: Vec<u8>,
        at: usize,
        most: usize,
    }

    impl Read for Stuttering {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = out.len().min(self.most).min(self.bytes.len() - self.at);
            out[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
            self.at += count;
            Ok(count)
        }
    }

    fn supply(pipe: impl Read + Send + 'static) -> PipeSupply {
        PipeSupply::new(pipe, "image", &std::env::temp_dir()).unwrap()
    }

    fn until(supply: &PipeSupply, bytes: u64) {
        let there = || match Supply::len(supply, Part::Content) >= bytes {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        wait(|| Ok::<_, ()>(there())).unwrap();
    }

    #[test]
    fn a_pipe_hashes_to_what_its_bytes_hash_to() {
        for len in [0, 1, GROUP_BYTES - 1, GROUP_BYTES, GROUP_BYTES + 1, 2 * GROUP_BYTES + 77] {
            for most in [70_001, usize::MAX] {
                let bytes = noise(1, len as usize);
                let mut supply = supply(Stuttering { bytes: bytes.clone(), at: 0, most });
                let hash = digests(&mut supply);
                assert!(!supply.growing() && Supply::len(&supply, Part::Content) == len);
                let mut all = Vec::new();
                let digest_bytes = Supply::len(&supply, Part::Digests);
                assert_eq!(digest_bytes, len.div_ceil(GROUP_BYTES) * 32);
                supply.read(Part::Digests, 0, digest_bytes as u32, &mut all).unwrap();
                assert_eq!(hash, *blake3::hash(&all).as_bytes(), "{len} bytes");
                let files = supply.handle().file_hashes().unwrap().unwrap();
                assert_eq!(files[0].hash, Some(*blake3::hash(&bytes).as_bytes()), "{len} bytes");
                let mut content = Vec::new();
                supply.read(Part::Content, 0, len as u32, &mut content).unwrap();
                assert!(content == bytes, "{len} bytes");
            }
        }
    }

    #[test]
    fn a_pipe_from_which_nobody_takes_waits() {
        let mut supply = supply(io::repeat(7));
        until(&supply, AHEAD_BYTES);
        std::thread::sleep(Duration::from_millis(20));
        let here = Supply::len(&supply, Part::Content);
        assert!(here < AHEAD_BYTES + GROUP_BYTES, "{here} bytes were taken");
        let mut out = Vec::new();
        supply.read(Part::Content, 5 << 20, 1 << 20, &mut out).unwrap();
        until(&supply, AHEAD_BYTES + (6 << 20));
        assert!(supply.growing() && supply.digests().unwrap().is_none());
    }

    #[test]
    fn a_pipe_that_fails_says_so_and_two_pipes_are_two_objects() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _out: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk behind it is gone"))
            }
        }
        let mut one = supply(Broken);
        let error = wait(|| one.digests().map(|_| Poll::<()>::Pending)).unwrap_err();
        assert_eq!(error.reason, "the pipe: cannot be read: the disk behind it is gone");
        assert!(one.growing());
        assert_ne!(one.object(), supply(io::empty()).object());
        let missing = Path::new("/nonexistent-folder");
        let error = PipeSupply::new(io::empty(), "image", missing).unwrap_err().to_string();
        assert!(error.contains("/nonexistent-folder"), "{error}");
    }
}
