//! Files of a round, made from the seed and compared without faircast's own code.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use faircast_base::{NodeId, Purpose, Rng};

/// Folder of incomplete content at receivers, excluded from the comparison.
const STATE: &str = ".faircast";
const SMALL_FILES: u64 = 40;

pub(super) fn make(folder: &Path, bytes: u64, seed: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed, NodeId(1), Purpose::Fault);
    std::fs::create_dir_all(folder.join("deep/deeper/deepest"))?;
    let mut left = bytes;
    let file = |name: &str, len: u64, rng: &mut Rng| -> io::Result<()> {
        let mut out = io::BufWriter::new(File::create(folder.join(name))?);
        let mut rest = len;
        while rest > 0 {
            let word = rng.bits().to_le_bytes();
            let take = rest.min(8) as usize;
            out.write_all(&word[..take])?;
            rest -= take as u64;
        }
        out.flush()
    };
    for (name, len) in [("empty", 0), ("deep/one", 1), ("deep/deeper/odd", 1401)] {
        file(name, len, &mut rng)?;
        left = left.saturating_sub(len);
    }
    for i in 0..SMALL_FILES {
        let len = rng.below(bytes / (4 * SMALL_FILES) + 1);
        let place = if i % 2 == 0 { "deep/deeper/deepest/" } else { "" };
        file(&format!("{place}small file {i} ü"), len, &mut rng)?;
        left = left.saturating_sub(len);
    }
    file("large", left, &mut rng)
}

pub(super) fn differences(sent: &Path, got: &Path) -> io::Result<Vec<String>> {
    let (want, have) = (walk(sent)?, walk(got).unwrap_or_default());
    let mut differences = Vec::new();
    for (name, path) in &want {
        match have.get(name) {
            None => differences.push(format!("{} is missing", name.display())),
            Some(other) => {
                if let Some(at) = first_difference(path, other)? {
                    differences.push(format!("{} differs at byte {at}", name.display()));
                }
            }
        }
    }
    let unsent = have.keys().filter(|name| !want.contains_key(*name));
    differences.extend(unsent.map(|name| format!("{} was never sent", name.display())));
    differences.truncate(10);
    Ok(differences)
}

pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

fn walk(folder: &Path) -> io::Result<BTreeMap<PathBuf, PathBuf>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next)? {
            let entry = entry?;
            if entry.file_name() == STATE {
                continue;
            }
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is below").to_owned();
                files.insert(name, path);
            }
        }
    }
    Ok(files)
}

fn first_difference(one: &Path, other: &Path) -> io::Result<Option<u64>> {
    let bytes = |path| File::open(path).map(|file| io::BufReader::new(file).bytes());
    let (mut one, mut other) = (bytes(one)?, bytes(other)?);
    let mut at = 0;
    loop {
        match (one.next().transpose()?, other.next().transpose()?) {
            (None, None) => return Ok(None),
            (a, b) if a != b => return Ok(Some(at)),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_difference_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let [sent, got] = ["sent", "got"].map(|name| folder.path().join(name));
        make(&sent, 300_000, 1).unwrap();
        make(&got, 300_000, 1).unwrap();
        let sizes: u64 = walk(&sent).unwrap().values().map(|f| f.metadata().unwrap().len()).sum();
        assert_eq!(sizes, 300_000);
        std::fs::create_dir(got.join(STATE)).unwrap();
        std::fs::write(got.join(STATE).join("state"), "x").unwrap();
        assert!(differences(&sent, &got).unwrap().is_empty());

        let mut bytes = std::fs::read(got.join("large")).unwrap();
        bytes[70_001] ^= 1;
        std::fs::write(got.join("large"), &bytes).unwrap();
        std::fs::remove_file(got.join("empty")).unwrap();
        std::fs::write(got.join("deep/one"), "").unwrap();
        std::fs::write(got.join("unsent"), "").unwrap();
        assert_eq!(
            differences(&sent, &got).unwrap(),
            [
                "deep/one differs at byte 0",
                "empty is missing",
                "large differs at byte 70001",
                "unsent was never sent"
            ]
        );
        assert!(differences(&sent, &folder.path().join("nowhere")).unwrap().len() == 10);
    }
}
