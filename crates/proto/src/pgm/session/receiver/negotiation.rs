//! What a receiver does where the source speaks another scheme.

use faircast_base::{BadInput, Cx, Duration};

use super::{ReceiverSession, RepairLayer};
use crate::pgm::negotiation::{Announced, SchemeMismatch};
use crate::pgm::wire::{OptionType, Packet};

impl<R: RepairLayer> ReceiverSession<R> {
    /// What the source speaks, where that is something else.
    pub(crate) fn mismatch(&self) -> Option<&SchemeMismatch> {
        self.mismatch.as_ref()
    }

    /// Forgets all that it has heard, but for the settings of the scheme.
    pub(crate) fn restart(&mut self, cx: &mut Cx<'_>)
    where
        R: Default,
    {
        if let Some(negotiation) = self.negotiation.take() {
            *self = Self::speaking(self.config.clone(), *negotiation, R::default());
            self.on_timeout(cx);
        }
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
            self.ask_nothing();
            self.mismatch = Some(mismatch);
        } else {
            self.want_spm(cx);
        }
        Err(BadInput::OtherScheme)
    }
}
