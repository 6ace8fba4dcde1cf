//! Objects and disks in memory, for sources and receivers of the tests.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::task::Poll;
use std::sync::Mutex;

use super::SYMBOL;
use crate::object::{Announcement, ObjectError, ObjectResult, Part, Store, Supply, Verdict};

fn bytes(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + i / 65_003 + salt) as u8).collect()
}

#[derive(Clone)]
pub(crate) struct Object(pub(crate) [Arc<Vec<u8>>; 3]);

impl Object {
    pub(crate) fn new(content: usize) -> Self {
        let part = |len, salt| Arc::new(bytes(len, salt));
        Self([part(250, 1), part(content, 2), part(content / 100 + 32, 3)])
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }
}

impl Supply for Object {
    fn len(&self, part: Part) -> u64 {
        self.0[part as usize].len() as u64
    }

    fn object(&self) -> [u8; 32] {
        blake3::hash(&self.0[0]).into()
    }

    fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>> {
        Ok(Some(blake3::hash(&self.0[2]).into()))
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<u32> {
        let start = offset as usize;
        out.extend_from_slice(&self.0[part as usize][start..start + len as usize]);
        Ok(0)
    }
}

#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) parts: [Vec<u8>; 3],
    pub(crate) written: [Vec<bool>; 3],
    pub(crate) found: Vec<Range<u64>>,
    pub(crate) damaged: Vec<Range<u64>>,
    pub(crate) full_after: Option<usize>,
    /// Number of polls that a long operation takes.
    pub(crate) slowness: u32,
    pub(crate) asked: u32,
    pub(crate) taken: usize,
    pub(crate) window: Option<u64>,
}

pub(crate) struct DiskStore(pub(crate) Arc<Mutex<Disk>>);

impl Store for DiskStore {
    fn begin(&mut self, announcement: &Announcement) -> ObjectResult<()> {
        let disk = &mut *self.0.lock().unwrap();
        for part in Part::ALL {
            let len = announcement.len(part) as usize;
            disk.parts[part as usize].resize(len, 0);
            disk.written[part as usize] = vec![false; len];
        }
        Ok(())
    }

    fn grow(&mut self, announcement: &Announcement) -> ObjectResult<()> {
        let disk = &mut *self.0.lock().unwrap();
        for part in Part::ALL {
            let len = announcement.len(part) as usize;
            assert!(len >= disk.written[part as usize].len(), "{announcement:?}");
            disk.parts[part as usize].resize(len, 0);
            disk.written[part as usize].resize(len, false);
        }
        Ok(())
    }

    fn window_end(&mut self) -> ObjectResult<u64> {
        Ok(self.0.lock().unwrap().window.unwrap_or(u64::MAX))
    }

    fn write(&mut self, part: Part, offset: u64, bytes: &[u8], zeros: u32) -> ObjectResult<()> {
        let disk = &mut *self.0.lock().unwrap();
        let end = offset as usize + bytes.len() + zeros as usize;
        let place = offset as usize..end;
        if part == Part::Content {
            assert!(disk.window.is_none_or(|window| end as u64 <= window), "beyond the window");
            disk.taken += place.len();
            if disk.full_after.is_some_and(|most| disk.taken > most) {
                return Err(ObjectError::new("the disk is full"));
            }
        }
        let written = &mut disk.written[part as usize][place.clone()];
        // A manifest or digests that differ from the announcement are received again, as a whole.
        let again = part != Part::Content;
        assert!(again || written.iter().all(|written| !written), "{place:?} came twice");
        written.fill(true);
        let slot = &mut disk.parts[part as usize][place];
        slot[..bytes.len()].copy_from_slice(bytes);
        slot[bytes.len()..].fill(0);
        Ok(())
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<()> {
        let disk = &*self.0.lock().unwrap();
        let place = offset as usize..offset as usize + len as usize;
        out.extend_from_slice(&disk.parts[part as usize][place]);
        Ok(())
    }

    fn open(&mut self) -> ObjectResult<Poll<Vec<Range<u64>>>> {
        let disk = &mut *self.0.lock().unwrap();
        disk.asked += 1;
        if disk.asked <= disk.slowness {
            return Ok(Poll::Pending);
        }
        Ok(Poll::Ready(disk.found.clone()))
    }

    fn verify(&mut self) -> ObjectResult<Poll<Verdict>> {
        let disk = &mut *self.0.lock().unwrap();
        disk.asked += 1;
        if disk.asked <= 2 * disk.slowness {
            return Ok(Poll::Pending);
        }
        let damaged = core::mem::take(&mut disk.damaged);
        if damaged.is_empty() {
            return Ok(Poll::Ready(Verdict::Intact));
        }
        for range in &damaged {
            // Whole symbols are written again.
            let symbol = u64::from(SYMBOL);
            let len = disk.written[1].len() as u64;
            let end = (range.end.div_ceil(symbol) * symbol).min(len);
            let place = (range.start / symbol * symbol) as usize..end as usize;
            disk.written[1][place].fill(false);
        }
        Ok(Poll::Ready(Verdict::Damaged(damaged)))
    }
}
