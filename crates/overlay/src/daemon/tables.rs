//! Tables of groups: pages with the memberships of a daemon's clients.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::fields::Fields;

use crate::cell::{GROUP_BYTES_MAX, Kind, PAYLOAD_BYTES_MAX};
use crate::group::{Groups, MemberId};
use crate::ids::DaemonId;
use crate::stream::CompleteMessage;
use crate::wire::{put_name, take_name};

/// Length in bytes after which a page is full: the longest membership still fits.
const PAGE_BYTES: usize = PAYLOAD_BYTES_MAX - 2 * (GROUP_BYTES_MAX + 1);

/// Returns the memberships of the clients of `daemon` after the messages `rest`, which end the
/// old view.
pub(super) fn pages(
    groups: &Groups,
    daemon: DaemonId,
    rest: impl Iterator<Item = CompleteMessage>,
) -> Vec<Vec<u8>> {
    let mut own: BTreeMap<(Bytes, MemberId), bool> = BTreeMap::new();
    for (group, members) in groups.iter() {
        let here = members.iter().filter(|it| it.daemon == daemon);
        own.extend(here.map(|it| ((group.clone(), it.clone()), groups.holds_senders(group, it))));
    }
    for CompleteMessage { cell, .. } in rest {
        let member = MemberId::decode(daemon, &cell.client);
        let names = cell.groups.copies().map(|it| (it, member.clone()));
        match cell.kind {
            Kind::Joined => own.extend(names.map(|it| (it, !cell.payload.is_empty()))),
            Kind::Leave => names.for_each(|it| _ = own.remove(&it)),
            Kind::Disconnect => own.retain(|it, _| it.1 != member),
            _ => {}
        }
    }
    // The first byte of a page is 1 if no page follows.
    let mut pages = alloc::vec![alloc::vec![0]];
    for ((group, member), holds_senders) in own {
        if pages.last().is_some_and(|it| it.len() > 1 + PAGE_BYTES) {
            pages.push(alloc::vec![0]);
        }
        let Some(page) = pages.last_mut() else { continue };
        for name in [group, member.encode()] {
            put_name(page, &name);
        }
        page.push(u8::from(holds_senders));
    }
    if let Some(last) = pages.last_mut() {
        last[0] = 1;
    }
    pages
}

/// Reads a page into `groups`. True if it is the last page of `daemon`.
pub(super) fn read(
    page: &Bytes,
    daemon: DaemonId,
    groups: &mut Vec<(Bytes, MemberId, bool)>,
) -> bool {
    let mut fields = Fields(page);
    let is_last = fields.read::<u8>() == Some(1);
    let name = |fields: &mut Fields<'_>| take_name(page, fields);
    while let (Some(group), Some(client), Some(holds_senders)) =
        (name(&mut fields), name(&mut fields), fields.read::<u8>())
    {
        groups.push((group, MemberId::decode(daemon, &client), holds_senders == 1));
    }
    is_last
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn memberships_of_many_pages_are_read_back() {
        let (daemon, mut groups) = (DaemonId(1), Groups::default());
        let member = |id, name: &'static str| MemberId {
            daemon: DaemonId(id),
            name: name.into(),
            incarnation: 7,
        };
        for i in 0..500 {
            let group = Bytes::from(format!("{i:0>64}"));
            groups.join(group.clone(), member(1, "a"), i % 2 == 0, (0, 0));
            groups.join(group, member(2, "b"), true, (1, 0));
        }
        let pages = pages(&groups, daemon, [].into_iter());
        assert!(pages.len() > 2 && pages.iter().all(|it| it.len() < PAYLOAD_BYTES_MAX));
        let mut got = Vec::new();
        for (i, page) in pages.iter().enumerate() {
            let is_last = i + 1 == pages.len();
            assert_eq!(read(&page.clone().into(), daemon, &mut got), is_last);
        }
        assert_eq!(got.len(), 500);
        assert!(got.iter().all(|it| it.1 == member(1, "a")));
        assert_eq!(got.iter().filter(|it| it.2).count(), 250);
    }
}
