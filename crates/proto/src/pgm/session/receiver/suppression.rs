//! NAK suppression at a receiver: NAKs and confirmations of others, NAK timers, NAKs as reports.

use faircast_base::{BadInput, Checked, Cx, Duration, Time};

use super::naks::{Backoff, Crowd, Expired};
use super::{LAST_HOP_DOUBTED, ReceiverSession, RepairLayer, Timer};
use crate::pgm::PgmFlowSettings;
use crate::pgm::wire::{Body, Nak, Packet, Received};

impl<R: RepairLayer> ReceiverSession<R> {
    /// Takes a confirmation, or the NAK of a neighbour, which may carry a report or be null.
    pub(super) fn take_others_nak(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        nak: Nak,
    ) -> Checked {
        let confirmed = matches!(packet.body, Body::Ncf(_));
        if !self.config.group.is_group(nak.group) || !confirmed && !packet.is_for_group() {
            return Err(BadInput::Foreign);
        }
        if let Some(option) = packet.options.find(self.scheme.options.report).filter(|_| !confirmed)
        {
            self.scheme.feedback.on_overheard(cx, packet.from, option.value)?;
        }
        if !matches!(packet.body, Body::Nnak(_)) {
            self.note_nak_or_ncf(cx, packet, confirmed);
        }
        Ok(())
    }

    /// Notes that packets, which therefore exist, were requested by others or are `confirmed`.
    fn note_nak_or_ncf(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, confirmed: bool) {
        for seq in packet.nak_sequence() {
            let Some(window) = &mut self.window else { return };
            let Some(index) = window.index(seq) else { continue };
            if index >= window.end() || window.received(index) {
                self.suppress_or_confirm(cx, index, confirmed);
                continue;
            }
            let can_be = self.reach.as_ref().is_some_and(|reach| reach.can_be(cx.now, index));
            if index >= window.next && !window.is_given_up(index) && can_be {
                window.learn(index);
                if !self.suppress_or_confirm(cx, index, confirmed) {
                    let mut backoff = Backoff::new(cx.now);
                    self.declare_run(cx, &mut backoff, index, index);
                    self.suppress_or_confirm(cx, index, confirmed);
                }
            }
            self.lone_nak.suppress(cx.now);
            self.timers.disarm(Timer::LoneNak);
        }
        self.advance(cx);
        self.find_gaps(cx);
    }

    /// Notes a request or confirmation of packet `index`. Returns true if it is requested here.
    fn suppress_or_confirm(&mut self, cx: &Cx<'_>, index: u64, confirmed: bool) -> bool {
        self.repair.naks_mut().is_some_and(|naks| match confirmed {
            true => naks.confirmed(index, cx.now),
            false => naks.suppress(index, cx.now),
        })
    }

    pub(super) fn expire_naks(&mut self, cx: &mut Cx<'_>) {
        let can_ask = self.last_hop().is_some();
        let naks = self.repair.naks_mut();
        let Expired { stuck, unconfirmed, give_up } =
            naks.map(|naks| naks.expire(cx, can_ask)).unwrap_or_default();
        if self.timers.take_due(Timer::LoneNak, cx.now) {
            if can_ask {
                self.lone_nak.on_timeout(cx.now);
            } else {
                // Without an SPM there is no path for the NAK.
                let backoff = cx.rng.up_to(self.config.settings.nak_backoff);
                self.timers.arm(Timer::LoneNak, cx.now + backoff);
            }
        }
        let changed = self.source.and_then(|source| source.last_hop_changed_at);
        if unconfirmed && changed.is_some_and(|at| cx.now.since(at) < LAST_HOP_DOUBTED) {
            // The named last hop may be forged, with no element there.
            self.want_spm(cx);
        }
        if stuck || !can_ask && self.timers.is_armed(Timer::LoneNak) {
            self.scheme.feedback.on_naks_blocked(cx);
            self.want_spm(cx);
        }
        if let Some(window) = self.window.as_mut().filter(|_| !give_up.is_empty()) {
            give_up.iter().for_each(|&index| window.give_up(index));
            self.advance(cx);
        }
    }
}

/// NAK as a report, without repair: at most one in an interval, for all losses of a round trip.
#[derive(Debug, Default)]
pub(super) struct LoneNak {
    crowd: Crowd,
    interval: Duration,
    /// Packet that the planned NAK names, and packet that the due NAK names.
    pub(super) planned: Option<u64>,
    pub(super) due: Option<u64>,
    /// Time of the last NAK, of this receiver or of one that suppressed it.
    last_at: Option<Time>,
}

impl LoneNak {
    pub(super) fn new(settings: &PgmFlowSettings) -> Self {
        Self { crowd: Crowd::new(settings), interval: settings.report_interval, ..Self::default() }
    }

    /// Plans the report of lost packet `index`. Returns its time, unless one is planned or recent.
    pub(super) fn plan(
        &mut self,
        cx: &mut Cx<'_>,
        backoff: &mut Backoff,
        index: u64,
    ) -> Option<Time> {
        let recent = self.last_at.is_some_and(|at| cx.now.since(at) < self.interval);
        if self.planned.is_some() || recent {
            return None;
        }
        self.planned = Some(index);
        Some(backoff.draw(&self.crowd, cx.rng))
    }

    /// NAK suppression: the NAK or confirmation of any loss replaces the planned NAK.
    pub(super) fn suppress(&mut self, now: Time) {
        (self.planned, self.last_at) = (None, Some(now));
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        (self.due, self.last_at) = (self.planned.take(), Some(now));
    }
}
