//! Tests of reports with a rate, under policies that compare reports.

use std::vec::Vec;

use faircast_base::NodeId;

use super::bench::*;
use crate::congestion::tfmcc::TfmccReport;
use crate::pgm::element::*;

fn nak_of(bits_per_s: f32) -> Vec<u8> {
    let report = TfmccReport {
        receiver: Some(NodeId(30)),
        have_rtt: true,
        have_loss: true,
        leaving: false,
        on_nak: true,
        round: 1,
        sent_us: 2,
        echo_us: 3,
        bits_per_s,
    };
    packet(&Body::Nak(nak_body(7)), |encoder| {
        encoder.scheme_option(&report);
    })
}

#[test]
fn by_throughput_the_nak_of_a_slower_receiver_passes_that_loses_under_tfmcc() {
    for (suppression, slower_passes) in
        [(Suppression::Rfc3208, false), (Suppression::Loss, true), (Suppression::Throughput, true)]
    {
        let mut bench = Bench::new(ElementConfig { suppression });
        bench.packet(1, RECEIVER, Destination::Node(ME), &nak_of(1e6), 0);
        assert_eq!(bench.sent(), [confirm(1, &[7]), ask(&[7])]);
        bench.ncf(0, &[7]);
        for (port, rate, passes) in
            [(2, 1e6, false), (2, 2e6, false), (3, 5e5, slower_passes), (3, 6e5, false)]
        {
            bench.packet(port, RECEIVER, Destination::Node(ME), &nak_of(rate), 0);
            let asked = bench.sent().contains(&ask(&[7]));
            assert_eq!(asked, passes, "{suppression:?}, {rate} bit/s");
            bench.ncf(0, &[7]);
        }
    }
}
