//! Output of a receiver: acknowledgements, repairs, and requests for a head.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, NodeId, Time};

use super::{Timer, TramReceiver};
use crate::congestion::Permit;
use crate::tram::HEADS;
use crate::tram::membership::Request;
use crate::tram::settings::HeadRole;
use crate::tram::window::Repair;
use crate::tram::wire::{self, Ack, Bind, Body, Data, DepartureList, Solicitation, SourceState};
use crate::{Destination, Transmit};

impl TramReceiver {
    pub(super) fn arm_ack(&mut self, now: Time) {
        if let Some(window) = &self.window {
            self.timers.arm(Timer::Ack, now + window.ack_schedule.interval());
        }
    }

    pub(super) fn on_request_timer(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let parent = self.affiliation.parent;
        let round_trip = parent.map_or(Duration::ZERO, |parent| parent.round_trip);
        let Some(window) = self.window.as_mut().filter(|window| window.awaits_answer()) else {
            return;
        };
        self.next_ack.due = true;
        // Perhaps no head has the packets: a hello says how far the source is.
        let has_losses = window.reception.has_losses();
        self.next_ack.hello_missing |=
            window.requests.needs_hello() && has_losses && !self.session.state.done;
        if let Some(reports) = self.reports.as_mut().filter(|_| parent.is_none()) {
            reports.feedback.on_naks_blocked(cx);
        }
        let delay = window.requests.back_off(round_trip * 3 / 2 + self.settings.ask_interval);
        self.timers.arm(Timer::Request, now + delay.min(window.ack_schedule.interval()));
    }

    pub(super) fn on_ack_timer(&mut self, cx: &mut Cx<'_>) {
        self.arm_ack(cx.now);
        self.check_rejection(cx);
        let Some(window) = &mut self.window else { return };
        let has_losses = window.reception.has_losses();
        let members = &self.head.members;
        let changed = window.reported.receivers != members.all() || members.departures.is_due();
        self.next_ack.due |=
            has_losses || window.is_closing() || changed || self.delivery.completed;
        if window.requests.on_interval(has_losses) {
            let seeker = self.seeker(cx.now);
            let change = self.affiliation.on_head_failure(cx.now, seeker, true);
            self.on_parent_change(cx, change);
        }
    }

    pub(super) fn poll_ack(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(to) = self.past_parents.goodbyes.pop_front() {
            return Some(self.goodbye(cx, to, buf));
        }
        if !self.next_ack.due && !self.next_ack.hello_missing {
            return None;
        }
        let parent = self.affiliation.parent?;
        let allowed = self.allowed();
        let short = self.delivery.completed && self.delivery.is_short();
        let mut listed = Vec::new();
        let departed = self.departed(self.head.members.departures.is_due(), &mut listed);
        let members = &mut self.head.members;
        let window = self.window.as_mut()?;
        members.departures.on_reported();
        self.next_ack.due = false;
        window.reported.on_ack(allowed, members.all());
        window.ack_schedule.packets = 0;
        let first_missing = window.reception.first_missing();
        let mask = wire::mask(first_missing, window.request());
        if let Some(reports) = self.reports.as_mut().filter(|_| !mask.is_empty()) {
            reports.on_request(first_missing);
        }
        let share = |loss: f64| (loss.clamp(0.0, 1.0) * f64::from(u16::MAX)) as u16;
        let (own_loss, loss_below) = (share(window.congestion.loss), members.worst_loss());
        let (indirect, heads) = members.below();
        let takes_members = self.settings.head != HeadRole::Never;
        let ack = Ack {
            first_missing,
            allowed,
            highest: window.reception.end - 1,
            loss: own_loss.max(loss_below),
            members: members.count().0,
            indirect,
            heads: heads + u32::from(takes_members),
            of_subtree: loss_below > own_loss,
            congested: core::mem::take(&mut self.next_ack.congested),
            leaves: false,
            complete: self.delivery.completed,
            hello_missing: core::mem::take(&mut self.next_ack.hello_missing),
            short,
            departed,
            mask: &mask,
        };
        let awaits_answer = window.awaits_answer();
        // The previous parent still repairs.
        let previous = self.past_parents.previous.map(|(node, _)| node);
        self.past_parents.goodbyes.retain(|node| Some(*node) != previous);
        let to = Destination::Node(parent.node);
        let transmit = self.identity.send(cx, to, Body::Ack(ack), buf);
        self.arm_ack(cx.now);
        let delay = self.settings.ask_interval;
        if awaits_answer && delay > Duration::ZERO && !self.timers.is_armed(Timer::Request) {
            self.timers.arm(Timer::Request, cx.now + delay.max(parent.round_trip * 2));
        }
        Some(transmit)
    }

    fn goodbye(&mut self, cx: &mut Cx<'_>, to: NodeId, buf: &mut Vec<u8>) -> Transmit {
        // A receiver that only changes heads is not missed, and reports to the next head.
        let ends = self.is_over();
        let mut listed = Vec::new();
        let ack = Ack {
            leaves: true,
            complete: self.delivery.completed,
            first_missing: self
                .window
                .as_ref()
                .map_or(1, |window| window.reception.first_missing()),
            short: ends && self.delivery.is_short(),
            departed: self.departed(ends, &mut listed),
            ..Ack::default()
        };
        self.identity.send(cx, Destination::Node(to), Body::Ack(ack), buf)
    }

    /// Returns the departed receivers for an acknowledgement, or none if they are not reported.
    fn departed<'a>(&self, is_reported: bool, buf: &'a mut Vec<u8>) -> DepartureList<'a> {
        let members = &self.head.members;
        match is_reported {
            true => DepartureList::new(members.departures.iter(), members.unlisted(), buf),
            false => DepartureList::default(),
        }
    }

    pub(super) fn poll_report(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (source, parent) = (self.session.source, self.affiliation.parent);
        self.reports.as_mut()?.poll(cx, &mut self.identity, source, parent, buf)
    }

    pub(super) fn poll_repair(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let Self { repairer, session, .. } = self;
        if !repairer.is_waiting() {
            return None;
        }
        repairer.pace.set(cx.now, session.state.rate.bits_per_s() as f64);
        if let Permit::At(at) = repairer.pace.permit(cx.now) {
            self.timers.arm(Timer::Pace, at);
            return None;
        }
        let Repair { sequence, to, ttl } = repairer.next(cx.now, self.head.members.reach())?;
        self.head.members.on_repair(sequence, to);
        let (payload, zeros) = repairer.cache.get(sequence)?;
        let done = session.last == Some(sequence);
        let state = SourceState { sequence, repair: true, prune: false, done, ..session.state };
        let body = Body::Data(Data { state, announce: None, payload });
        self.identity.packet(cx, ttl, body).write(buf);
        let payload_len = payload.len() as u32 + zeros;
        repairer.pace.spend(cx.now, payload_len);
        repairer.sent += 1;
        cx.emit(Event::DataSent { seq: sequence, bytes: payload_len, repair: true });
        Some(Transmit { zeros, payload_len, time_to_live: ttl, ..Transmit::control(to) })
    }

    pub(super) fn poll_request(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let role = self.settings.head;
        let (to, ttl, body) = match self.affiliation.poll()? {
            Request::Solicit { ttl, name } => {
                (Destination::Group(HEADS), ttl, Body::Solicitation(Solicitation { role, name }))
            }
            Request::Bind { to, distance } => {
                self.give_up_backlog(cx);
                let first_missing =
                    self.window.as_ref().map_or(0, |it| it.reception.first_missing());
                let (joins, name) = (self.past_parents.joins, self.name);
                let bind = Bind { role, distance, joins, first_missing, name };
                (Destination::Node(to), u8::MAX, Body::Bind(bind))
            }
            Request::Probe { to } => {
                let body = Body::Solicitation(Solicitation { role, name: 0 });
                (Destination::Node(to), u8::MAX, body)
            }
            Request::Hello => {
                self.next_ack.hello_missing = true;
                return None;
            }
        };
        self.identity.packet(cx, ttl, body).write(buf);
        Some(Transmit { time_to_live: ttl, ..Transmit::control(to) })
    }
}
