//! Interoperation with ZeroMQ over PGM in UDP, in both directions.
//!
//! Payload: an offset of two bytes (the first frame that begins a message, or 0xffff), then a piece
//! of a stream of ZMTP/1.0 frames: length of the rest (one byte, or 0xff and eight bytes), flags,
//! body. A subscriber aborts on fragments and on empty payloads.

use faircast_proto::pgm::wire::PacketType;

use crate::capture::Capture;
use crate::hop::Weather;
use crate::hosts::Hosts;
use crate::{content, ours, programs, until};

/// Rate in kbit/s, which also sizes the windows.
const RATE: u32 = 20_000;

/// Stream offset of a datagram in which no message begins.
const NO_START: u16 = 0xffff;

/// Returns the messages that the peer's program expects: eight bytes of offset, then the content.
fn messages(content: &[u8], len: usize) -> Vec<Vec<u8>> {
    let number = |index: usize| ((index * len) as u64).to_le_bytes();
    let pieces = content.chunks(len).enumerate();
    pieces.map(|(index, piece)| [&number(index)[..], piece].concat()).collect()
}

fn framed(messages: &[Vec<u8>], payload: usize) -> Vec<u8> {
    let (mut stream, mut starts) = (Vec::new(), Vec::new());
    for message in messages {
        starts.push(stream.len());
        match u8::try_from(message.len() + 1) {
            Ok(length) if length < 0xff => stream.push(length),
            _ => {
                stream.push(0xff);
                stream.extend((message.len() as u64 + 1).to_be_bytes());
            }
        }
        stream.push(0);
        stream.extend(message);
    }
    let (room, mut out) = (payload - 2, Vec::new());
    for (index, piece) in stream.chunks(room).enumerate() {
        let (from, to) = (index * room, index * room + piece.len());
        let first = starts.iter().find(|start| (from..to).contains(start));
        let offset = first.map_or(NO_START, |start| (start - from) as u16);
        out.extend(offset.to_be_bytes());
        out.extend(piece);
    }
    out
}

fn unframed(payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut stream = Vec::new();
    for payload in payloads {
        let (offset, piece) = payload.split_first_chunk().expect("no payload is empty");
        let offset = u16::from_be_bytes(*offset);
        match stream.is_empty() {
            true if offset == NO_START => {}
            true => stream.extend(&piece[usize::from(offset)..]),
            false => stream.extend(piece),
        }
    }
    let (mut rest, mut messages) = (&stream[..], Vec::new());
    while let Some((&first, after)) = rest.split_first() {
        let (length, after) = match (first, after.split_first_chunk()) {
            (0xff, Some((length, after))) => (u64::from_be_bytes(*length) as usize, after),
            (0xff, None) => break,
            _ => (usize::from(first), after),
        };
        let Some((frame, after)) = after.split_at_checked(length) else { break };
        assert_eq!(frame[0], 0, "one part each");
        messages.push(frame[1..].to_vec());
        rest = after;
    }
    messages
}

#[test]
fn frames_are_as_captured_from_zeromq() {
    let framed = |messages: &[&[u8]], payload| {
        framed(&messages.iter().map(|message| message.to_vec()).collect::<Vec<_>>(), payload)
    };
    assert_eq!(framed(&[b"hello"], 100), b"\0\0\x06\0hello");
    let long = [7; 300];
    assert_eq!(framed(&[&long], 1000)[..13], *b"\0\0\xff\0\0\0\0\0\0\x01\x2d\0\x07");
    // The second piece of ten bytes begins no message; the third begins one at offset 4.
    let three = framed(&[&[1; 22], &[2; 3]], 12);
    assert_eq!(
        (&three[..2], &three[12..14], &three[24..26]),
        (&[0, 0][..], &[255, 255][..], &[0, 4][..])
    );
    let payloads: Vec<Vec<u8>> = three.chunks(12).map(<[u8]>::to_vec).collect();
    assert_eq!(unframed(&payloads), [vec![1; 22], vec![2; 3]]);
}

#[test]
fn a_subscriber_gets_every_message_of_our_source_though_packets_are_lost() {
    let Some(programs) = programs() else { return };
    let hosts = Hosts::new(3);
    let sent = content(600_000);
    let file = hosts.file("copy");
    let bytes = sent.len().to_string();
    let rest = [&*file.to_string_lossy(), &bytes, "0"];
    let zeromq = programs.join("zeromq");
    let mut subscriber = hosts.start_peer(&zeromq, (2, "recv"), RATE, &rest);
    // A subscriber acknowledges nothing, so one of our receivers is the acker.
    let payload = 1400;
    let stream = framed(&messages(&sent, 900), payload);
    let acker = ours::receiver(&hosts, 3, Weather::default());
    [2, 3].iter().for_each(|host| hosts.until_member(*host));
    let capture = Capture::start(&hosts, 1);
    let weather = Weather { lose_sent: 41, ..Weather::default() };
    let source = ours::source(&hosts, 1, &stream, payload as u32, weather);
    assert!(subscriber.wait_for(&file) == sent);
    assert!(acker.wait_for(stream.len()).concat() == stream);
    assert!(source.log.lock().unwrap().lost >= 8);
    subscriber.assert_alive();
    drop(source);
    let seen = capture.check();
    assert!(seen.of(0x05) > 0 && seen.of(0x0a) > 0, "{seen:?}");
}

#[test]
fn our_receiver_gets_every_message_of_a_publisher_though_packets_are_lost() {
    let Some(programs) = programs() else { return };
    let hosts = Hosts::new(2);
    let sent = content(600_000);
    let file = hosts.file("content");
    std::fs::write(&file, &sent).unwrap();
    let weather = Weather { lose_received: 29, ..Weather::default() };
    let receiver = ours::receiver(&hosts, 2, weather);
    hosts.until_member(2);
    let zeromq = programs.join("zeromq");
    let want = messages(&sent, 700);
    let frames: usize = want.iter().map(|message| message.len() + 2).sum();
    let rest = [&*file.to_string_lossy(), "700", "500"];
    let _publisher = hosts.start_peer(&zeromq, (1, "send"), RATE, &rest);
    receiver.wait_for(frames);
    // The stream has eight more bytes for each frame above 253 bytes, and two for each packet.
    let all = || {
        let got = unframed(&receiver.payloads.lock().unwrap());
        (got.len() >= want.len()).then_some(got)
    };
    let got = until(all, || format!("not all of {} messages", want.len()));
    assert!(got == want);
    let log = receiver.log.lock().unwrap();
    assert!(log.lost >= 8 && log.received(PacketType::Rdata) > 0, "{} lost", log.lost);
    assert_eq!(*receiver.lost.lock().unwrap(), 0);
}
