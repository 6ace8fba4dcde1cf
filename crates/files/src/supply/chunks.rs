//! Content in chunks of at most 1 MiB: a group of a large file, or several small files.

use std::ops::Range;

use crate::layout::{GROUP_BYTES, Layout};

const FILES_MAX: u32 = 256;

/// Division of the content into chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// First chunk of each file. A chunk starts with the first file of its number, or inside one.
    firsts: Vec<u32>,
    count: u32,
}

impl Chunks {
    pub(crate) fn new(layout: &Layout) -> Self {
        let mut firsts = Vec::with_capacity(layout.files() as usize);
        let mut next = 0;
        let (mut bytes, mut files) = (0, 0);
        for file in 0..layout.files() {
            let groups = layout.groups_of(file);
            let size = layout.content_of(file);
            let joins = groups.len() <= 1 && bytes + size <= GROUP_BYTES && files < FILES_MAX;
            if files > 0 && !joins && !groups.is_empty() {
                next += 1;
                (bytes, files) = (0, 0);
            }
            firsts.push(next);
            match groups.len() {
                0 => {}
                1 => (bytes, files) = (bytes + size, files + 1),
                _ => next += groups.end - groups.start,
            }
        }
        Self { firsts, count: next + u32::from(files > 0) }
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn of_group(&self, layout: &Layout, group: u32, file: u32) -> u32 {
        self.firsts[file as usize]
            + (group - layout.groups_of(file).start) * u32::from(layout.groups_of(file).len() > 1)
    }

    pub(crate) fn at(&self, layout: &Layout, offset: u64) -> u32 {
        let group = layout.group_at(offset);
        self.of_group(layout, group.index, group.file)
    }

    pub(crate) fn groups(&self, layout: &Layout, chunk: u32) -> Range<u32> {
        self.start(layout, chunk)..self.start(layout, chunk + 1)
    }

    fn start(&self, layout: &Layout, chunk: u32) -> u32 {
        if chunk >= self.count {
            return layout.groups();
        }
        let file = self.firsts.partition_point(|first| *first < chunk);
        if self.firsts.get(file) == Some(&chunk) {
            return layout.groups_of(u32::try_from(file).expect("limited")).start;
        }
        let file = file - 1;
        let groups = layout.groups_of(u32::try_from(file).expect("limited"));
        groups.start + (chunk - self.firsts[file])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::manifest::Hole;
    use crate::testing::layout;

    proptest! {
        #[test]
        fn every_group_is_in_one_chunk_of_bounded_size(
            sizes in prop::collection::vec(
                prop_oneof![Just(0), 1..2000u64, 300_000..5_000_000u64, Just(GROUP_BYTES)],
                0..40,
            ),
            holes in any::<bool>(),
        ) {
            let hole = |size: u64| match holes && size > 3 * GROUP_BYTES {
                true => vec![Hole { first: 1, groups: 2 }],
                false => Vec::new(),
            };
            let files: Vec<_> = sizes.iter().map(|size| (*size, hole(*size))).collect();
            let layout = layout(&files);
            let chunks = Chunks::new(&layout);
            let mut next = 0;
            for chunk in 0..chunks.count() {
                let groups = chunks.groups(&layout, chunk);
                prop_assert_eq!(groups.start, next);
                prop_assert!(!groups.is_empty());
                next = groups.end;
                let mut bytes = 0;
                for index in groups {
                    let group = layout.group(index);
                    bytes += u64::from(group.len);
                    prop_assert_eq!(chunks.at(&layout, group.offset), chunk);
                    prop_assert_eq!(chunks.of_group(&layout, index, group.file), chunk);
                }
                prop_assert!(bytes <= GROUP_BYTES);
            }
            prop_assert_eq!(next, layout.groups());
        }
    }
}
