//! A receiver alone, with data as it may come.

use super::*;

/// A receiver with a clock of its own.
struct Group {
    now: Time,
    rng: Rng,
    log: Log,
    receiver: TfmccReceiver,
    seq: u32,
    suppress_above: f32,
}

impl Group {
    fn new(node: u32) -> Self {
        Self {
            now: Time::ZERO + ms(1000),
            rng: Rng::new(u64::from(node), NodeId(node), Purpose::Machine(0)),
            log: Log::default(),
            receiver: TfmccReceiver::new(TfmccConfig::default(), NodeId(node)),
            seq: 0,
            suppress_above: f32::MAX,
        }
    }

    fn announce(&self, round: u8) -> TfmccAnnounce {
        let sent_us = microseconds(self.now).wrapping_sub(20_000);
        let suppress_above = self.suppress_above;
        TfmccAnnounce { sent_us, echo: None, round, rtt_max_us: 100_000, suppress_above }
    }

    /// Data comes; returns the report that it caused.
    fn data(&mut self, announce: &TfmccAnnounce) -> Option<(Audience, TfmccReport)> {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut self.log };
        let arrival = Arrival {
            seq: Seq::new(self.seq),
            len: PAYLOAD,
            repair: false,
            duplicate: false,
            congestion_experienced: false,
        };
        self.seq += 1;
        self.receiver.on_data(&mut cx, &arrival, Some(announce));
        self.receiver.poll_report(&mut cx)
    }

    /// Data each 5 ms of one round until a report or this long.
    fn run(&mut self, round: u8, span: Duration) -> Option<TfmccReport> {
        let end = self.now + span;
        while self.now < end {
            let announce = self.announce(round);
            assert!(self.data(&announce).is_none(), "it waits for its timer");
            self.now += ms(5);
            let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut self.log };
            self.receiver.on_timeout(&mut cx);
            if let Some((audience, report)) = self.receiver.poll_report(&mut cx) {
                assert_eq!(audience, Audience::SenderNak);
                return Some(report);
            }
        }
        None
    }
}

#[test]
fn a_receiver_answers_repairs_and_what_they_overtake_says_nothing_new() {
    let mut group = Group::new(3);
    let echo = |stamp_us| Some(Echo { receiver: NodeId(3), is_clr: true, stamp_us, held_us: 0 });
    let older = TfmccAnnounce { echo: echo(900_000), ..group.announce(1) };
    group.now += ms(5);
    let mut cx = Cx { now: group.now, rng: &mut group.rng, trace: &mut group.log };
    let repair = Arrival {
        seq: Seq::new(70),
        len: PAYLOAD,
        repair: true,
        duplicate: false,
        congestion_experienced: false,
    };
    let sent_us = microseconds(group.now).wrapping_sub(20_000);
    let announce = TfmccAnnounce { sent_us, echo: echo(960_000), ..older };
    group.receiver.on_data(&mut cx, &repair, Some(&announce));
    assert!(group.receiver.is_clr());
    assert!(group.receiver.poll_report(&mut cx).is_some());
    let rtt = group.receiver.rtt().unwrap();
    // The original left before it, and its echo with it.
    group.data(&older);
    assert_eq!(group.receiver.rtt(), Some(rtt));
    assert_eq!(group.receiver.loss(), 0.0, "the repair's number is no hole");
}

#[test]
fn a_pause_forgets_losses_unless_packets_of_it_are_missing() {
    for (missing, forgotten) in [(0, true), (1, false)] {
        let mut group = Group::new(3);
        for k in 0..100 {
            // The third packet from the end is lost too, and not known to be.
            group.seq += u32::from(k == 50 || k == 98);
            let announce = group.announce(1);
            group.data(&announce);
            group.now += ms(5);
        }
        assert!(group.receiver.loss() > 0.0);
        group.now += Duration::from_secs(20);
        group.seq += missing;
        for _ in 0..5 {
            let announce = group.announce(2);
            group.data(&announce);
            group.now += ms(5);
        }
        assert_eq!(group.receiver.loss() == 0.0, forgotten, "{missing} missing");
    }
}

#[test]
fn a_receiver_answers_each_round_once() {
    let mut group = Group::new(3);
    for round in [254, 255, 0, 1] {
        let report = group.run(round, ms(610)).unwrap();
        assert_eq!((report.round, report.have_rtt, report.have_loss), (round, false, false));
        if round == 1 {
            // Twice the receive rate: a packet of 1000 bytes each 5 ms.
            assert!((f64::from(report.bits_per_s) / 3.2e6 - 1.0).abs() < 1e-6);
        }
        assert_eq!(group.run(round, ms(700)), None, "once");
        assert_eq!(group.run(round.wrapping_sub(1), ms(700)), None, "an older round");
    }
}

#[test]
fn lower_rates_of_others_silence_a_receiver_that_the_sender_knows_the_distance_of() {
    // Whether it reports in a round whose data says that somebody can take next to nothing.
    let reports = |suppressed: bool, rtt_ms: u32| {
        let mut group = Group::new(3);
        let stamp_us = microseconds(group.now).wrapping_sub(1000 * rtt_ms);
        let echo = Echo { receiver: NodeId(3), is_clr: false, stamp_us, held_us: 0 };
        let first = TfmccAnnounce { echo: Some(echo), ..group.announce(0) };
        group.data(&first);
        group.suppress_above = if suppressed { 1.0 } else { f32::MAX };
        group.run(1, ms(700)).is_some()
    };
    assert!(reports(false, 40));
    assert!(!reports(true, 40));
    // R_max is 100 ms. Who is farther must say so (src: RFC 4654 s4.5).
    assert!(reports(true, 140));
}

#[test]
fn the_clr_reports_once_a_round_trip_and_at_each_loss_event() {
    let mut group = Group::new(3);
    let named = |group: &Group, stamp_us: u32| {
        let echo = Echo { receiver: NodeId(3), is_clr: true, stamp_us, held_us: 0 };
        TfmccAnnounce { echo: Some(echo), ..group.announce(1) }
    };
    // Its timestamps come back 40 ms after they left.
    let (mut reports, mut stamps) = (Vec::new(), alloc::vec![(0, 960_000)]);
    for k in 0..200u64 {
        if k == 100 {
            group.seq += 1;
        }
        let back = stamps.iter().rev().find(|(sent, _)| sent + 8 <= k || *sent == 0).unwrap();
        let announce = named(&group, back.1);
        if let Some((_, report)) = group.data(&announce) {
            stamps.push((k, report.sent_us));
            reports.push((k, report));
        }
        group.now += ms(5);
    }
    assert!(group.receiver.is_clr());
    let losses = reports.iter().filter(|(_, report)| report.have_loss).count();
    assert!(losses > 0 && reports.iter().all(|(_, report)| report.have_rtt));
    // Three later packets show the loss, and it is told at once.
    let first_loss = reports.iter().find(|(_, report)| report.have_loss).unwrap();
    assert_eq!(first_loss.0, 102);
    let before: Vec<u64> = reports.iter().map(|(k, _)| *k).filter(|k| *k < 100).collect();
    assert!(before.len() > 8 && before.windows(2).all(|pair| pair[1] - pair[0] >= 8), "{before:?}");
    let lost = first_loss.1;
    assert!(lost.bits_per_s > 0.0 && lost.bits_per_s.is_finite());
}

#[test]
fn only_a_clr_must_say_that_it_leaves() {
    let mut group = Group::new(3);
    let announce = group.announce(1);
    group.data(&announce);
    assert!(!group.receiver.on_leaving());
    let echo = Echo { receiver: NodeId(3), is_clr: true, stamp_us: 960_000, held_us: 0 };
    let announce = TfmccAnnounce { echo: Some(echo), ..group.announce(1) };
    group.data(&announce);
    assert!(group.receiver.on_leaving());
    let mut cx = Cx { now: group.now, rng: &mut group.rng, trace: &mut group.log };
    let report = group.receiver.report_for_nak(&mut cx).unwrap();
    assert!(report.leaving && !report.rides);
}
