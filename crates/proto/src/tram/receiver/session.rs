//! Session of a receiver: the latest state of the source, its silence, and the end of the data.

use faircast_base::{Duration, NodeId, Time};

use crate::tram::wire::SourceState;

/// Longest time by which a packet with an older session state is overtaken: 200 ms.
const OLD_STATE_MAX: Duration = Duration::from_millis(200);

/// Longest time by which an old packet is overtaken: later packets contradict an end.
const OVERTAKEN_MAX: Duration = Duration::from_millis(100);

/// Longest silence of the source before a receiver takes the session to be over: 250 s.
const SILENCE_MAX: Duration = Duration::from_secs(250);

/// Longest silence after the end of a session: 10 s shows that nobody repairs missing packets.
const ENDED_SILENCE: Duration = Duration::from_secs(10);

/// Longest silence of a stream after its end without a head: time to find one after an attack.
const HEADLESS_SILENCE: Duration = crate::tram::RECOVERY;

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) source: NodeId,
    /// Latest state of the source, and the time of the packet that had it.
    pub(super) state: SourceState,
    state_at: Time,
    /// Time of the latest packet from the source; zero if none has come.
    pub(super) source_packet_at: Time,
    /// Time of the latest new or missing packet.
    pub(super) data_at: Time,
    /// Last packet of the session, once that is confirmed.
    pub(super) last: Option<u64>,
    /// Claimed last packet, and the time of the claim.
    end_claim: Option<(u64, Time)>,
}

impl Session {
    pub(super) fn new(source: NodeId) -> Self {
        Self { source, ..Self::default() }
    }

    /// True if a delayed packet of the source has an older state, which says nothing new.
    pub(super) fn is_outdated(&self, now: Time, state: &SourceState) -> bool {
        state.sequence < self.state.sequence && now.since(self.state_at) < OLD_STATE_MAX
    }

    pub(super) fn on_state(&mut self, now: Time, state: SourceState) {
        (self.state, self.state_at, self.source_packet_at) = (state, now, now);
    }

    /// True once the source has said that all data was sent.
    fn is_ending(&self) -> bool {
        self.last.is_some() || self.state.done
    }

    pub(super) fn has_claimed_end(&self, last: u64) -> bool {
        self.last == Some(last) || self.end_claim.is_some_and(|(claimed, _)| claimed == last)
    }

    pub(super) fn claim_end(&mut self, now: Time, last: u64) {
        self.end_claim = Some((last, now));
    }

    pub(super) fn contradicts_claim(&self, now: Time, state: &SourceState) -> bool {
        let SourceState { sequence, done, .. } = *state;
        let goes_on = |(last, since)| sequence > last || !done && now.since(since) >= OVERTAKEN_MAX;
        self.end_claim.is_some_and(goes_on)
    }

    pub(super) fn drop_claim(&mut self) {
        self.end_claim = None;
    }

    pub(super) fn take_claim(&mut self) -> Option<u64> {
        self.end_claim.take().map(|(last, _)| last)
    }

    /// Returns the time at which silence ends the session. The source of an application that
    /// releases its receivers (`is_retained`) leaves when all is over. A receiver that has lost its
    /// head, last received at `lost_head_at`, waits for another one.
    pub(super) fn silent_until(&self, is_retained: bool, lost_head_at: Option<Time>) -> Time {
        let latest = self.source_packet_at.max(self.data_at);
        match lost_head_at.filter(|_| self.last.is_some()) {
            _ if is_retained && self.is_ending() => latest + ENDED_SILENCE,
            // All has been sent, and no head is left that could repair it.
            Some(lost_at) => latest.max(lost_at) + HEADLESS_SILENCE,
            None => self.source_packet_at + SILENCE_MAX,
        }
    }
}
