//! Clause 8: reports per second stay below the protocol's limit, for 1, 10 and 1000 receivers.

use faircast_base::Time;
use faircast_proto::congestion::Load;

use crate::world::{World, protocols, reports, run};

#[test]
fn receivers_send_no_more_than_their_protocol_states() {
    send_no_more_than_stated(&[1, 10], 60);
}

#[test]
fn a_thousand_receivers_send_no_more_than_their_protocol_states() {
    send_no_more_than_stated(&[1000], 10);
}

fn send_no_more_than_stated(crowds: &[u32], seconds: u64) {
    let mut tried = 0;
    for protocol in protocols() {
        for &receivers in crowds {
            if receivers > 1 && !protocol.transport.multicast {
                continue;
            }
            let (outcome, heard, watched) = run(&World::new(receivers, seconds).scenario(protocol));
            let load = Load {
                receivers: u64::from(receivers),
                data_packets: heard.sent.len() as u64,
                losses: heard.losses,
                missing: heard.missing(outcome.at),
                lasted: outcome.at.since(Time::ZERO),
            };
            let (sent, most) =
                (reports(&watched), protocol.reports_max(&Default::default(), &load));
            let name = protocol.name();
            println!("{name}, {receivers} receivers: {sent} reports, at most {most}; {load:?}");
            // Without a relay, credits wait for each of 1000 receivers.
            assert!(load.data_packets > seconds * 5, "{name}: {load:?}");
            assert!(sent <= most, "{name}, {receivers} receivers: {sent} reports, not {most}");
            assert_eq!(sent > 0, protocol.transport.answers, "{name}");
            // The limit is tight, although a NAK can request several packets.
            assert!(sent * 25 >= most, "{name}, {receivers}: {most} allowed for {sent} reports");
            tried += 1;
        }
    }
    assert!(tried >= crowds.len());
}
