//! Tests of the receiver alone.

use alloc::vec::Vec;

use super::*;

struct Listener {
    bench: ReceiverBench<TfmccReceiver>,
    seq: u32,
    suppress_above: f32,
}

impl Listener {
    fn new() -> Self {
        let mut receiver = TfmccReceiver::new(NodeId(3));
        receiver.set_header(HEADER_BYTES);
        let bench = ReceiverBench::of(receiver, NodeId(3));
        Self { bench, seq: 0, suppress_above: f32::MAX }
    }

    fn announce(&self, round: u8) -> TfmccAnnounce {
        let sent_us = microseconds(self.bench.now).wrapping_sub(20_000);
        let suppress_above = self.suppress_above;
        TfmccAnnounce { sent_us, echo: None, round, rtt_max_us: 100_000, suppress_above }
    }

    fn named(&self, stamp_us: u32) -> TfmccAnnounce {
        let echo = Echo { receiver: NodeId(3), is_clr: true, stamp_us, held_us: 0 };
        TfmccAnnounce { echo: Some(echo), ..self.announce(1) }
    }

    fn data(&mut self, announce: &TfmccAnnounce) -> Option<TfmccReport> {
        self.bench.arrive(&original(self.seq, PAYLOAD), Some(announce));
        self.seq += 1;
        self.due()
    }

    fn due(&mut self) -> Option<TfmccReport> {
        let mut reports = self.bench.reports();
        assert!(reports.len() <= 1, "{reports:?}");
        let (audience, report) = reports.pop()?;
        assert_eq!(audience, Audience::SenderNak);
        Some(report)
    }

    fn run(&mut self, round: u8, span: Duration) -> Option<TfmccReport> {
        let end = self.bench.now + span;
        while self.bench.now < end {
            let announce = self.announce(round);
            assert!(self.data(&announce).is_none(), "it waits for its timer");
            self.bench.pass(ms(5));
            if let Some(report) = self.due() {
                return Some(report);
            }
        }
        None
    }
}

#[test]
fn a_receiver_answers_repairs_and_what_they_overtake_says_nothing_new() {
    let mut listener = Listener::new();
    let older = listener.named(900_000);
    listener.bench.pass(ms(5));
    let repair = Arrival { repair: true, ..original(70, PAYLOAD) };
    listener.bench.arrive(&repair, Some(&listener.named(960_000)));
    assert!(listener.bench.receiver.is_clr);
    assert!(listener.due().is_some());
    let rtt = listener.bench.receiver.round_trip.seconds().unwrap();
    listener.data(&older);
    assert_eq!(listener.bench.receiver.round_trip.seconds(), Some(rtt));
    assert_eq!(listener.bench.receiver.arrivals.loss(), 0.0, "the repair's number is no hole");
}

#[test]
fn a_pause_forgets_losses_unless_packets_of_it_are_missing() {
    for (missing, forgotten) in [(0, true), (1, false)] {
        let mut listener = Listener::new();
        for k in 0..100 {
            // The third packet from the end is lost too, but not detected.
            listener.seq += u32::from(k == 50 || k == 98);
            listener.data(&listener.announce(1));
            listener.bench.now += ms(5);
        }
        assert!(listener.bench.receiver.arrivals.loss() > 0.0);
        listener.bench.now += Duration::from_secs(20);
        listener.seq += missing;
        for _ in 0..5 {
            listener.data(&listener.announce(2));
            listener.bench.now += ms(5);
        }
        assert_eq!(listener.bench.receiver.arrivals.loss() == 0.0, forgotten, "{missing} missing");
    }
}

#[test]
fn a_receiver_answers_each_round_once() {
    let mut listener = Listener::new();
    for round in [254, 255, 0, 1] {
        let report = listener.run(round, ms(610)).unwrap();
        assert_eq!((report.round, report.have_rtt, report.have_loss), (round, false, false));
        if round == 1 {
            assert!((f64::from(report.bits_per_s) / 3.2e6 - 1.0).abs() < 1e-6);
        }
        assert_eq!(listener.run(round, ms(700)), None, "once");
        assert_eq!(listener.run(round.wrapping_sub(1), ms(700)), None, "an older round");
    }
}

#[test]
fn lower_rates_of_others_silence_a_receiver_that_the_sender_knows_the_distance_of() {
    let reports = |suppressed: bool, rtt_ms: u32| {
        let mut listener = Listener::new();
        let stamp_us = microseconds(listener.bench.now).wrapping_sub(1000 * rtt_ms);
        let echo = Echo { receiver: NodeId(3), is_clr: false, stamp_us, held_us: 0 };
        let first = TfmccAnnounce { echo: Some(echo), ..listener.announce(0) };
        listener.data(&first);
        listener.suppress_above = if suppressed { 1.0 } else { f32::MAX };
        listener.run(1, ms(700)).is_some()
    };
    assert!(reports(false, 40));
    assert!(!reports(true, 40));
    // R_max is 100 ms. A more distant receiver must report (src: RFC 4654 s4.5).
    assert!(reports(true, 140));
}

#[test]
fn the_clr_reports_once_a_round_trip_and_at_each_loss_event() {
    let mut listener = Listener::new();
    let (mut reports, mut stamps) = (Vec::new(), alloc::vec![(0, 960_000)]);
    for k in 0..200u64 {
        if k == 100 {
            listener.seq += 1;
        }
        let back = stamps.iter().rev().find(|(sent, _)| sent + 8 <= k || *sent == 0).unwrap();
        let announce = listener.named(back.1);
        if let Some(report) = listener.data(&announce) {
            stamps.push((k, report.sent_us));
            reports.push((k, report));
        }
        listener.bench.now += ms(5);
    }
    assert!(listener.bench.receiver.is_clr);
    let losses = reports.iter().filter(|(_, report)| report.have_loss).count();
    assert!(losses > 0 && reports.iter().all(|(_, report)| report.have_rtt));
    let first_loss = reports.iter().find(|(_, report)| report.have_loss).unwrap();
    assert_eq!(first_loss.0, 102);
    let before: Vec<u64> = reports.iter().map(|(k, _)| *k).filter(|k| *k < 100).collect();
    assert!(before.len() > 8 && before.windows(2).all(|pair| pair[1] - pair[0] >= 8), "{before:?}");
    let lost = first_loss.1;
    assert!(lost.bits_per_s > 0.0 && lost.bits_per_s.is_finite());
}

#[test]
fn only_a_clr_must_say_that_it_leaves() {
    let mut listener = Listener::new();
    listener.data(&listener.announce(1));
    assert!(!listener.bench.receiver.on_leaving());
    listener.data(&listener.named(960_000));
    assert!(listener.bench.receiver.on_leaving());
    let report = listener.bench.on_nak().unwrap();
    assert!(report.leaving && !report.on_nak);
}
