//! Fuzz target of the manifest decoder; the corpus test runs it too.

use faircast_files::Manifest;

/// Decodes bytes: an accepted manifest must encode to the same bytes. Returns true if accepted.
pub(crate) fn manifest(data: &[u8]) -> bool {
    let Ok(manifest) = Manifest::decode(data) else { return false };
    assert_eq!(manifest.encode(), data, "another form of the same manifest");
    true
}
