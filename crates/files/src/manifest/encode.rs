//! Encoder from entries to bytes.

use std::collections::BTreeMap;

use super::{Entry, Kind, MAGIC, MANIFEST_BYTES_MAX, Manifest, ManifestError, Owner, VERSION};

/// Parts after an entry's path, as bits of its second byte.
pub(super) const HAS_HOLES: u8 = 1;
pub(super) const HAS_OWNER: u8 = 2;
pub(super) const HAS_XATTRS: u8 = 4;

pub(super) const UNKNOWN: u64 = u64::MAX;

type Owners<'a> = BTreeMap<&'a Owner, u16>;

pub(super) fn check(manifest: &Manifest) -> Result<(), ManifestError> {
    let mut bytes = 0;
    put(manifest, &owners(manifest)?, &mut |part| bytes += part.len() as u64);
    if bytes > MANIFEST_BYTES_MAX { Err(ManifestError::Bytes(bytes)) } else { Ok(()) }
}

pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    let mut out = Vec::new();
    let owners = owners(manifest).unwrap_or_default();
    put(manifest, &owners, &mut |part| out.extend_from_slice(part));
    out
}

fn put(manifest: &Manifest, owners: &Owners<'_>, out: &mut impl FnMut(&[u8])) {
    out(&MAGIC);
    out(&[VERSION]);
    put_u32(out, manifest.entries.len());
    out(&manifest.content_bytes.to_be_bytes());
    put_text8(out, &manifest.name);
    put_u16(out, owners.len());
    for owner in owners.keys() {
        out(&owner.uid.to_be_bytes());
        out(&owner.gid.to_be_bytes());
        put_text8(out, &owner.user);
        put_text8(out, &owner.group);
    }
    manifest.entries.iter().for_each(|entry| put_entry(out, entry, owners));
}

fn put_entry(out: &mut impl FnMut(&[u8]), entry: &Entry, owners: &Owners<'_>) {
    let (kind, size) = match &entry.kind {
        Kind::File { size, .. } => (0, *size),
        Kind::Directory => (1, 0),
        Kind::Link { target } => (2, target.len() as u64),
        Kind::HardLink { to } => (4, to.len() as u64),
        Kind::Image { size } => (3, size.unwrap_or(UNKNOWN)),
    };
    let flag = |bit, there: bool| if there { bit } else { 0 };
    let holes = entry.holes();
    let flags = flag(HAS_HOLES, !holes.is_empty())
        | flag(HAS_OWNER, entry.owner.is_some())
        | flag(HAS_XATTRS, !entry.xattrs.is_empty());
    out(&[kind, flags]);
    out(&entry.mode.to_be_bytes());
    out(&entry.mtime.seconds.to_be_bytes());
    out(&entry.mtime.nanos.to_be_bytes());
    out(&size.to_be_bytes());
    put_u16(out, entry.path.len());
    out(&entry.path);
    out(entry.link_target().or(entry.hard_link_to()).unwrap_or_default());
    if !holes.is_empty() {
        put_u32(out, holes.len());
        for hole in holes {
            out(&hole.first.to_be_bytes());
            out(&hole.groups.to_be_bytes());
        }
    }
    if let Some(owner) = &entry.owner {
        out(&owners[&**owner].to_be_bytes());
    }
    if !entry.xattrs.is_empty() {
        put_u16(out, entry.xattrs.len());
        for xattr in &entry.xattrs {
            put_text8(out, &xattr.name);
            put_u32(out, xattr.value.len());
            out(&xattr.value);
        }
    }
}

fn owners(manifest: &Manifest) -> Result<Owners<'_>, ManifestError> {
    let mut owners: Owners<'_> =
        manifest.entries.iter().filter_map(|entry| Some((&**entry.owner.as_ref()?, 0))).collect();
    let count = u16::try_from(owners.len()).map_err(|_| ManifestError::Owners(owners.len()))?;
    owners.values_mut().zip(0..count).for_each(|(number, index)| *number = index);
    Ok(owners)
}

fn put_u16(out: &mut impl FnMut(&[u8]), number: usize) {
    out(&u16::try_from(number).expect("checked before").to_be_bytes());
}

fn put_u32(out: &mut impl FnMut(&[u8]), number: usize) {
    out(&u32::try_from(number).expect("checked before").to_be_bytes());
}

fn put_text8(out: &mut impl FnMut(&[u8]), text: &str) {
    out(&[u8::try_from(text.len()).expect("checked before")]);
    out(text.as_bytes());
}
