//! BLAKE3 of files by groups: each group by itself, and the file's hash from those of its groups.

use blake3::Hasher;
use blake3::hazmat::{HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::layout::Group;

/// The digest of one group: the file's own hash where it has no other group, and else the chaining
/// value of this part of the tree.
pub(crate) fn group_digest(group: &Group, bytes: &[u8]) -> [u8; 32] {
    piece_digest(group.alone, group.file_offset, bytes)
}

/// The digest of a group that lies at `offset` in its file, and is `alone` or not.
pub(crate) fn piece_digest(alone: bool, offset: u64, bytes: &[u8]) -> [u8; 32] {
    if alone {
        return blake3::hash(bytes).into();
    }
    Hasher::new().set_input_offset(offset).update(bytes).finalize_non_root()
}

/// The BLAKE3 of a file, as `b3sum` prints it, from the digests of its groups: none where it is
/// empty, and else one for each MiB begun.
pub fn file_hash(digests: &[[u8; 32]]) -> [u8; 32] {
    match digests {
        [] => blake3::hash(&[]).into(),
        [alone] => *alone,
        several => {
            let (left, right) = several.split_at(left_groups(several.len()));
            merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash).into()
        }
    }
}

fn subtree(digests: &[[u8; 32]]) -> [u8; 32] {
    match digests {
        [one] => *one,
        several => {
            let (left, right) = several.split_at(left_groups(several.len()));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// The left side of a tree has the largest power of two that leaves something to the right.
const fn left_groups(groups: usize) -> usize {
    groups.next_power_of_two() / 2
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
            assert_eq!(file_hash(&digests), *whole.as_bytes(), "{size} bytes");
        }
    }
}
