//! Reasons and counters of refused datagrams.

use crate::header::KeyHint;

/// Reason why a datagram was not opened. A refusal has no effect on valid datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Refusal {
    /// Not sealed: the other end uses no key.
    Plain,
    Version,
    Short,
    OtherKey(KeyHint),
    OtherSession,
    /// From a source to a source.
    WrongRole,
    Own,
    /// Changed, or sealed without the key.
    Forged,
    Repeated,
    /// Too old for the replay window.
    Old,
    /// Refused without a check: the budget for unknown parties is used up.
    Busy,
}

/// Numbers of refused datagrams by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Refusals {
    pub plain: u64,
    pub other_key: u64,
    /// Changed, forged, truncated or of another version.
    pub forged: u64,
    /// Repeated, or too old for the replay window.
    pub repeated: u64,
    /// Other session, other role, or sealed by this end.
    pub foreign: u64,
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

    /// Returns the total.
    pub fn total(&self) -> u64 {
        self.plain + self.other_key + self.forged + self.repeated + self.foreign + self.busy
    }
}
