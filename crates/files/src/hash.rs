//! BLAKE3 of files by groups: digests of groups, and the file's hash computed from them.

use std::convert::Infallible;
use std::ops::Range;

use blake3::Hasher;
use blake3::hazmat::{HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::layout::Group;

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
    /// The digest is known.
    Digest([u8; 32]),
    /// The digest follows from both [`sides`].
    Sides,
}

/// Computes the hash of a file from its nodes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::GROUP_BYTES;
    use crate::testing::layout;

    #[test]
    fn a_file_hashes_by_groups_to_what_it_hashes_to_at_once() {
        let bytes: Vec<u8> = (0..9 * GROUP_BYTES).map(|i| (i * 31 + (i >> 11)) as u8).collect();
        let sizes = [0, 1, 1024, GROUP_BYTES - 1, GROUP_BYTES];
        let sizes = sizes.into_iter().chain((1..9).flat_map(|groups| {
            [groups * GROUP_BYTES + 1, groups * GROUP_BYTES + 5000, (groups + 1) * GROUP_BYTES]
        }));
        for size in sizes {
            let layout = layout(&[(size, Vec::new())]);
            let digests: Vec<[u8; 32]> = (0..layout.groups())
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
}
