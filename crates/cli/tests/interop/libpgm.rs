//! Interoperation with OpenPGM's library, in both directions: data, repairs and pgmcc's loop.

use faircast_base::Duration;
use faircast_proto::pgm::wire::PacketType;

use crate::capture::Capture;
use crate::hop::{Weather, rounds};
use crate::hosts::Hosts;
use crate::{content, ours, programs};

/// One-way delay of the hop at our end; all of the round-trip time.
const ROUND_TRIP: Duration = Duration::from_millis(300);

/// Gap between rounds: less than a round trip, more than the gaps within a round.
const ROUND_GAP: Duration = Duration::from_millis(120);

/// Packets in each round without losses, if slow start ends at 4, by OpenPGM and by the draft.
const GROWTH: [u32; 14] = [1, 2, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13];

/// Rate limit in byte/s, too high to limit the transfers here.
const RATE: u32 = 50_000_000;

#[test]
fn libpgm_receives_everything_and_our_source_repairs_what_it_lacks() {
    let Some(programs) = programs() else { return };
    let hosts = Hosts::new(3);
    let libpgm = programs.join("libpgm");
    let sent = content(2_000_000);
    let bytes = sent.len().to_string();
    let mut receivers = Vec::new();
    // The second receiver has no pgmcc and must ignore its options.
    for (host, pgmcc) in [(2, "1"), (3, "0")] {
        let file = hosts.file(&format!("copy-{host}"));
        let rest = [pgmcc, &file.to_string_lossy(), &bytes, "0"];
        receivers.push((hosts.start_peer(&libpgm, (host, "recv"), RATE, &rest), file));
    }
    [2, 3].iter().for_each(|host| hosts.until_member(*host));
    let capture = Capture::start(&hosts, 1);
    let weather = Weather { lose_sent: 37, ..Weather::default() };
    let source = ours::source(&hosts, 1, &sent, 1400, weather);
    for (receiver, file) in &mut receivers {
        assert!(receiver.wait_for(file) == sent, "{}", file.display());
    }
    let log = source.log.lock().unwrap();
    let asked = log.received(PacketType::Nak);
    let repaired = log.sent(PacketType::Rdata);
    assert!(log.lost >= 30, "only {} packets were lost", log.lost);
    assert!(asked > 0 && repaired as u32 >= log.lost, "{asked} NAKs, {repaired} repairs");
    assert!(log.received(PacketType::Ack) > 500, "the acker acknowledges each packet");
    drop(log);
    drop(source);
    let seen = capture.check();
    assert!(seen.of(0x04) > 1000 && seen.of(0x05) > 0 && seen.of(0x0a) > 0, "{seen:?}");
    assert!(seen.of(0x00) > 0, "{seen:?}");
    assert_eq!(seen.with(0x04, 0x12), seen.of(0x04), "each has pgmcc's option: {seen:?}");
}

#[test]
fn our_receiver_gets_everything_that_libpgm_sends_and_asks_for_what_it_lacks() {
    let Some(programs) = programs() else { return };
    let hosts = Hosts::new(2);
    let sent = content(2_000_000);
    let file = hosts.file("content");
    std::fs::write(&file, &sent).unwrap();
    let capture = Capture::start(&hosts, 2);
    let weather = Weather { lose_received: 23, ..Weather::default() };
    let receiver = ours::receiver(&hosts, 2, weather);
    hosts.until_member(2);
    let rest = ["0", &file.to_string_lossy(), "1400", "0"];
    let sender = hosts.start_peer(&programs.join("libpgm"), (1, "send"), 2_000_000, &rest);
    let payloads = receiver.wait_for(sent.len());
    assert!(payloads.concat() == sent);
    let log = receiver.log.lock().unwrap();
    assert!(log.lost >= 50, "only {} packets were lost", log.lost);
    assert!(log.sent(PacketType::Nak) > 0, "nothing was asked for");
    assert!(log.received(PacketType::Ncf) > 0, "nothing was confirmed");
    assert!(log.received(PacketType::Rdata) as u32 >= log.lost, "not all was repaired");
    assert_eq!(*receiver.lost.lock().unwrap(), 0);
    drop(log);
    drop(receiver);
    drop(sender);
    let seen = capture.check();
    assert!(seen.of(0x08) > 0, "{seen:?}");
}

#[test]
fn our_window_grows_as_it_should_with_libpgm_as_the_acker() {
    let Some(programs) = programs() else { return };
    let hosts = Hosts::new(2);
    let sent = content(1400 * 150);
    let bytes = sent.len().to_string();
    let file = hosts.file("copy");
    let rest = ["1", &file.to_string_lossy(), &bytes, "0"];
    let libpgm = programs.join("libpgm");
    let mut receiver = hosts.start_peer(&libpgm, (2, "recv"), RATE, &rest);
    hosts.until_member(2);
    let weather = Weather { delay: ROUND_TRIP, ..Weather::default() };
    let source = ours::source(&hosts, 1, &sent, 1400, weather);
    assert!(receiver.wait_for(&file) == sent);
    let log = source.log.lock().unwrap();
    let rounds = rounds(&log.sent, ROUND_GAP);
    assert_eq!(rounds[..GROWTH.len()], GROWTH, "{rounds:?}");
    assert_eq!(log.sent(PacketType::Rdata), 0);
}

#[test]
fn the_window_of_libpgm_grows_as_it_should_with_us_as_the_acker() {
    let Some(programs) = programs() else { return };
    let hosts = Hosts::new(2);
    let sent = content(1400 * 150);
    let file = hosts.file("content");
    std::fs::write(&file, &sent).unwrap();
    let capture = Capture::start(&hosts, 2);
    let weather = Weather { delay: ROUND_TRIP, ..Weather::default() };
    let receiver = ours::receiver(&hosts, 2, weather);
    hosts.until_member(2);
    let rest = ["1", &file.to_string_lossy(), "1400", "4500"];
    let sender = hosts.start_peer(&programs.join("libpgm"), (1, "send"), RATE, &rest);
    let payloads = receiver.wait_for(sent.len());
    assert!(payloads.concat() == sent);
    let log = receiver.log.lock().unwrap();
    // The first message is a round of its own: libpgm does not count it as acknowledged.
    let rounds = rounds(&log.received, ROUND_GAP);
    assert_eq!(rounds[0], 1, "{rounds:?}");
    assert_eq!(rounds[1..][..GROWTH.len()], GROWTH, "{rounds:?}");
    drop(log);
    drop(receiver);
    drop(sender);
    let seen = capture.check();
    assert!(seen.of(0x0d) >= 150, "an ACK for each packet: {seen:?}");
    assert_eq!(seen.with(0x0d, 0x13), seen.of(0x0d), "each with a report: {seen:?}");
}
