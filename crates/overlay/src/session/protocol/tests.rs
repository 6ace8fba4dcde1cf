//! Codec against the examples of the protocol page, and against arbitrary bytes.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;
use proptest::prelude::*;

use super::frame::REASONS;
use super::*;
use crate::cell::Service;
use crate::client::{ClientEvent, Reason};
use crate::group::MemberId;
use crate::ids::{DaemonId, DaemonRun, ViewId};
use crate::price::Benefit;
use crate::session::WaitReason;

const ALICE: &str = "alice";

fn alice() -> MemberId {
    MemberId { daemon: DaemonId(0xA), name: ALICE.into(), incarnation: 7 }
}

fn run(id: u64, incarnation: u64) -> DaemonRun {
    DaemonRun { id: DaemonId(id), incarnation }
}

fn view(round: u64) -> ViewId {
    ViewId { round, coordinator: run(0xA, 1) }
}

fn frames() -> Vec<(&'static str, Frame)> {
    let chat = || Bytes::from("chat");
    let names = |names: &[&str]| names.iter().collect();
    let welcome = Welcome {
        daemon: run(0xA, 1),
        view: view(2),
        taken: 3,
        message_bytes: 16 << 20,
        groups: 100,
        group_bytes: 64,
        full_name: "alice@north".into(),
    };
    let send = Frame::Send {
        request: 3,
        service: Service::Fifo,
        wants_receipt: false,
        view: None,
        benefit: None,
        groups: names(&["chat", "log"]),
        payload: "hi".into(),
    };
    let send_in = Frame::Send {
        request: 5,
        service: Service::Safe,
        wants_receipt: true,
        view: Some(view(2)),
        benefit: Some(Benefit::Concave),
        groups: names(&["chat"]),
        payload: "hi".into(),
    };
    let receipt = ClientEvent::Receipt { request: 5, members: 3, view: view(2) };
    let expensive = WaitReason::Price { price_cents: 720, purse_cents: -310 };
    let refused = ClientEvent::Refused { request: 4, reason: SendError::Group };
    let no_members = ClientEvent::NoMembers { request: 6, groups: names(&["chat"]) };
    let message = ClientEvent::Message {
        from: alice(),
        service: Service::Agreed,
        groups: names(&["chat"]),
        parts: ["hi".into()].into(),
        view: view(2),
        sequence: 5,
    };
    let group = ClientEvent::Group {
        group: chat(),
        members: [alice()].into(),
        reason: Reason::Join,
        subject: Some(alice()),
        position: (8, 0, 0),
        view: view(2),
    };
    let transitional = ClientEvent::Transitional { closes: view(2), members: vec![run(0xA, 1)] };
    let next = ClientEvent::View {
        id: view(3),
        members: vec![run(0xA, 1), run(0xB, 4)],
        names: vec!["north".into(), "south".into()],
        together: vec![run(0xA, 1)],
        previous: Some(view(2)),
    };
    let hello = |token: &'static str| {
        let (name, token) = (ALICE.into(), token.into());
        Frame::Hello { version: 1, incarnation: 7, next: 0, name, token }
    };
    vec![
        ("hello", hello("")),
        ("hello-with-token", hello("correct horse battery")),
        ("welcome", Frame::Welcome(welcome)),
        ("ping", Frame::Ping(1)),
        ("pong", Frame::Pong(1)),
        ("goodbye", Frame::Goodbye),
        ("error", Frame::Error(ReasonCode::Shutdown, "the daemon stops".into())),
        ("join", Frame::Join { request: 1, group: chat(), holds_senders: false }),
        ("join-holding", Frame::Join { request: 1, group: chat(), holds_senders: true }),
        ("leave", Frame::Leave { request: 2, group: chat() }),
        ("send", send),
        ("send-in-view", send_in),
        ("sent", Frame::Sent(3)),
        ("waiting", Frame::Waiting(Some(WaitReason::Retention))),
        ("too-expensive", Frame::Waiting(Some(expensive))),
        ("goes-on", Frame::Waiting(None)),
        ("message", Frame::Event(9, message.into())),
        ("group", Frame::Event(2, group.into())),
        ("transitional", Frame::Event(3, transitional.into())),
        ("view", Frame::Event(4, next.into())),
        ("cut", Frame::Event(30, ClientEvent::Cut { lost: (21, 30), closes: true }.into())),
        ("resumed", Frame::Resumed),
        ("receipt", Frame::Event(10, receipt.into())),
        ("no-members", Frame::Event(11, no_members.into())),
        ("refused", Frame::Event(12, refused.into())),
    ]
}

const PAGE: &str = include_str!("../../../../../docs/wire/overlay-clients.md");

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_codec_has_the_test_vectors_of_the_page() {
    let vectors = PAGE.split("## Test vectors").nth(1).unwrap();
    let vectors = vectors.lines().filter_map(|line| line.split_once(": "));
    let vectors: Vec<_> = vectors.map(|(name, hex)| (name, bytes_of(hex))).collect();
    let frames = frames();
    assert!(vectors.iter().map(|it| it.0).eq(frames.iter().map(|it| it.0)), "{vectors:?}");
    let mut stream = Decoder::new(EVENT_BYTES_MAX);
    for ((name, frame), (_, bytes)) in frames.iter().zip(&vectors) {
        assert_eq!(frame.encode(), *bytes, "{name}");
        stream.room().extend_from_slice(bytes);
        assert_eq!(stream.next_frame().unwrap().as_ref(), Some(frame), "{name}");
        for len in 4..bytes.len() {
            let cut = Frame::decode(&Bytes::copy_from_slice(&bytes[4..len]));
            // Texts and payloads extend to the end of the frame.
            assert_ne!(cut.as_ref(), Ok(frame), "{name}, {len} bytes");
        }
    }
    assert_eq!(stream.next_frame(), Ok(None));
}

#[test]
fn every_code_and_service_has_its_number_on_the_page() {
    for (number, code) in (1u8..).zip(ReasonCode::ALL) {
        assert_eq!(code as u8, number);
        assert!(PAGE.contains(&format!("\n| {number} | ")), "{code}");
    }
    for (number, reason) in REASONS.iter().enumerate() {
        assert_eq!(*reason as usize, number);
    }
}

#[test]
fn lengths_are_bounded() {
    for (len, max) in [(0, 128), (129, 128), (u32::MAX as usize, REQUEST_BYTES_MAX)] {
        let mut decoder = Decoder::new(max);
        decoder.room().extend_from_slice(&(len as u32).to_be_bytes());
        assert_eq!(decoder.next_frame(), Err(FrameError::Length { len, max }));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_frames_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
                                        kind in 0u8..26, cut in 1usize..50) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok(frame) = Frame::decode(&bytes.clone().into()) {
            let again = frame.encode();
            prop_assert_eq!(Frame::decode(&Bytes::from(again).slice(4..)), Ok(frame));
        }
        let mut decoder = Decoder::new(1 << 16);
        for part in bytes.chunks(cut) {
            decoder.room().extend_from_slice(part);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    #[test]
    fn damaged_frames_are_frames_or_an_error(which in 0..frames().len(), at in any::<prop::sample::Index>(),
                                             value in any::<u8>()) {
        let (_, frame) = &frames()[which];
        let mut bytes = frame.encode();
        let at = 4 + at.index(bytes.len() - 4);
        bytes[at] = value;
        if let Ok(other) = Frame::decode(&Bytes::from(bytes).slice(4..)) {
            let again = Bytes::from(other.encode()).slice(4..);
            prop_assert_eq!(Frame::decode(&again), Ok(other));
        }
    }

    #[test]
    fn frames_come_whole_however_the_stream_is_cut(cuts in proptest::collection::vec(1usize..60, 1..40)) {
        let frames = frames();
        let stream: Vec<u8> = frames.iter().flat_map(|(_, frame)| frame.encode()).collect();
        let (mut decoder, mut got, mut rest) = (Decoder::new(1 << 16), Vec::new(), &stream[..]);
        for cut in cuts.iter().cycle() {
            let (part, after) = rest.split_at((*cut).min(rest.len()));
            decoder.room().extend_from_slice(part);
            while let Some(frame) = decoder.next_frame().unwrap() {
                got.push(frame);
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let want: Vec<Frame> = frames.into_iter().map(|it| it.1).collect();
        prop_assert_eq!(got, want);
    }
}
