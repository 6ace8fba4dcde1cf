//! Test benches for the sender's and the receiver's half of a scheme, with clock and trace.

use core::fmt::Debug;
use std::vec::Vec;

use faircast_base::{
    CutReason, Cx, Duration, Event, NodeId, Purpose, Rng, Seq, SwitchReason, Time,
};

use crate::congestion::{
    Arrival, Audience, Carrier, Permit, ReceiverFeedback, SenderControl, Wire,
};
use crate::world::Log;
pub(crate) use crate::world::{at, ms};

pub(crate) fn original(seq: u32, len: u32) -> Arrival {
    let (seq, congestion_experienced, reordering) = (Seq::new(seq), false, None);
    Arrival { seq, len, repair: false, duplicate: false, congestion_experienced, reordering }
}

pub(crate) fn encoded<W: Wire>(value: &W) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// Checks that a value fits, decodes to itself, and is refused with a byte too few or too many.
pub(crate) fn check_wire<W: Wire + PartialEq + Debug>(value: &W) {
    let bytes = encoded(value);
    assert!(bytes.len() <= W::BYTES_MAX, "{value:?}");
    assert_eq!(W::decode(&bytes).as_ref(), Some(value));
    assert_eq!(W::decode(&bytes[1..]), None);
    assert_eq!(W::decode(&[&bytes[..], &[0]].concat()), None);
}

pub(crate) struct SenderBench<C: SenderControl> {
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) log: Log,
    pub(crate) sender: C,
    pub(crate) len: u32,
    pub(crate) sent: Vec<(Time, C::Announce)>,
    pub(crate) acked: u32,
}

impl<C: SenderControl<Announce: Clone>> SenderBench<C> {
    pub(crate) fn of(sender: C, len: u32) -> Self {
        Self {
            now: Time::ZERO,
            rng: Rng::new(1, NodeId(0), Purpose::Machine(0)),
            log: Log::keeping(),
            sender,
            len,
            sent: Vec::new(),
            acked: 0,
        }
    }

    pub(crate) fn with<T>(&mut self, act: impl FnOnce(&mut C, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.log);
        act(&mut self.sender, &mut cx)
    }

    pub(crate) fn next(&self) -> u32 {
        self.sent.len() as u32
    }

    pub(crate) fn permit(&mut self) -> Permit {
        let len = self.len;
        self.with(|sender, cx| sender.permit(cx, len, false))
    }

    pub(crate) fn send(&mut self) -> C::Announce {
        let (seq, len) = (Seq::new(self.next()), self.len);
        let announce = self.with(|sender, cx| sender.on_sent(cx, seq, len));
        self.sent.push((self.now, announce.clone()));
        announce
    }

    pub(crate) fn send_repair(&mut self, seq: u32) -> Option<C::Announce> {
        let len = self.len;
        self.with(|sender, cx| sender.on_repair_sent(cx, Seq::new(seq), len))
    }

    pub(crate) fn pump(&mut self, most: u32) -> u32 {
        let before = self.next();
        while self.next() - before < most && self.permit() == Permit::Now {
            self.send();
        }
        self.next() - before
    }

    pub(crate) fn advance(&mut self, span: Duration) {
        self.now += span;
        self.with(|sender, cx| sender.on_timeout(cx));
    }

    pub(crate) fn pass(&mut self, span: Duration) -> u32 {
        let before = self.next();
        self.pass_with(span, false, |bench| _ = bench.send());
        self.next() - before
    }

    pub(crate) fn pass_repairs(&mut self, span: Duration) -> Vec<(Time, Option<C::Announce>)> {
        let mut repairs = Vec::new();
        self.pass_with(span, true, |bench| repairs.push((bench.now, bench.send_repair(0))));
        repairs
    }

    fn pass_with(&mut self, span: Duration, repairs: bool, mut send: impl FnMut(&mut Self)) {
        let (end, len) = (self.now + span, self.len);
        loop {
            let ready = match self.with(|sender, cx| sender.permit(cx, len, repairs)) {
                Permit::Now => {
                    send(self);
                    continue;
                }
                Permit::At(at) => at,
                Permit::Blocked => panic!("a rate never blocks"),
            };
            let timer = self.sender.next_timeout().unwrap_or(Time::MAX);
            if ready.min(timer) >= end {
                break;
            }
            self.now = self.now.max(ready.min(timer));
            if timer <= self.now {
                self.with(SenderControl::on_timeout);
            }
        }
        self.now = end;
    }

    pub(crate) fn take(&mut self, report: &C::Report) {
        self.take_on(Carrier::NullNak { latest: Seq::new(0) }, report);
    }

    pub(crate) fn take_on(&mut self, carrier: Carrier, report: &C::Report) {
        let from = C::reporter(report).unwrap_or(NodeId(9999));
        self.with(|sender, cx| sender.on_report(cx, from, carrier, report));
    }

    pub(crate) fn representative(&self) -> Option<u32> {
        self.sender.gauges().representative.map(|node| node.0)
    }

    pub(crate) fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.log.count(which)
    }

    pub(crate) fn cuts(&self, why: CutReason) -> usize {
        self.count(|event| matches!(event, Event::Cut { reason, .. } if *reason == why))
    }

    pub(crate) fn stalls(&self) -> usize {
        self.count(|event| matches!(event, Event::Timeout { .. }))
    }

    pub(crate) fn refused(&self) -> usize {
        self.count(|event| matches!(event, Event::BadInput { .. }))
    }

    pub(crate) fn switches(&self) -> Vec<(Option<u32>, SwitchReason)> {
        let switch = |(_, event): &(Time, Event)| match *event {
            Event::Representative { node, reason } => Some((node.map(|node| node.0), reason)),
            _ => None,
        };
        self.log.events.iter().filter_map(switch).collect()
    }
}

pub(crate) struct ReceiverBench<F> {
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) log: Log,
    pub(crate) receiver: F,
}

impl<F: ReceiverFeedback> ReceiverBench<F> {
    pub(crate) fn of(receiver: F, node: NodeId) -> Self {
        let rng = Rng::new(1, node, Purpose::Machine(0));
        Self { now: Time::ZERO + ms(1000), rng, log: Log::keeping(), receiver }
    }

    pub(crate) fn with<T>(&mut self, act: impl FnOnce(&mut F, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.log);
        act(&mut self.receiver, &mut cx)
    }

    pub(crate) fn arrive(&mut self, arrival: &Arrival, announce: Option<&F::Announce>) {
        self.with(|receiver, cx| receiver.on_data(cx, arrival, announce));
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.receiver.next_timeout().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.with(|receiver, cx| receiver.on_timeout(cx));
        }
        self.now = end;
    }

    pub(crate) fn reports(&mut self) -> Vec<(Audience, F::Report)> {
        core::iter::from_fn(|| self.with(|receiver, cx| receiver.poll_report(cx))).collect()
    }

    pub(crate) fn on_nak(&mut self) -> Option<F::Report> {
        self.with(|receiver, cx| receiver.report_for_nak(cx))
    }
}
