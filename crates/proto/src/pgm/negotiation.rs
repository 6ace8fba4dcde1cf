//! Scheme negotiation by the option SCHEME. Receivers follow the scheme and settings in SPMs, or,
//! with another scheme, take nothing and report the mismatch.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::congestion::{BoxFeedback, SchemeEntry};
use crate::fields::{Encoded, Fields};
use crate::options::OptionValue;
use crate::pgm::wire::Packet;

/// Most bytes of a scheme's name on the wire.
pub const SCHEME_NAME_MAX: usize = 32;

/// Most bytes of the option's value: an option has 255 bytes with its header.
pub const ANNOUNCED_BYTES_MAX: usize = 251;

/// Announcement of a scheme: the value of the option SCHEME.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemeAnnouncement {
    /// Name of the scheme.
    pub scheme: String,
    /// Settings that differ from their defaults; from a receiver, the length of arriving packets.
    pub settings: Vec<(String, OptionValue)>,
}

impl SchemeAnnouncement {
    /// Encodes the announcement; `None` above [`ANNOUNCED_BYTES_MAX`] or [`SCHEME_NAME_MAX`].
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut out = [VERSION].to_vec();
        put(&mut out, &self.scheme)?;
        for (key, value) in &self.settings {
            put(&mut out, key)?;
            match value {
                OptionValue::Bool(value) => out.push(u8::from(*value)),
                OptionValue::Integer(value) => (INTEGER, value.to_be_bytes()).put(&mut out),
                OptionValue::Float(value) => (FLOAT, value.to_bits()).put(&mut out),
                OptionValue::Text(value) => {
                    out.push(TEXT);
                    put(&mut out, value)?;
                }
                OptionValue::Bytes(_) => return None,
            }
        }
        let fits = self.scheme.len() <= SCHEME_NAME_MAX && out.len() <= ANNOUNCED_BYTES_MAX;
        fits.then_some(out)
    }

    /// Decodes the output of [`encode`](Self::encode); `None` for anything else. Never panics.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let version: u8 = fields.read()?;
        let scheme = take(&mut fields)?;
        let mut settings = Vec::new();
        while fields.end().is_none() {
            let key = take(&mut fields)?;
            let value = match fields.read()? {
                bool @ (0 | 1u8) => OptionValue::Bool(bool == 1),
                INTEGER => OptionValue::Integer(i64::from_be_bytes(fields.read()?)),
                FLOAT => OptionValue::Float(f64::from_bits(fields.read()?)),
                TEXT => OptionValue::Text(take(&mut fields)?),
                _ => return None,
            };
            settings.push((key, value));
        }
        let sound = version == VERSION && !scheme.is_empty() && scheme.len() <= SCHEME_NAME_MAX;
        sound.then_some(Self { scheme, settings })
    }

    /// Decodes as [`decode`](Self::decode); an announcement newer than this build has no name.
    pub(crate) fn decode_or_newer(bytes: &[u8]) -> Option<Self> {
        let newer = bytes.first().is_some_and(|version| *version > VERSION);
        let nameless = Self { scheme: String::new(), settings: Vec::new() };
        if newer { Some(nameless) } else { Self::decode(bytes) }
    }
}

/// Key of the setting for the longest data packet of a stream, in bytes.
pub(crate) const PACKET_BYTES: &str = "packet_bytes";

/// Key of the setting for the longest packet that arrives without data, upstream only; in bytes.
pub(crate) const ARRIVES: &str = "arrives";

pub(crate) fn bytes_of(settings: &[(String, OptionValue)], key: &str) -> Option<u32> {
    let (_, value) = settings.iter().find(|(name, _)| name == key)?;
    let OptionValue::Integer(bytes) = value else { return None };
    u32::try_from(*bytes).ok().filter(|bytes| *bytes <= 0xffff)
}

const VERSION: u8 = 1;

/// Kinds of values beside `false` (0) and `true` (1).
const INTEGER: u8 = 2;
const FLOAT: u8 = 3;
const TEXT: u8 = 4;

fn put(out: &mut Vec<u8>, text: &str) -> Option<()> {
    out.push(u8::try_from(text.len()).ok()?);
    out.extend_from_slice(text.as_bytes());
    Some(())
}

/// Decodes a text after its length. Only printable ASCII is allowed, for terminals.
fn take(fields: &mut Fields<'_>) -> Option<String> {
    let len: u8 = fields.read()?;
    let text = core::str::from_utf8(fields.bytes(usize::from(len))?).ok()?;
    text.bytes().all(|byte| (0x20..0x7f).contains(&byte)).then(|| text.to_string())
}

pub(crate) fn scheme_on(known: &[SchemeEntry], packet: &Packet<'_>) -> Option<&'static str> {
    let rides = |scheme: &&SchemeEntry| packet.options.has(scheme.view.announce_option);
    known.iter().find(rides).map(|scheme| scheme.name)
}

/// Mismatch between the schemes of a sender and a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemeMismatch {
    /// Scheme of the sender; empty if its announcement is newer than this build.
    pub sender: String,
    /// Scheme of the receiver.
    pub receiver: String,
    /// Names of the schemes that this build knows over the transport.
    pub known: Vec<String>,
}

impl SchemeMismatch {
    /// Returns true if the sender's announcement has a newer version than this build knows.
    pub fn is_newer(&self) -> bool {
        self.sender.is_empty()
    }

    /// Returns true if this build knows the sender's scheme.
    pub fn is_known(&self) -> bool {
        self.known.contains(&self.sender)
    }

    pub(crate) fn reason(&self) -> String {
        let Self { sender, receiver, .. } = self;
        if self.is_newer() {
            return "it is too old to know how this sender says what it speaks".to_string();
        }
        match self.is_known() {
            true => format!("it was told to speak {receiver}, and this sender speaks {sender}"),
            false => format!("it does not know the scheme {sender}"),
        }
    }
}

impl fmt::Display for SchemeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sender, receiver, known } = self;
        if self.is_newer() {
            return f.write_str(
                "the sender says what it speaks in a way that is not known here: use a newer \
                 faircast here",
            );
        }
        if self.is_known() {
            return write!(
                f,
                "the sender speaks {sender}, and this receiver was told to speak {receiver}: name \
                 {sender} or no scheme here, or {receiver} at the sender"
            );
        }
        let known = known.join(", ");
        write!(
            f,
            "the sender speaks {sender}, which is not known here: name one of {known} at the sender, \
             or use a version of faircast here that knows it"
        )
    }
}

type Make = Box<dyn Fn(&[(String, OptionValue)]) -> BoxFeedback + Send>;

/// Receiver side of the negotiation: its scheme, and the constructor of its half.
pub struct Negotiation {
    pub(crate) scheme: &'static str,
    known: &'static [SchemeEntry],
    make: Make,
    pub(crate) settings: Vec<(String, OptionValue)>,
    pub(crate) heard: bool,
}

impl Negotiation {
    /// Creates the negotiation of a receiver of `scheme`, one of `known`; `make` creates its half.
    pub fn of(scheme: &'static str, known: &'static [SchemeEntry], make: Make) -> Self {
        Self { scheme, known, make, settings: Vec::new(), heard: false }
    }

    pub(crate) fn packet_bytes(&self) -> Option<u32> {
        bytes_of(&self.settings, PACKET_BYTES)
    }

    pub(crate) fn feedback(&self) -> BoxFeedback {
        (self.make)(&self.settings)
    }

    pub(crate) fn compare(&self, sender: &str) -> Result<(), SchemeMismatch> {
        if self.scheme == sender {
            return Ok(());
        }
        let (sender, receiver) = (sender.to_string(), self.scheme.to_string());
        let known = self.known.iter().map(|scheme| scheme.name.to_string()).collect();
        Err(SchemeMismatch { sender, receiver, known })
    }

    pub(crate) fn compare_data(&self, packet: &Packet<'_>) -> Result<(), SchemeMismatch> {
        scheme_on(self.known, packet).map_or(Ok(()), |scheme| self.compare(scheme))
    }

    /// Takes an announcement of this scheme. Returns a new half if the settings have changed.
    pub(crate) fn hear(&mut self, announced: SchemeAnnouncement) -> Option<BoxFeedback> {
        self.heard = true;
        if announced.settings == self.settings {
            return None;
        }
        self.settings = announced.settings;
        Some(self.feedback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(settings: &[(&str, OptionValue)]) -> SchemeAnnouncement {
        let settings = settings.iter().map(|(key, value)| ((*key).to_string(), value.clone()));
        SchemeAnnouncement { scheme: "some-scheme".to_string(), settings: settings.collect() }
    }

    #[test]
    fn what_is_announced_comes_back_and_no_part_of_it_does() {
        let all = announced(&[
            ("on", OptionValue::Bool(true)),
            ("off", OptionValue::Bool(false)),
            ("whole", OptionValue::Integer(-3)),
            ("part", OptionValue::Float(0.1)),
            ("text", OptionValue::Text("500 ms".to_string())),
        ]);
        let bytes = all.encode().unwrap();
        assert_eq!(SchemeAnnouncement::decode(&bytes), Some(all));
        let whole: Vec<usize> = (0..=bytes.len())
            .filter(|len| SchemeAnnouncement::decode(&bytes[..*len]).is_some())
            .collect();
        assert_eq!(whole, [13, 17, 22, 37, 51, 64]);
        let other = [&[2][..], &bytes[1..]].concat();
        assert_eq!(SchemeAnnouncement::decode(&other), None, "of another version");
        let newer = SchemeAnnouncement::decode_or_newer(&other).unwrap();
        assert_eq!((newer.scheme.as_str(), newer.settings.len()), ("", 0));
        for (bytes, why) in [
            (&[&[0][..], &bytes[1..]].concat()[..], "there was no version 0"),
            (&[], "nothing"),
            (&[1, 0], "no name"),
            (&[1, 3, b'a', 27, b'c'], "what moves a cursor"),
        ] {
            assert_eq!(SchemeAnnouncement::decode(bytes), None, "{why}");
            assert_eq!(SchemeAnnouncement::decode_or_newer(bytes), None, "{why}");
        }
    }

    #[test]
    fn what_is_too_long_is_not_written() {
        let long = |len: usize| OptionValue::Text("x".repeat(len));
        let rest = 1 + 12 + 2 + 1 + 1;
        let most = announced(&[("k", long(ANNOUNCED_BYTES_MAX - rest))]);
        assert_eq!(most.encode().map(|bytes| bytes.len()), Some(ANNOUNCED_BYTES_MAX));
        for len in [ANNOUNCED_BYTES_MAX - rest + 1, 255, 256, 70_000] {
            assert_eq!(announced(&[("k", long(len))]).encode(), None, "{len}");
        }
        let name =
            SchemeAnnouncement { scheme: "x".repeat(SCHEME_NAME_MAX + 1), settings: Vec::new() };
        assert_eq!(name.encode(), None);
    }

    #[test]
    fn a_mismatch_says_what_to_do() {
        let known = "some-scheme";
        let mismatch = |sender: &str, receiver: &str| SchemeMismatch {
            sender: sender.to_string(),
            receiver: receiver.to_string(),
            known: [known.to_string()].into(),
        };
        let text = mismatch(known, "other").to_string();
        assert!(text.contains(&format!("name {known} or no scheme here")), "{text}");
        let newer = mismatch("", known);
        assert!(newer.to_string().contains("use a newer faircast"), "{newer}");
        assert!(newer.reason().contains("too old"), "{}", newer.reason());
        let text = mismatch("unheard-of", known).to_string();
        assert!(text.contains("not known here") && text.contains(known), "{text}");
        for sender in [known, &"x".repeat(SCHEME_NAME_MAX)] {
            let reason = mismatch(sender, &"y".repeat(SCHEME_NAME_MAX)).reason();
            assert!(reason.contains(sender) && reason.len() <= 120, "{reason}");
        }
    }
}
