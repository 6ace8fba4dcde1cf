//! Keys of groups and relays, and the text of key files.

use std::fmt;
use std::io;
use std::path::PathBuf;

use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hkdf};
use zeroize::Zeroizing;

/// Secret of 256 bits that a group shares. Its holder can read all packets and act as any member.
#[derive(Clone)]
pub struct GroupKey(Zeroizing<[u8; KEY_BYTES]>);

/// Identifier of a key: 64 bits that reveal nothing of the key. Written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId(pub(crate) [u8; 8]);

/// Error of a key or key file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum KeyError {
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(
        "{path}: the file exists; a key is never overwritten, since whoever has it only there \
         would lose it; expected a new name",
        path = path.display()
    )]
    Exists { path: PathBuf },
    #[error(
        "{path}: others may read this key (its mode is {mode:03o}); run `chmod 600 {path}`, and make \
         a new key if somebody may have read it",
        path = path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{path}: {problem}", path = path.display())]
    Text { path: PathBuf, problem: &'static str },
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// Error of the system's random generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoRandomness;

impl GroupKey {
    /// Creates a key from the system's random generator; fails without random bytes.
    pub fn random() -> Result<Self, NoRandomness> {
        random().map(Self)
    }

    /// Creates the key with these bytes.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the identifier of the key.
    pub fn id(&self) -> KeyId {
        KeyId(self.derive(b"faircast v1 key id"))
    }

    /// Derives the key of connections to relays, which reveals nothing of this key.
    pub fn relay(&self) -> RelaySecret {
        RelaySecret(Zeroizing::new(self.derive(b"faircast v1 hop")))
    }

    fn derive<const N: usize>(&self, purpose: &[u8]) -> [u8; N] {
        let mut bytes = [0; N];
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, purpose).extract(self.secret());
        prk.expand(&[], Length(N))
            .and_then(|okm| okm.fill(&mut bytes))
            .expect("HKDF-SHA256 gives up to 8160 bytes");
        bytes
    }

    /// Returns the text of a key file: a heading, the id, the key and a checksum.
    pub fn to_text(&self) -> Zeroizing<String> {
        text(HEADING, self.id(), &self.0)
    }

    /// Parses the text of a key file; errors do not reveal the key.
    pub fn from_text(text: &str) -> Result<Self, &'static str> {
        match heading(text) {
            HEADING => parse(text).map(Self),
            RELAY_HEADING => {
                Err("is a key for relays, which opens no content; expected the group's")
            }
            other if other.starts_with("faircast group key") => {
                Err("is a key of another version of faircast; expected \"version 1\"")
            }
            _ => Err("is no key file; expected one that `faircast key new` has made"),
        }
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.0[..]
    }
}

/// Key by which relays and hosts authenticate each other; its holder cannot read content.
#[derive(Clone)]
pub struct RelaySecret(Zeroizing<[u8; KEY_BYTES]>);

impl RelaySecret {
    /// Returns the bytes of the key.
    pub fn bytes(&self) -> [u8; KEY_BYTES] {
        *self.0
    }

    /// Returns the identifier of the key.
    pub fn id(&self) -> KeyId {
        let digest =
            digest::digest(&digest::SHA256, &[b"faircast v1 relay id", &self.0[..]].concat());
        KeyId(*digest.as_ref().first_chunk().expect("a digest has 32 bytes"))
    }

    /// Returns the text of a key file.
    pub fn to_text(&self) -> Zeroizing<String> {
        text(RELAY_HEADING, self.id(), &self.0)
    }

    /// Parses the text of a key file of a relay or of a group; errors do not reveal the key.
    pub fn from_text(text: &str) -> Result<Self, &'static str> {
        match heading(text) {
            RELAY_HEADING => parse(text).map(Self),
            _ => GroupKey::from_text(text).map(|key| key.relay()),
        }
    }
}

impl fmt::Debug for RelaySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelaySecret({})", self.id())
    }
}

fn text(heading: &str, id: KeyId, key: &[u8; KEY_BYTES]) -> Zeroizing<String> {
    let mut text = format!("{heading}\nid {id}\nkey ");
    for (i, byte) in key.iter().chain(&checksum(key)).enumerate() {
        if i > 0 && i % 4 == 0 {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text.push('\n');
    Zeroizing::new(text)
}

fn heading(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

fn parse(text: &str) -> Result<Zeroizing<[u8; KEY_BYTES]>, &'static str> {
    let mut lines = text.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix("key ")).ok_or("has no line \"key\"")?;
    let mut bytes = Zeroizing::new([0; KEY_BYTES + CHECK_BYTES]);
    let mut digits = 0;
    for letter in line.chars().filter(|letter| *letter != '-' && !letter.is_whitespace()) {
        let value = letter.to_digit(16).ok_or("its key has a letter that is no digit")?;
        let byte = bytes.get_mut(digits / 2).ok_or("its key has more than 72 digits")?;
        *byte = *byte << 4 | value as u8;
        digits += 1;
    }
    if digits != 2 * bytes.len() {
        return Err("its key has fewer than 72 digits");
    }
    let (key, check) = bytes.split_at(KEY_BYTES);
    if checksum(key) != check {
        return Err("its key and its checksum (the last eight digits) disagree: it has a typo");
    }
    Ok(Zeroizing::new(key.try_into().expect("it was split there")))
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupKey({})", self.id())
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

pub(crate) struct Length(pub(crate) usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, NoRandomness> {
    let mut bytes = Zeroizing::new([0; N]);
    SystemRandom::new().fill(&mut bytes[..]).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

fn checksum(key: &[u8]) -> [u8; CHECK_BYTES] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"faircast v1 key checksum");
    context.update(key);
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&context.finish().as_ref()[..CHECK_BYTES]);
    check
}

const HEADING: &str = "faircast group key, version 1";
const RELAY_HEADING: &str = "faircast relay key, version 1";
const KEY_BYTES: usize = 32;
/// Checksum length: misses one typing error in 2^32.
const CHECK_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_text_and_its_id_says_nothing_of_it() {
        let key = GroupKey::random().unwrap();
        let text = key.to_text();
        let back = GroupKey::from_text(&text).unwrap();
        assert_eq!(back.secret(), key.secret());
        assert!(text.contains(&key.id().to_string()));
        assert_ne!(key.id().0, key.secret()[..8]);
        assert_ne!(key.id(), GroupKey::random().unwrap().id());
        assert_eq!(format!("{key:?}"), format!("GroupKey({})", key.id()));
    }

    #[test]
    fn relays_have_the_key_of_their_group_by_either_file() {
        let key = GroupKey::random().unwrap();
        for text in [key.to_text(), key.relay().to_text()] {
            assert_eq!(RelaySecret::from_text(&text).unwrap().bytes(), key.relay().bytes());
        }
        assert_ne!(key.relay().bytes()[..], *key.secret());
        let error = GroupKey::from_text(&key.relay().to_text()).unwrap_err();
        assert!(error.contains("a key for relays"), "{error}");
    }

    #[test]
    fn the_id_and_the_text_of_a_known_key_stay_as_they_are() {
        let key = GroupKey::from_bytes(core::array::from_fn(|i| i as u8));
        let text = key.to_text();
        let line = text.lines().last().unwrap();
        assert!(line.starts_with("key 00010203-04050607-"), "{line}");
        assert_eq!(line.len(), 4 + 9 * 8 + 8);
    }

    #[test]
    fn every_typo_in_the_digits_is_found() {
        let text = GroupKey::random().unwrap().to_text().to_string();
        let start = text.find("key ").unwrap() + 4;
        let mut tried = 0;
        for (at, letter) in text.char_indices().skip(start).filter(|(_, c)| c.is_ascii_hexdigit()) {
            let other = if letter == '0' { "1" } else { "0" };
            let mut wrong = text.clone();
            wrong.replace_range(at..=at, other);
            assert!(GroupKey::from_text(&wrong).unwrap_err().contains("typo"));
            tried += 1;
        }
        assert_eq!(tried, 72);
    }

    #[test]
    fn what_is_no_key_is_refused_with_what_is_wrong() {
        let text = GroupKey::random().unwrap().to_text().to_string();
        for (text, want) in [
            (String::new(), "no key file"),
            ("-----BEGIN OPENSSH PRIVATE KEY-----".to_string(), "no key file"),
            (text.replace("version 1", "version 2"), "another version"),
            (
                text.replace("key ", "kex ").replace("faircast group kex", "faircast group key"),
                "no line",
            ),
            (text.trim_end()[..text.len() - 2].to_string(), "fewer"),
            (text.trim_end().to_string() + "0", "more"),
            (text.trim_end()[..text.len() - 2].to_string() + "x", "no digit"),
        ] {
            let problem = GroupKey::from_text(&text).unwrap_err();
            assert!(problem.contains(want), "{problem} instead of {want}");
        }
    }
}
