//! Fuzz target of the decoder of manifests; the corpus test runs the same.

use faircast_files::Manifest;

/// Bytes as a manifest: refused, or the only form of what they say. Returns whether they are one.
pub(crate) fn manifest(data: &[u8]) -> bool {
    let Ok(manifest) = Manifest::decode(data) else { return false };
    assert_eq!(manifest.encode(), data, "another form of the same manifest");
    true
}
