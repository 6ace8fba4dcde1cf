//! Layout of an object's content: offsets of its files and of their groups.

use std::ops::Range;
use std::sync::Arc;

pub(crate) use crate::manifest::GROUP_BYTES;
use crate::manifest::{Entry, Manifest};

pub(crate) const DIGEST_BYTES: u64 = 32;

/// Manifest with the offsets of its files. Content is the bytes of all files without holes.
#[derive(Debug)]
pub struct Layout {
    pub(crate) manifest: Arc<Manifest>,
    files: Vec<FileStart>,
    pub(crate) groups: u32,
    jumps: Vec<Jump>,
}

#[derive(Clone, Copy, Debug)]
struct FileStart {
    /// Bytes of content before the file.
    offset: u64,
    entry: u32,
    /// First group, and first jump, at or after the start.
    group: u32,
    jump: u32,
}

#[derive(Clone, Copy, Debug)]
struct Jump {
    group: u32,
    /// Groups of all holes of the file so far, this one included.
    holes: u32,
}

/// Group of content, with its file, its offset there, and its offset in the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub(crate) index: u32,
    pub(crate) file: u32,
    pub(crate) file_offset: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// True for the only group of a file: its digest is the file's hash.
    pub(crate) alone: bool,
}

impl Group {
    pub(crate) const fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) group: Group,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Piece {
    pub(crate) const fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Takes the piece's bytes off the front of `bytes`; the rest of the piece is zeros.
    pub(crate) fn split<'a>(&self, bytes: &mut &'a [u8]) -> (&'a [u8], usize) {
        let (now, later) = bytes.split_at(self.len().min(bytes.len()));
        *bytes = later;
        (now, self.len() - now.len())
    }
}

impl Layout {
    pub(crate) fn new(manifest: Manifest) -> Self {
        let mut files = Vec::new();
        let mut jumps = Vec::new();
        let (mut offset, mut groups) = (0, 0);
        for (entry, found) in (0..).zip(manifest.entries()) {
            if found.has_content() {
                let jump = u32::try_from(jumps.len()).expect("limited");
                files.push(FileStart { offset, entry, group: groups, jump });
                let mut holes = 0;
                for hole in found.holes() {
                    jumps.push(Jump {
                        group: groups + hole.first - holes,
                        holes: holes + hole.groups,
                    });
                    holes += hole.groups;
                }
                offset += found.content_bytes();
                groups += groups_in(found.size()) - holes;
            }
        }
        Self { manifest: Arc::new(manifest), files, groups, jumps }
    }

    pub(crate) fn files(&self) -> u32 {
        u32::try_from(self.files.len()).expect("limited")
    }

    pub(crate) fn digest_bytes(&self) -> u64 {
        u64::from(self.groups) * DIGEST_BYTES
    }

    pub(crate) fn entry(&self, file: u32) -> &Entry {
        &self.manifest.entries()[self.entry_index(file)]
    }

    pub(crate) fn entry_index(&self, file: u32) -> usize {
        self.files[file as usize].entry as usize
    }

    pub(crate) fn hard_linked(&self, entry: &Entry) -> Option<&Entry> {
        entry.hard_link_to().and_then(|to| self.manifest.find(to))
    }

    pub(crate) fn content_of(&self, file: u32) -> u64 {
        let next = self.files.get(file as usize + 1);
        let end = next.map_or(self.manifest.content_bytes(), |next| next.offset);
        end - self.files[file as usize].offset
    }

    pub(crate) fn groups_of(&self, file: u32) -> Range<u32> {
        let end = self.files.get(file as usize + 1).map_or(self.groups, |next| next.group);
        self.files[file as usize].group..end
    }

    pub(crate) fn group(&self, index: u32) -> Group {
        let file = self.files.partition_point(|start| start.group <= index) - 1;
        self.group_in(file, index)
    }

    pub(crate) fn group_at(&self, offset: u64) -> Group {
        let file = self.files.partition_point(|start| start.offset <= offset) - 1;
        let within = u32::try_from((offset - self.files[file].offset) / GROUP_BYTES);
        self.group_in(file, self.files[file].group + within.expect("limited"))
    }

    /// Returns the parts of groups in a range of content. A known first group saves a search.
    pub(crate) fn pieces(
        &self,
        range: Range<u64>,
        first: Option<Group>,
    ) -> impl Iterator<Item = Piece> {
        let (mut offset, end, mut first) = (range.start, range.end, first);
        std::iter::from_fn(move || {
            if offset >= end {
                return None;
            }
            let known = first.take().filter(|group| group.range().contains(&offset));
            let group = known.unwrap_or_else(|| self.group_at(offset));
            let stop = end.min(group.range().end);
            let within = |at: u64| u32::try_from(at - group.offset).expect("at most a group");
            let piece = Piece { group, start: within(offset), end: within(stop) };
            offset = stop;
            Some(piece)
        })
    }

    fn group_in(&self, file: usize, index: u32) -> Group {
        let start = self.files[file];
        let file = u32::try_from(file).expect("limited");
        let size = self.entry(file).size();
        let end =
            self.files.get(file as usize + 1).map_or(self.jumps.len(), |next| next.jump as usize);
        let jumps = &self.jumps[start.jump as usize..end];
        let before = jumps[..jumps.partition_point(|jump| jump.group <= index)].last();
        let holes = before.map_or(0, |jump| jump.holes);
        let within = u64::from(index - start.group) * GROUP_BYTES;
        let file_offset = within + u64::from(holes) * GROUP_BYTES;
        let len = GROUP_BYTES.min(size - file_offset);
        Group {
            index,
            file,
            file_offset,
            offset: start.offset + within,
            len: u32::try_from(len).expect("at most a group"),
            alone: size <= GROUP_BYTES,
        }
    }
}

pub(crate) fn groups_in(size: u64) -> u32 {
    // At most 2^46 bytes are 2^26 groups, and short ones of 1e6 files.
    u32::try_from(size.div_ceil(GROUP_BYTES)).expect("limited")
}

pub(crate) fn push_joined(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{holes, layout};

    #[test]
    fn every_byte_lies_in_one_group_of_its_file() {
        let sizes = [0, 5, 0, 0, GROUP_BYTES, 2 * GROUP_BYTES + 1, 0];
        let layout = layout(&sizes.map(|size| (size, vec![])));
        let want = [
            (1, 0, 0, 5, true),
            (4, 0, 5, 1 << 20, true),
            (5, 0, 5 + GROUP_BYTES, 1 << 20, false),
            (5, GROUP_BYTES, 5 + 2 * GROUP_BYTES, 1 << 20, false),
            (5, 2 * GROUP_BYTES, 5 + 3 * GROUP_BYTES, 1, false),
        ];
        assert_eq!(layout.groups, 5);
        for (index, (file, file_offset, offset, len, alone)) in (0..).zip(want) {
            let want = Group { index, file, file_offset, offset, len, alone };
            assert_eq!(layout.group(index), want);
            assert_eq!(layout.group_at(offset), want);
            assert_eq!(layout.group_at(offset + u64::from(len) - 1), want);
        }
        let groups: Vec<Range<u32>> = (0..7).map(|file| layout.groups_of(file)).collect();
        assert_eq!(groups, [0..0, 0..1, 1..1, 1..1, 1..2, 2..5, 5..5]);
    }

    proptest! {
        #[test]
        fn holes_lie_between_the_groups_of_their_file(
            files in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..9), 1..6),
            short in 1..GROUP_BYTES,
        ) {
            let size = |groups: &Vec<bool>| match groups.len() as u64 {
                0 => 0,
                groups => (groups - 1) * GROUP_BYTES + short,
            };
            let described: Vec<(u64, Vec<_>)> =
                files.iter().map(|groups| (size(groups), holes(groups))).collect();
            let layout = layout(&described);
            let (mut index, mut offset) = (0, 0);
            for (file, groups) in (0..).zip(&files) {
                let first = index;
                let start = offset;
                for (at, _) in groups.iter().enumerate().filter(|(_, hole)| !**hole) {
                    let file_offset = at as u64 * GROUP_BYTES;
                    let len = GROUP_BYTES.min(size(groups) - file_offset) as u32;
                    let alone = groups.len() == 1;
                    let want = Group { index, file, file_offset, offset, len, alone };
                    prop_assert_eq!(layout.group(index), want);
                    prop_assert_eq!(layout.group_at(offset), want);
                    prop_assert_eq!(layout.group_at(want.range().end - 1), want);
                    index += 1;
                    offset += u64::from(len);
                }
                prop_assert_eq!(layout.groups_of(file), first..index);
                prop_assert_eq!(layout.content_of(file), offset - start);
            }
            prop_assert_eq!(layout.groups, index);
            prop_assert_eq!(layout.manifest.content_bytes(), offset);
        }
    }

    #[test]
    fn a_range_is_cut_where_groups_are() {
        let layout = layout(&[(5, vec![]), (GROUP_BYTES + 7, vec![])]);
        for first in [None, Some(layout.group(0)), Some(layout.group(2))] {
            let pieces: Vec<Piece> = layout.pieces(3..GROUP_BYTES + 10, first).collect();
            let parts: Vec<(u32, u32, u32)> =
                pieces.iter().map(|piece| (piece.group.index, piece.start, piece.end)).collect();
            assert_eq!(parts, [(0, 3, 5), (1, 0, 1 << 20), (2, 0, 5)]);
            let mut bytes = &[7; 4][..];
            let cut: Vec<(usize, usize)> = pieces
                .iter()
                .map(|piece| piece.split(&mut bytes))
                .map(|(now, zeros)| (now.len(), zeros))
                .collect();
            assert_eq!(cut, [(2, 0), (2, (1 << 20) - 2), (0, 5)]);
        }
        assert_eq!(layout.pieces(4..4, None).count(), 0);
    }
}
