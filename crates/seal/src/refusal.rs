//! Refusals of datagrams: why they are not opened, and how many were not.

use crate::header::KeyHint;

/// Why a datagram was not opened. None of these changes anything for datagrams that are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not sealed: the other end uses no key.
    Plain,
    /// It is sealed by another version of faircast.
    Version,
    /// It is shorter than sealing makes it.
    Short,
    /// It is sealed with another key.
    OtherKey(KeyHint),
    /// It belongs to a session that this source does not send.
    OtherSession,
    /// It comes from a source, and this is one.
    WrongRole,
    /// This end has sealed it.
    Own,
    /// It is not what was sealed, or was sealed by who has not the key.
    Forged,
    /// It was opened before.
    Repeated,
    /// It is too old to know whether it was.
    Old,
    /// Too many unknown parties were heard in this moment.
    Busy,
}

/// How many datagrams were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Not sealed.
    pub plain: u64,
    /// Sealed with another key.
    pub other_key: u64,
    /// Changed, forged, cut short or of another version.
    pub forged: u64,
    /// Repeated, or too old to know.
    pub repeated: u64,
    /// Of another session, of this end itself, or of who has no business here.
    pub foreign: u64,
    /// Of unknown parties, while too many came.
    pub busy: u64,
}

impl Refusals {
    pub(crate) fn count(&mut self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::Plain => &mut self.plain,
            Refusal::OtherKey(_) => &mut self.other_key,
            Refusal::Version | Refusal::Short | Refusal::Forged => &mut self.forged,
            Refusal::Repeated | Refusal::Old => &mut self.repeated,
            Refusal::OtherSession | Refusal::WrongRole | Refusal::Own => &mut self.foreign,
            Refusal::Busy => &mut self.busy,
        };
        *counter += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.plain + self.other_key + self.forged + self.repeated + self.foreign + self.busy
    }
}
