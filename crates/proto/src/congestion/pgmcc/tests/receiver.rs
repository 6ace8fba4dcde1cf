//! The receiver's half.

use std::vec;
use std::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, NullTrace, Purpose, Rng, Seq, Time};

use super::harness::ms;
use crate::congestion::pgmcc::{
    ElectionReply, LossEstimator, PgmccAnnounce, PgmccConfig, PgmccReceiver, PgmccReport,
};
use crate::congestion::{Arrival, Audience, ReceiverFeedback};

const ME: NodeId = NodeId(4);
const OTHER: NodeId = NodeId(5);

struct Bench {
    now: Time,
    rng: Rng,
    receiver: PgmccReceiver,
}

impl Bench {
    fn new(config: PgmccConfig) -> Self {
        let rng = Rng::new(1, ME, Purpose::Machine(0));
        Self { now: Time::ZERO, rng, receiver: PgmccReceiver::new(config, ME) }
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut PgmccReceiver, &mut Cx<'_>) -> R) -> R {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut NullTrace };
        f(&mut self.receiver, &mut cx)
    }

    fn data(&mut self, seq: u32, sent_ms: u32, acker: Option<NodeId>, repair: bool) {
        let arrival = Arrival {
            seq: Seq::new(seq),
            len: 1400,
            repair,
            duplicate: false,
            congestion_experienced: false,
        };
        let announce = PgmccAnnounce { sent_ms, acker };
        self.with(|r, cx| r.on_data(cx, &arrival, Some(&announce)));
    }

    fn reports(&mut self) -> Vec<(Audience, PgmccReport)> {
        let mut reports = Vec::new();
        while let Some(report) = self.with(|r, cx| r.poll_report(cx)) {
            reports.push(report);
        }
        reports
    }

    fn advance(&mut self, span: Duration) {
        self.now += span;
        self.with(|r, cx| r.on_timeout(cx));
    }
}

#[test]
fn each_packet_that_names_it_is_acknowledged_at_once() {
    let mut bench = Bench::new(PgmccConfig { ack_every: 1, ..PgmccConfig::default() });
    bench.data(0, 1000, Some(ME), false);
    let report = PgmccReport { echo_ms: 1000, loss: 0, receiver: Some(ME) };
    assert_eq!(bench.reports(), vec![(Audience::SenderAck, report)]);
    bench.data(1, 1010, Some(OTHER), false);
    assert_eq!(bench.reports(), vec![]);
    let duplicate = Arrival {
        seq: Seq::new(0),
        len: 1400,
        repair: false,
        duplicate: true,
        congestion_experienced: false,
    };
    let announce = PgmccAnnounce { sent_ms: 1000, acker: Some(ME) };
    bench.with(|r, cx| r.on_data(cx, &duplicate, Some(&announce)));
    assert_eq!(bench.reports(), vec![]);
}

#[test]
fn packets_of_one_moment_are_acknowledged_together_where_that_is_wanted() {
    for (packets, at_once, at_the_end) in [(1, 0, 1), (7, 0, 1), (8, 1, 0), (20, 2, 1)] {
        let mut bench = Bench::new(PgmccConfig { ack_every: 8, ..PgmccConfig::default() });
        let mut acks = 0;
        for seq in 0..packets {
            bench.data(seq, 1000, Some(ME), false);
            acks += bench.reports().len();
        }
        assert_eq!(acks, at_once, "{packets}");
        let held = bench.with(|r, _| r.next_timeout() == Some(Time::ZERO));
        assert_eq!(held, at_the_end > 0, "a timer for the same moment ends it");
        bench.advance(Duration::ZERO);
        assert_eq!(bench.reports().len(), at_the_end, "{packets}");
        assert_eq!(bench.with(|r, _| r.next_timeout()), None);
    }
}

#[test]
fn a_report_counts_the_time_for_which_the_timestamp_was_held() {
    let loss_estimator = LossEstimator::Ewma;
    let mut bench = Bench::new(PgmccConfig { loss_estimator, ..PgmccConfig::default() });
    assert_eq!(bench.with(|r, cx| r.report_for_nak(cx)), None, "no timestamp yet");
    bench.data(0, u32::MAX - 9, Some(OTHER), false);
    bench.data(2, u32::MAX - 4, Some(OTHER), false);
    bench.advance(ms(30));
    let report = bench.with(|r, cx| r.report_for_nak(cx)).expect("there is a timestamp");
    assert_eq!(report.echo_ms, 25, "30 ms after 2^32 - 5, modulo 2^32");
    assert_eq!(report.loss, 496, "the NAK's own loss, and the packet after it, are in it");
}

#[test]
fn no_round_trip_comes_from_a_repair_or_an_older_packet() {
    let mut bench = Bench::new(PgmccConfig::default());
    bench.data(0, 1000, Some(OTHER), false);
    bench.data(2, 1020, Some(OTHER), false);
    bench.advance(ms(500));
    bench.data(1, 1010, Some(ME), true);
    bench.data(3, 1530, Some(OTHER), false);
    bench.data(1, 1010, Some(OTHER), false);
    bench.advance(Duration::ZERO);
    let reports = bench.reports();
    assert_eq!(reports.len(), 1, "a foreign source may ask for the repair's acknowledgement");
    assert_eq!(reports[0].1.echo_ms, 1530);
}

#[test]
fn repairs_do_not_undo_losses() {
    let mut bench = Bench::new(PgmccConfig::default());
    for seq in [0, 1, 2, 4, 5, 6] {
        bench.data(seq, seq, Some(OTHER), false);
    }
    let lossy = bench.receiver.loss();
    assert!(lossy > 0.007);
    bench.data(3, 3, Some(OTHER), true);
    assert_eq!(bench.receiver.loss(), lossy);
}

#[test]
fn a_call_for_an_election_is_answered_once_after_a_random_wait() {
    for (reply, audience) in
        [(ElectionReply::Ack, Audience::SenderAck), (ElectionReply::Nak, Audience::SenderNak)]
    {
        let config = PgmccConfig { election_reply: reply, ..PgmccConfig::default() };
        let mut bench = Bench::new(config);
        bench.data(0, 0, None, false);
        assert_eq!(bench.reports(), vec![]);
        let at = bench.receiver.next_timeout().expect("the answer is planned");
        assert!(at > bench.now && at <= bench.now + ms(50));
        bench.advance(ms(50));
        let reports = bench.reports();
        assert_eq!(reports.len(), 1);
        assert_eq!((reports[0].0, reports[0].1.echo_ms), (audience, 50));
        assert_eq!(bench.receiver.next_timeout(), None);
    }
}

#[test]
fn the_answer_is_suppressed_when_somebody_is_named_meanwhile() {
    let mut bench = Bench::new(PgmccConfig::default());
    bench.data(0, 0, None, false);
    bench.data(1, 10, Some(OTHER), false);
    assert_eq!(bench.receiver.next_timeout(), None);
    bench.advance(ms(100));
    assert_eq!(bench.reports(), vec![]);
}

#[test]
fn losses_at_the_tail_enter_the_filter_after_a_while() {
    let mut bench = Bench::new(PgmccConfig::default());
    bench.data(0, 0, Some(OTHER), false);
    bench.with(|r, cx| r.on_missing(cx, Seq::new(1), Seq::new(2)));
    assert_eq!(bench.receiver.loss(), 0.0);
    bench.advance(ms(100));
    assert!(bench.receiver.loss() > 0.008);
    assert_eq!(bench.receiver.next_timeout(), None);
}

#[test]
fn a_receiver_that_loses_far_more_than_those_it_hears_speaks_up() {
    let heard = |loss: f64| PgmccReport {
        echo_ms: 0,
        loss: (loss * 65535.0) as u16,
        receiver: Some(OTHER),
    };
    for (other_loss, speaks) in [(0.05, true), (0.2, false)] {
        let mut bench = Bench::new(PgmccConfig::default());
        for seq in (0..2000).filter(|seq| seq % 5 != 0) {
            bench.data(seq, 0, Some(OTHER), false);
            bench.now += ms(5);
        }
        bench.now += ms(5000);
        let mut reports = 0;
        for _ in 0..100 {
            bench.with(|r, cx| r.on_overheard(cx, OTHER, &heard(other_loss)));
            bench.advance(ms(50));
            reports += bench.reports().len();
        }
        // At most one per second.
        assert_eq!(reports > 0, speaks);
        assert!(reports <= 6, "{reports}");
    }
}
