//! BLAKE3 of files by groups: digests of groups, and the file's hash computed from them.
//!
//! The digest of a hole depends on its position. Holes are thus hashed as zeros, in the largest
//! nodes of their file: thousands of groups need a few digests. Hashing terabytes would take long.

use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::path::Path;

use blake3::Hasher;
use blake3::hazmat::{HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::layout::{DIGEST_BYTES, GROUP_BYTES, Group, Layout, groups_in};
use crate::manifest::Hole;
use crate::table::Table;

/// Returns the digest of a group: the hash of a file with one group, else the chaining value.
pub(crate) fn group_digest(group: &Group, bytes: &[u8]) -> [u8; 32] {
    piece_digest(group.alone, group.file_offset, bytes)
}

pub(crate) fn piece_digest(alone: bool, offset: u64, bytes: &[u8]) -> [u8; 32] {
    if alone {
        return blake3::hash(bytes).into();
    }
    Hasher::new().set_input_offset(offset).update(bytes).finalize_non_root()
}

/// Node of a file's BLAKE3 tree, given by its range of groups.
pub(crate) enum Node {
    Digest([u8; 32]),
    Sides,
}

pub(crate) fn file_hash<E>(
    groups: u32,
    mut node: impl FnMut(Range<u32>) -> Result<Node, E>,
) -> Result<[u8; 32], E> {
    if groups == 0 {
        return Ok(blake3::hash(&[]).into());
    }
    if let Node::Digest(alone) = node(0..groups)? {
        return Ok(alone);
    }
    let (left, right) = sides(&(0..groups));
    let (left, right) = (subtree(left, &mut node)?, subtree(right, &mut node)?);
    Ok(merge_subtrees_root(&left, &right, Mode::Hash).into())
}

pub(crate) fn hash_of_groups(digests: &[[u8; 32]]) -> [u8; 32] {
    let node = |range: Range<u32>| match range.len() {
        1 => Ok::<_, Infallible>(Node::Digest(digests[range.start as usize])),
        _ => Ok(Node::Sides),
    };
    let groups = u32::try_from(digests.len()).expect("limited");
    match file_hash(groups, node) {
        Ok(hash) => hash,
        Err(never) => match never {},
    }
}

fn subtree<E>(
    range: Range<u32>,
    node: &mut impl FnMut(Range<u32>) -> Result<Node, E>,
) -> Result<[u8; 32], E> {
    if let Node::Digest(digest) = node(range.clone())? {
        return Ok(digest);
    }
    let (left, right) = sides(&range);
    let (left, right) = (subtree(left, node)?, subtree(right, node)?);
    Ok(merge_subtrees_non_root(&left, &right, Mode::Hash))
}

/// Splits a range of groups: the left side has the largest power of two that fits.
pub(crate) fn sides(range: &Range<u32>) -> (Range<u32>, Range<u32>) {
    let middle = range.start + (range.end - range.start).next_power_of_two() / 2;
    (range.start..middle, middle..range.end)
}

/// Most bytes of holes to hash: half a minute. Files beyond have no hash.
pub(crate) const HASHED_MAX: u64 = 64 << 30;

/// Digests of the parts of holes: the largest BLAKE3 nodes within a hole.
#[derive(Debug)]
pub(crate) struct HoleHashes {
    digests: Table,
    /// Files with hashed holes, each with the number of its first part.
    files: Vec<(u32, u32)>,
    hashed: u32,
    /// Position of the hash: index in `files`, and first group of the part.
    at: (usize, u32),
    current: Option<(Hasher, u64)>,
}

impl HoleHashes {
    pub(crate) fn new(layout: &Layout, folder: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        let (mut parts, mut bytes) = (0, 0);
        for file in 0..layout.files() {
            let Tree { groups, holes } = Tree::of(layout, file);
            let more = layout.entry(file).hole_bytes();
            if !holes.is_empty() && bytes + more <= HASHED_MAX {
                bytes += more;
                files.push((file, parts));
                let mut from = 0;
                while let Some(part) = (Tree { groups, holes }).part(from) {
                    parts += 1;
                    from = part.end;
                }
            }
        }
        let digests = Table::new(u64::from(parts) * DIGEST_BYTES, folder)?;
        Ok(Self { digests, files, hashed: 0, at: (0, 0), current: None })
    }

    /// Hashes up to one group; false at the end.
    pub(crate) fn step(&mut self, layout: &Layout) -> io::Result<bool> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        let Some(&(file, _)) = self.files.get(self.at.0) else { return Ok(false) };
        let tree = Tree::of(layout, file);
        let Some(part) = tree.part(self.at.1) else {
            self.at = (self.at.0 + 1, 0);
            return Ok(true);
        };
        let (start, end) = (u64::from(part.start), u64::from(part.end));
        let bytes = layout.entry(file).size().min(end * GROUP_BYTES) - start * GROUP_BYTES;
        let (hasher, rest) = self.current.get_or_insert_with(|| (Hasher::new(), bytes));
        if *rest == bytes && tree.groups > 1 {
            hasher.set_input_offset(start * GROUP_BYTES);
        }
        for _ in 0..GROUP_BYTES / ZEROS.len() as u64 {
            let piece = usize::try_from(*rest).map_or(ZEROS.len(), |rest| rest.min(ZEROS.len()));
            hasher.update(&ZEROS[..piece]);
            *rest -= piece as u64;
        }
        if *rest == 0 {
            let digest = match tree.groups {
                1 => hasher.finalize().into(),
                _ => hasher.finalize_non_root(),
            };
            self.current = None;
            self.digests.set_digest(self.hashed, &digest)?;
            self.hashed += 1;
            self.at.1 = part.end;
        }
        Ok(true)
    }

    pub(crate) fn file_hash(
        &mut self,
        layout: &Layout,
        file: u32,
        mut digest: impl FnMut(u32) -> io::Result<[u8; 32]>,
    ) -> io::Result<Option<[u8; 32]>> {
        let tree = Tree::of(layout, file);
        let mut group = layout.groups_of(file).start;
        let mut part = match self.files.binary_search_by_key(&file, |(file, _)| *file) {
            Ok(index) => self.files[index].1,
            Err(_) if tree.holes.is_empty() => 0,
            Err(_) => return Ok(None),
        };
        let hash = file_hash(tree.groups, |range| {
            if tree.is_part(&range) {
                part += 1;
                return self.digests.digest(part - 1).map(Node::Digest);
            }
            if range.len() > 1 {
                return Ok(Node::Sides);
            }
            group += 1;
            digest(group - 1).map(Node::Digest)
        });
        hash.map(Some)
    }
}

pub(crate) fn file_hashes<E>(
    holes: &mut HoleHashes,
    layout: &Layout,
    go_on: impl Fn() -> Result<(), E>,
    mut digest: impl FnMut(u32) -> io::Result<[u8; 32]>,
) -> io::Result<Result<Vec<Option<[u8; 32]>>, E>> {
    while holes.step(layout)? {
        if let Err(stopped) = go_on() {
            return Ok(Err(stopped));
        }
    }
    let hashes = (0..layout.files()).map(|file| holes.file_hash(layout, file, &mut digest));
    hashes.collect::<io::Result<_>>().map(Ok)
}

struct Tree<'a> {
    groups: u32,
    holes: &'a [Hole],
}

impl<'a> Tree<'a> {
    fn of(layout: &'a Layout, file: u32) -> Self {
        let entry = layout.entry(file);
        Self { groups: groups_in(entry.size()), holes: entry.holes() }
    }

    /// True if a node is one part: in a hole, and no root of groups, whose digest has another kind.
    fn is_part(&self, range: &Range<u32>) -> bool {
        let hole = self.holes.get(self.holes.partition_point(|hole| hole.end() <= range.start));
        hole.is_some_and(|hole| self.is_part_of(range, hole))
    }

    fn is_part_of(&self, range: &Range<u32>, hole: &Hole) -> bool {
        let root = *range == (0..self.groups) && self.groups > 1;
        !root && hole.first <= range.start && range.end <= hole.end()
    }

    fn part(&self, from: u32) -> Option<Range<u32>> {
        let hole = self.holes.get(self.holes.partition_point(|hole| hole.end() <= from))?;
        let start = hole.first.max(from);
        let mut range = 0..self.groups;
        while !(range.start == start && self.is_part_of(&range, hole)) {
            let (left, right) = sides(&range);
            range = if start < right.start { left } else { right };
        }
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{holes, layout};

    #[test]
    fn a_file_hashes_by_groups_to_what_it_hashes_to_at_once() {
        let bytes: Vec<u8> = (0..9 * GROUP_BYTES).map(|i| (i * 31 + (i >> 11)) as u8).collect();
        let sizes = [0, 1, 1024, GROUP_BYTES - 1, GROUP_BYTES];
        let sizes = sizes.into_iter().chain((1..9).flat_map(|groups| {
            [groups * GROUP_BYTES + 1, groups * GROUP_BYTES + 5000, (groups + 1) * GROUP_BYTES]
        }));
        for size in sizes {
            let layout = layout(&[(size, Vec::new())]);
            let digests: Vec<[u8; 32]> = (0..layout.groups)
                .map(|index| {
                    let group = layout.group(index);
                    let range = group.file_offset as usize..;
                    group_digest(&group, &bytes[range][..group.len as usize])
                })
                .collect();
            let whole = blake3::hash(&bytes[..size as usize]);
            assert_eq!(hash_of_groups(&digests), *whole.as_bytes(), "{size} bytes");
        }
    }

    fn compare(files: &[(u64, Vec<bool>)]) {
        let described: Vec<_> = files.iter().map(|(size, groups)| (*size, holes(groups))).collect();
        let layout = layout(&described);
        let mut hashes = HoleHashes::new(&layout, &std::env::temp_dir()).unwrap();
        let mut steps = 0;
        while hashes.step(&layout).unwrap() {
            steps += 1;
        }
        let holes: usize =
            files.iter().map(|(_, groups)| groups.iter().filter(|h| **h).count()).sum();
        assert!(steps <= holes + files.len(), "a step hashes a group: {steps} of {holes}");
        let content = vec![7; GROUP_BYTES as usize];
        for (file, (size, groups)) in (0..).zip(files) {
            let mut bytes = Vec::new();
            for hole in groups {
                let len = (GROUP_BYTES as usize).min(*size as usize - bytes.len());
                bytes.extend(if *hole { vec![0; len] } else { content[..len].to_vec() });
            }
            let digest = |group: u32| {
                let group = layout.group(group);
                Ok(group_digest(&group, &content[..group.len as usize]))
            };
            let hash = hashes.file_hash(&layout, file, digest).unwrap();
            assert_eq!(hash, Some(*blake3::hash(&bytes).as_bytes()), "{size} {groups:?}");
        }
    }

    #[test]
    fn a_file_with_every_combination_of_holes_hashes_to_what_it_is() {
        for groups in 0..5usize {
            for pattern in 0..1 << groups {
                let holes: Vec<bool> = (0..groups).map(|group| pattern >> group & 1 == 1).collect();
                let sizes = match groups as u64 {
                    0 => vec![0],
                    n => vec![n * GROUP_BYTES, (n - 1) * GROUP_BYTES + 1],
                };
                for size in sizes {
                    compare(&[(size, holes.clone())]);
                }
            }
        }
    }

    #[test]
    fn a_large_hole_is_a_few_digests() {
        let size = HASHED_MAX - 5;
        let groups = groups_in(size);
        let layout = layout(&[(size, vec![Hole { first: 3, groups: groups - 3 }])]);
        let hashes = HoleHashes::new(&layout, &std::env::temp_dir()).unwrap();
        let mut parts = hashes.digests;
        assert!(parts.digest(9).is_ok() && parts.digest(16).is_err(), "of {groups} groups");
    }

    #[test]
    fn files_of_too_many_holes_have_no_hash_and_cost_nothing() {
        let hole = |groups| vec![Hole { first: 0, groups }];
        let huge = (1 << 45, hole(1 << 25));
        let layout = layout(&[(GROUP_BYTES, hole(1)), huge.clone(), (5, vec![]), (9, hole(1))]);
        let mut hashes = HoleHashes::new(&layout, &std::env::temp_dir()).unwrap();
        let all = file_hashes(&mut hashes, &layout, || Ok::<_, ()>(()), |_| Ok([7; 32]));
        let all = all.unwrap().unwrap();
        let zeros = |len: usize| Some(*blake3::hash(&vec![0; len]).as_bytes());
        assert_eq!(all, [zeros(1 << 20), None, Some([7; 32]), zeros(9)]);
        let mut hashes = HoleHashes::new(&layout, &std::env::temp_dir()).unwrap();
        let stopped = file_hashes(&mut hashes, &layout, || Err(()), |_| Ok([7; 32]));
        assert_eq!(stopped.unwrap(), Err(()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn files_with_holes_hash_to_what_they_are(
            files in prop::collection::vec(
                (prop::collection::vec(any::<bool>(), 1..24), 1..=GROUP_BYTES),
                1..4,
            ),
        ) {
            let files: Vec<_> = files
                .into_iter()
                .map(|(groups, short)| ((groups.len() as u64 - 1) * GROUP_BYTES + short, groups))
                .collect();
            compare(&files);
        }
    }
}
