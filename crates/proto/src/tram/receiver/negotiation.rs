//! Negotiation of a receiver: the settings that its source announces, and the agreed stack.

use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Duration, NodeId, Time};

use crate::options::Options;
use crate::pgm::negotiation::SchemeMismatch;
use crate::pgm::session::dissent::Dissent;
use crate::stack::Stack;
use crate::tram::{GivenHead, TreeNegotiation};

pub(super) struct Negotiation {
    options: Options,
    policy: TreeNegotiation,
    /// Node of this end in reports of schemes.
    pub(super) node: NodeId,
    pub(super) assigned: Option<GivenHead>,
    pub(super) agreed: Option<Vec<u8>>,
    pub(super) stack: Option<Stack>,
    /// Unconfirmed claims: another announcement, and one of an unknown stack.
    change: Dissent<Vec<u8>>,
    mismatch_claim: Dissent<()>,
    pub(super) mismatch: Option<SchemeMismatch>,
}

impl Negotiation {
    pub(super) fn new(
        options: Options,
        policy: TreeNegotiation,
        node: NodeId,
        assigned: Option<GivenHead>,
    ) -> Self {
        fresh! {
            Self { options, policy, node, assigned, }
            agreed, stack, change, mismatch_claim, mismatch
        }
    }

    /// Takes the settings of the source; a change is believed only after several packets. Returns
    /// new settings. Fails if the settings are malformed or not accepted.
    pub(super) fn on_settings(
        &mut self,
        now: Time,
        bytes: &[u8],
    ) -> Checked<Option<(Stack, Options)>> {
        if self.agreed.as_deref() == Some(bytes) {
            (self.change, self.mismatch_claim) = Default::default();
            return Ok(None);
        }
        match self.policy.agree(&self.options, bytes) {
            Err(None) => Err(BadInput::Malformed),
            Err(Some(mismatch)) => {
                if self.mismatch_claim.claim(now, (), Duration::ZERO, |()| true) {
                    self.mismatch = Some(mismatch);
                }
                Err(BadInput::OtherScheme)
            }
            Ok(agreed) => {
                self.mismatch_claim.contradict();
                let is_same = |before: &Vec<u8>| before == bytes;
                let is_change = self.agreed.is_some();
                if is_change && !self.change.claim(now, bytes.to_vec(), Duration::ZERO, is_same) {
                    return Err(BadInput::OtherScheme);
                }
                (self.change, self.mismatch_claim, self.mismatch) = Default::default();
                (self.agreed, self.stack) = (Some(bytes.to_vec()), Some(agreed.0));
                Ok(Some(agreed))
            }
        }
    }
}
