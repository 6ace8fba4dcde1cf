//! Output of a receiver: acknowledgements, repairs, and requests for a head.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, Time};

use super::{Phase, Timer, TramReceiver};
use crate::congestion::Permit;
use crate::tram::HEADS;
use crate::tram::head::Repair;
use crate::tram::parent::Step;
use crate::tram::settings::HeadRole;
use crate::tram::wire::{self, Ack, Bind, Body, Data, Departeds, Front, Solicitation, seal};
use crate::{Destination, Transmit};

/// Acknowledgement intervals without a repair before a live head is left.
const FRUITLESS_MAX: u32 = 10;

/// Requests without effect before the head is asked for its highest packet.
const FRUITLESS_ASKS: u32 = 2;

/// Most doublings of the interval between requests.
const ASKS_MAX: u32 = 6;

impl TramReceiver {
    pub(super) fn arm_ack(&mut self, now: Time) {
        if let Some(reached) = &self.reached {
            self.timers.arm(Timer::Ack, now + reached.acks.interval());
        }
    }

    pub(super) fn on_ask_timer(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let round_trip = self.parent.bound.map_or(Duration::ZERO, |bound| bound.round_trip);
        let Some(reached) = self.reached.as_mut().filter(|it| it.awaits_answer()) else { return };
        self.ack_due = true;
        // Perhaps no head has the packets: a hello says how far the source is.
        self.hello_missing |=
            reached.asks >= FRUITLESS_ASKS && reached.reception.lacks() && !self.front.done;
        if let Some(reports) = self.reports.as_mut().filter(|_| self.parent.bound.is_none()) {
            reports.feedback.on_stuck(cx);
        }
        let interval = (round_trip * 3 / 2 + self.settings.ask_interval) * (1 << reached.asks);
        reached.asks = (reached.asks + 1).min(ASKS_MAX);
        self.timers.arm(Timer::Ask, now + interval.min(reached.acks.interval()));
    }

    pub(super) fn on_ack_timer(&mut self, cx: &mut Cx<'_>) {
        self.arm_ack(cx.now);
        self.check_rejection(cx);
        let Some(reached) = &mut self.reached else { return };
        let closed = reached.reception.end + reached.window.ack_window > reached.told_allowed;
        let lacks = reached.reception.lacks();
        let changed = reached.told_below != self.head.members.all();
        let news = self.head.members.departures.is_due();
        self.ack_due |= lacks || closed || changed || news || self.completed;
        if !lacks {
            reached.fruitless = 0;
            return;
        }
        reached.fruitless += 1;
        if reached.fruitless > FRUITLESS_MAX {
            reached.fruitless = 0;
            let seeker = self.seeker(cx.now);
            let news = self.parent.on_bad_head(cx.now, seeker, true);
            self.on_news(cx, news);
        }
    }

    pub(super) fn poll_ack(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(to) = self.goodbyes.pop_front() {
            let first_missing = self.reached.as_ref().map_or(1, |it| it.reception.first_missing());
            // A receiver that only changes heads is not missed, and reports to the next head.
            let ends = self.phase == Phase::Left;
            let mut told = Vec::new();
            let ack = Ack {
                leaves: true,
                complete: self.completed,
                first_missing,
                short: ends && self.is_short(),
                departed: self.departed(ends, &mut told),
                ..Ack::default()
            };
            let to = Destination::Node(to);
            return Some(self.identity.control(cx, to, u8::MAX, Body::Ack(ack), buf));
        }
        if !self.ack_due && !self.hello_missing {
            return None;
        }
        let bound = self.parent.bound?;
        let allowed = self.allowed();
        let short = self.completed && self.is_short();
        let mut told = Vec::new();
        let departed = self.departed(self.head.members.departures.is_due(), &mut told);
        let reached = self.reached.as_mut()?;
        self.head.members.departures.on_told();
        self.ack_due = false;
        if allowed > reached.told_allowed {
            reached.told_before = core::mem::replace(&mut reached.told_allowed, allowed);
        }
        reached.told_below = self.head.members.all();
        reached.acks.on_sent();
        let first_missing = reached.reception.first_missing();
        let mut mask = Vec::new();
        // The window bounds requests: a late joiner lacks everything.
        reached.asked_until = first_missing + reached.window.size as u64;
        let asked = reached.asked_until;
        let missing = reached.reception.lost().map(|run| run.start..run.end.min(asked));
        wire::mask(first_missing, missing.take_while(|run| run.start < asked), &mut mask);
        if let Some(reports) = self.reports.as_mut().filter(|_| !mask.is_empty()) {
            reports.on_ask(first_missing);
        }
        let share = |loss: f64| (loss.clamp(0.0, 1.0) * f64::from(u16::MAX)) as u16;
        let (own, below) = (share(reached.window.loss), self.head.members.worst_loss());
        let (indirect, heads) = self.head.members.below();
        let (members, _) = self.head.members.count();
        let takes = self.settings.head != HeadRole::Never;
        let ack = Ack {
            first_missing,
            allowed,
            highest: reached.reception.end - 1,
            loss: own.max(below),
            members,
            indirect,
            heads: heads + u32::from(takes),
            of_subtree: below > own,
            congested: core::mem::take(&mut self.congested),
            leaves: false,
            complete: self.completed,
            hello_missing: core::mem::take(&mut self.hello_missing),
            short,
            departed,
            mask: &mask,
        };
        let awaits_answer = reached.awaits_answer();
        if let Some((before, _)) = reached.before {
            self.goodbyes.retain(|node| *node != before);
        }
        let to = Destination::Node(bound.node);
        let transmit = self.identity.control(cx, to, u8::MAX, Body::Ack(ack), buf);
        self.arm_ack(cx.now);
        let asks = self.settings.ask_interval;
        if awaits_answer && asks > Duration::ZERO && !self.timers.is_armed(Timer::Ask) {
            self.timers.arm(Timer::Ask, cx.now + asks.max(bound.round_trip * 2));
        }
        Some(transmit)
    }

    fn departed<'a>(&self, is_told: bool, buf: &'a mut Vec<u8>) -> Departeds<'a> {
        let members = &self.head.members;
        match is_told {
            true => Departeds::new(members.departures.iter(), members.unnamed(), buf),
            false => Departeds::default(),
        }
    }

    pub(super) fn poll_report(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let head = self.parent.bound;
        self.reports.as_mut()?.poll(cx, &mut self.identity, self.source, head, buf)
    }

    pub(super) fn poll_repair(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.head.repairs.is_waiting() {
            return None;
        }
        self.pace.set(cx.now, self.front.rate.bits_per_s() as f64);
        if let Permit::At(at) = self.pace.permit(cx.now) {
            self.timers.arm(Timer::Pace, at);
            return None;
        }
        let Repair { sequence, to, ttl } = self.head.next_repair(cx.now)?;
        let (payload, zeros) = self.head.cache.get(sequence)?;
        let front = Front { sequence, repair: true, prune: false, ..self.front };
        let done = self.last == Some(sequence);
        let body = Body::Data(Data::plain(Front { done, ..front }, payload));
        self.identity.write_unsealed(cx, ttl, body, buf);
        seal(buf);
        let payload_len = payload.len() as u32 + zeros;
        self.pace.spend(cx.now, payload_len);
        self.repairs += 1;
        cx.emit(Event::DataSent { seq: sequence, bytes: payload_len, repair: true });
        Some(Transmit { zeros, payload_len, time_to_live: ttl, ..Transmit::control(to) })
    }

    pub(super) fn poll_step(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        match self.parent.poll()? {
            Step::Solicit { ttl, name } => {
                let body = Body::Solicitation(Solicitation { role: self.settings.head, name });
                Some(self.identity.control(cx, Destination::Group(HEADS), ttl, body, buf))
            }
            Step::Bind { to, distance } => {
                self.give_up_backlog(cx);
                let first_missing =
                    self.reached.as_ref().map_or(0, |it| it.reception.first_missing());
                let (role, joins) = (self.settings.head, self.joins);
                let bind = Bind { role, distance, joins, first_missing, name: self.name };
                let to = Destination::Node(to);
                Some(self.identity.control(cx, to, u8::MAX, Body::Bind(bind), buf))
            }
            Step::Probe { to } => {
                let body = Body::Solicitation(Solicitation { role: self.settings.head, name: 0 });
                Some(self.identity.control(cx, Destination::Node(to), u8::MAX, body, buf))
            }
            Step::AskHello => {
                self.hello_missing = true;
                None
            }
        }
    }
}
