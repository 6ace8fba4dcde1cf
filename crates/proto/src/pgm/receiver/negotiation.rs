//! What a receiver does where the source speaks another scheme.

use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Duration, Time};

use super::{PgmReceiver, Phase};
use crate::pgm::negotiation::{Announced, SchemeAnnouncement, SchemeMismatch};
use crate::pgm::wire::{OptionType, Packet};
use crate::{AppEvent, Transmit};

impl PgmReceiver {
    /// What the source speaks, where that is something else.
    pub(crate) fn mismatch(&self) -> Option<&SchemeMismatch> {
        self.mismatch.as_ref()
    }

    /// The same receiver before it has heard anything, but for the settings of the scheme.
    pub(crate) fn anew(&mut self) -> Option<Self> {
        Some(Self::listening(self.config.clone(), *self.negotiation.take()?))
    }

    /// Data that another scheme's announcement rides on is not for us.
    pub(super) fn check_data(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), BadInput> {
        let Some(negotiation) = &self.negotiation else { return Ok(()) };
        if packet.options.has(self.scheme_options.announce) {
            self.doubts.scheme.contradict();
            return Ok(());
        }
        match negotiation.compare_data(packet) {
            Err(mismatch) => self.doubt_scheme(cx, mismatch),
            // While it is in doubt what is spoken, what does not tell is not taken.
            _ if self.doubts.scheme.get().is_some() => Err(BadInput::OtherScheme),
            _ => Ok(()),
        }
    }

    /// Reads what an SPM says of the scheme, where it says anything that is listened to. What
    /// cannot be read makes the whole SPM malformed, so this comes before anything that it changes.
    pub(crate) fn read_announced(
        &self,
        packet: &Packet<'_>,
    ) -> Result<Option<Announced>, BadInput> {
        match packet.options.find(OptionType::SCHEME).filter(|_| self.negotiation.is_some()) {
            Some(option) => Announced::decode(option.value).map(Some).ok_or(BadInput::Malformed),
            None => Ok(None),
        }
    }

    /// Takes what a new SPM says of the scheme.
    pub(super) fn take_announced(
        &mut self,
        cx: &mut Cx<'_>,
        announced: Announced,
    ) -> Result<(), BadInput> {
        let Some(negotiation) = &mut self.negotiation else { return Ok(()) };
        match negotiation.compare_announced(&announced) {
            Err(mismatch) => return self.doubt_scheme(cx, mismatch),
            Ok(false) => self.doubts.settings.contradict(),
            // A source keeps to its settings.
            Ok(true) if negotiation.has_heard() => {
                if !self.doubts.settings.claim(cx.now, (), Duration::ZERO, |()| true) {
                    self.want_spm(cx);
                    self.doubts.scheme.contradict();
                    return Ok(());
                }
            }
            Ok(true) => {}
        }
        self.doubts.scheme.contradict();
        if let Some(feedback) = negotiation.hear(announced) {
            self.feedback = feedback;
        }
        Ok(())
    }

    /// A packet speaks another scheme: where others do so too it is the source.
    fn doubt_scheme(&mut self, cx: &mut Cx<'_>, mismatch: SchemeMismatch) -> Result<(), BadInput> {
        if self.doubts.scheme.claim(cx.now, (), Duration::ZERO, |()| true) {
            return self.refuse(cx, mismatch);
        }
        self.want_spm(cx);
        Err(BadInput::OtherScheme)
    }

    /// Ends, and tells both sides. Who takes the payload from the packets tells them himself.
    fn refuse(&mut self, cx: &mut Cx<'_>, mismatch: SchemeMismatch) -> Result<(), BadInput> {
        self.stop_timers();
        self.mismatch = Some(mismatch.clone());
        if let Some(session) = self.session.filter(|_| !self.listens_only) {
            self.phase = Phase::Ended;
            self.refusal.begin(cx, self.config.spm_request_backoff);
            let SchemeMismatch { sender, receiver, .. } = mismatch;
            self.events.push_back(AppEvent::OtherScheme { node: session.source, sender, receiver });
        }
        Err(BadInput::OtherScheme)
    }

    /// Tells the source what is spoken here.
    pub(super) fn write_refusal(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        let scheme = self.mismatch.as_ref()?.receiver.to_string();
        if !core::mem::take(&mut self.refusal.due) {
            return None;
        }
        let value = SchemeAnnouncement { scheme, settings: Vec::new() }.encode()?;
        self.write_request(buf, |encoder| {
            encoder.raw_option(OptionType::SCHEME, 0, &value);
        })
    }
}

/// The word to the source that another scheme is spoken here. There is no answer to it, so it is
/// said a few times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusal {
    said: u32,
    next_at: Option<Time>,
    due: bool,
}

impl Refusal {
    /// Many may find it out at one moment: each waits for up to `spread`.
    fn begin(&mut self, cx: &mut Cx<'_>, spread: Duration) {
        self.next_at = Some(cx.now + cx.rng.up_to(spread));
    }

    pub(super) fn on_timeout(&mut self, cx: &Cx<'_>) {
        if self.next_at.is_some_and(|at| at <= cx.now) {
            self.due = true;
            self.said += 1;
            self.next_at = (self.said < REFUSALS).then_some(cx.now + REFUSAL_INTERVAL);
        }
    }

    pub(super) const fn next_timeout(&self) -> Option<Time> {
        self.next_at
    }
}

/// How often it is said, and when again: at a loss of 10 % one in a thousand goes unheard.
const REFUSALS: u32 = 3;
const REFUSAL_INTERVAL: Duration = Duration::from_millis(300);
