//! From entries to bytes.

use std::collections::BTreeMap;

use super::{
    Entry, FIXED_BYTES, HEAD_BYTES, Kind, MAGIC, MANIFEST_BYTES_MAX, Manifest, ManifestError,
    Owner, VERSION,
};

/// What follows the path of an entry, as bits of its second byte.
pub(super) const HAS_HOLES: u8 = 1;
pub(super) const HAS_OWNER: u8 = 2;
pub(super) const HAS_XATTRS: u8 = 4;

/// The size of an image of which it is not known.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// Owners that are in a manifest, and their numbers in it.
type Owners<'a> = BTreeMap<&'a Owner, u16>;

/// Whether it can be encoded.
pub(super) fn check(manifest: &Manifest) -> Result<(), ManifestError> {
    let owners = owners(manifest)?;
    let bytes = head_bytes(manifest, &owners) + manifest.entries.iter().map(bytes).sum::<usize>();
    match bytes as u64 > MANIFEST_BYTES_MAX {
        true => Err(ManifestError::Bytes(bytes as u64)),
        false => Ok(()),
    }
}

/// What was checked always can.
pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    let owners = owners(manifest).unwrap_or_default();
    let entries = &manifest.entries;
    let len = head_bytes(manifest, &owners) + entries.iter().map(bytes).sum::<usize>();
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&MAGIC);
    out.push(VERSION);
    put_u32(&mut out, entries.len());
    out.extend_from_slice(&manifest.content_bytes.to_be_bytes());
    put_text8(&mut out, &manifest.name);
    put_u16(&mut out, owners.len());
    for owner in owners.keys() {
        out.extend_from_slice(&owner.uid.to_be_bytes());
        out.extend_from_slice(&owner.gid.to_be_bytes());
        put_text8(&mut out, &owner.user);
        put_text8(&mut out, &owner.group);
    }
    entries.iter().for_each(|entry| put_entry(&mut out, entry, &owners));
    out
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry, owners: &Owners<'_>) {
    let (kind, size) = match &entry.kind {
        Kind::File { size, .. } => (0, *size),
        Kind::Directory => (1, 0),
        Kind::Link { target } => (2, target.len() as u64),
        Kind::Image { size } => (3, size.unwrap_or(UNKNOWN)),
    };
    let flag = |bit, there: bool| if there { bit } else { 0 };
    let holes = entry.holes();
    out.push(kind);
    out.push(
        flag(HAS_HOLES, !holes.is_empty())
            | flag(HAS_OWNER, entry.owner.is_some())
            | flag(HAS_XATTRS, !entry.xattrs.is_empty()),
    );
    out.extend_from_slice(&entry.mode.to_be_bytes());
    out.extend_from_slice(&entry.mtime.seconds.to_be_bytes());
    out.extend_from_slice(&entry.mtime.nanos.to_be_bytes());
    out.extend_from_slice(&size.to_be_bytes());
    put_u16(out, entry.path.len());
    out.extend_from_slice(entry.path.as_bytes());
    out.extend_from_slice(entry.link_target().unwrap_or_default().as_bytes());
    if !holes.is_empty() {
        put_u32(out, holes.len());
        for hole in holes {
            out.extend_from_slice(&hole.first.to_be_bytes());
            out.extend_from_slice(&hole.groups.to_be_bytes());
        }
    }
    if let Some(owner) = &entry.owner {
        out.extend_from_slice(&owners[&**owner].to_be_bytes());
    }
    if !entry.xattrs.is_empty() {
        put_u16(out, entry.xattrs.len());
        for xattr in &entry.xattrs {
            put_text8(out, &xattr.name);
            put_u32(out, xattr.value.len());
            out.extend_from_slice(&xattr.value);
        }
    }
}

/// All owners, ascending.
fn owners(manifest: &Manifest) -> Result<Owners<'_>, ManifestError> {
    let mut owners: Owners<'_> =
        manifest.entries.iter().filter_map(|entry| Some((&**entry.owner.as_ref()?, 0))).collect();
    let count = u16::try_from(owners.len()).map_err(|_| ManifestError::Owners(owners.len()))?;
    owners.values_mut().zip(0..count).for_each(|(number, index)| *number = index);
    Ok(owners)
}

fn head_bytes(manifest: &Manifest, owners: &Owners<'_>) -> usize {
    let owner = |owner: &&Owner| 10 + owner.user.len() + owner.group.len();
    HEAD_BYTES + manifest.name.len() + owners.keys().map(owner).sum::<usize>()
}

fn bytes(entry: &Entry) -> usize {
    let mut bytes = FIXED_BYTES + entry.path.len() + entry.link_target().map_or(0, str::len);
    if !entry.holes().is_empty() {
        bytes += 4 + 8 * entry.holes().len();
    }
    if entry.owner.is_some() {
        bytes += 2;
    }
    if !entry.xattrs.is_empty() {
        let xattrs = entry.xattrs.iter();
        bytes += 2 + xattrs.map(|xattr| 5 + xattr.name.len() + xattr.value.len()).sum::<usize>();
    }
    bytes
}

fn put_u16(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u16::try_from(number).expect("checked before").to_be_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u32::try_from(number).expect("checked before").to_be_bytes());
}

/// At most 255 bytes, after their number.
fn put_text8(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).expect("checked before"));
    out.extend_from_slice(text.as_bytes());
}
