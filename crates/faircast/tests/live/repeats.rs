//! Sessions of one object: restarted and concurrent senders, and replayed packets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;

use faircast::Bitrate;
use faircast_proto::pgm::wire::{Body, Encoder, Header, OptionType, Packet, Tsi};

use super::*;

const LISTENS: u8 = 0;
const REPEATS: u8 = 1;
const ENDS: u8 = 2;

/// Host that records a group's packets, and replays them from another address.
struct Repeater {
    does: Arc<AtomicU8>,
    heard: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Repeater {
    fn new(group: &Multicast) -> Self {
        let (hears, group) = (hearing(group), group.group);
        // The address selects the interface too.
        let says = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
        let does = Arc::new(AtomicU8::new(LISTENS));
        let (came, sent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let repeater = Self { does, heard: came, sent, thread: None };
        let (order, came, count) =
            (repeater.does.clone(), repeater.heard.clone(), repeater.sent.clone());
        let thread = std::thread::spawn(move || {
            let mut heard: Vec<Vec<u8>> = Vec::new();
            let mut buffer = [0; 2048];
            let (mut next, own) = (0, says.local_addr().unwrap());
            while order.load(Ordering::Relaxed) != ENDS {
                while let Ok((len, from)) = hears.recv_from(&mut buffer) {
                    if from != own && heard.len() < 100_000 {
                        heard.push(buffer[..len].to_vec());
                        came.fetch_add(1, Ordering::Relaxed);
                    }
                }
                for _ in 0..20 {
                    if order.load(Ordering::Relaxed) == REPEATS && !heard.is_empty() {
                        next = (next + 1) % heard.len();
                        let done = says.send_to(&heard[next], group).is_ok();
                        count.fetch_add(u64::from(done), Ordering::Relaxed);
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { thread: Some(thread), ..repeater }
    }

    async fn all_said(&self) {
        let all_said = async {
            while self.sent.load(Ordering::Relaxed) < self.heard.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(all_said).await;
    }

    async fn more(count: &AtomicU64) {
        let before = count.load(Ordering::Relaxed);
        let come = async {
            while count.load(Ordering::Relaxed) == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(come).await;
    }

    fn repeat(&self) {
        self.does.store(REPEATS, Ordering::Relaxed);
    }

    fn end(mut self) {
        self.does.store(ENDS, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        let sent = self.sent.load(Ordering::Relaxed);
        assert!(sent > 0, "it repeated nothing");
    }
}

fn slow(group: &Multicast) -> faircast::SenderBuilder {
    Sender::builder(to(group)).rate_max(Bitrate::from_bits_per_s(5_000_000))
}

#[tokio::test]
async fn a_sender_that_was_killed_goes_on_though_somebody_repeats_what_it_said() {
    let (from, into, group) = (tempdir().unwrap(), tempdir().unwrap(), group(11));
    let bytes = noise(4_000_000, 11);
    let file = put(from.path(), "file", &bytes);
    let repeater = Repeater::new(&group);
    let mut receiver = Receiver::builder(at(&group), into.path()).receive().unwrap();
    let killed = slow(&group).send(&[&file]).unwrap();
    until_has(&receiver, 1_500_000).await;
    killed.abort();
    repeater.repeat();
    let mut again = slow(&group).send(&[&file]).unwrap();
    let gone = next(&mut receiver).await;
    assert_eq!((gone.last.number, &gone.outcome), (1, &ReceiveOutcome::SenderGone));
    let complete = next(&mut receiver).await;
    assert!(matches!(complete.outcome, ReceiveOutcome::Complete { .. }), "{complete:?}");
    assert!(complete.last.object.bytes_found >= 1_000_000, "{:?}", complete.last);
    succeeds(&mut again).await;
    assert_eq!(std::fs::read(into.path().join("file")).unwrap(), bytes);
    repeater.end();
}

#[tokio::test]
async fn nobody_takes_an_object_from_a_session_that_goes_on() {
    let (from, into, group) = (tempdir().unwrap(), tempdir().unwrap(), group(12));
    let bytes = noise(6_000_000, 12);
    let file = put(from.path(), "file", &bytes);
    let mut receiver = Receiver::builder(at(&group), into.path()).receive().unwrap();
    let mut first = slow(&group).send(&[&file]).unwrap();
    until_has(&receiver, 500_000).await;
    let mut second = Sender::builder(to(&group)).send(&[&file]).unwrap();
    let received = [next(&mut receiver).await, next(&mut receiver).await];
    for (number, found, received) in [(1, 0, &received[0]), (2, 6_000_000, &received[1])] {
        assert!(matches!(received.outcome, ReceiveOutcome::Complete { .. }), "{received:?}");
        assert_eq!((received.last.number, received.last.object.bytes_found), (number, found));
    }
    assert!(received[0].took.as_secs_f64() > 7.0, "{:?}", received[0].took);
    for sender in [&mut first, &mut second] {
        succeeds(sender).await;
    }
    assert_eq!(std::fs::read(into.path().join("file")).unwrap(), bytes);
}

#[tokio::test]
async fn a_recording_that_was_heard_first_is_not_in_the_way_of_its_sender() {
    let (from, group) = (tempdir().unwrap(), group(13));
    let bytes = noise(400_000, 13);
    let file = put(from.path(), "file", &bytes);
    let folders = [tempdir().unwrap(), tempdir().unwrap()];
    let repeater = Repeater::new(&group);
    let mut receiver = Receiver::builder(at(&group), folders[0].path()).receive().unwrap();
    let mut sender = Sender::builder(to(&group)).send(&[&file]).unwrap();
    succeeds(&mut sender).await;
    next(&mut receiver).await;
    drop(receiver);
    let mut sender = slow(&group).send(&[&file]).unwrap();
    Repeater::more(&repeater.heard).await;
    repeater.repeat();
    repeater.all_said().await;
    let mut receiver = Receiver::builder(at(&group), folders[1].path()).receive().unwrap();
    Repeater::more(&repeater.sent).await;
    let mut complete = next(&mut receiver).await;
    if complete.outcome == ReceiveOutcome::SenderGone {
        complete = next(&mut receiver).await;
    }
    assert!(matches!(complete.outcome, ReceiveOutcome::Complete { .. }), "{complete:?}");
    succeeds(&mut sender).await;
    assert_eq!(std::fs::read(folders[1].path().join("file")).unwrap(), bytes);
    repeater.end();
}

/// Returns a receiver's join packet for the group's session (docs/transfer.md).
fn join(spoken: &Packet<'_>, name: &str) -> Vec<u8> {
    let Header { gsi, source_port: port, .. } = spoken.header;
    let header = Header::upstream(Tsi { gsi, port }, spoken.header.destination_port);
    let mut packet = Vec::new();
    let mut encoder = Encoder::new(&mut packet, &header, &Body::Spmr);
    // State joined, which requests an answer; number 1 of member 1 that reports as 1; no bytes.
    let (number, one, none) = (1u32.to_be_bytes(), 1u64.to_be_bytes(), [0; 8]);
    let lengths = [name.len() as u8];
    let parts =
        [&[1, 0x80, 0, 0], &number[..], &one, &none, &number, &lengths, name.as_bytes(), &[0]];
    encoder.raw_option(OptionType::MEMBER, 0, &parts.concat());
    encoder.finish();
    packet
}

#[tokio::test]
async fn damaged_packets_invent_no_receivers_where_nothing_is_sealed() {
    let (from, into, group) = (tempdir().unwrap(), tempdir().unwrap(), group(14));
    let file = put(from.path(), "file", &noise(100_000, 14));
    let hears = hearing(&group);
    let sender = Sender::builder(to(&group)).wait_for(2).send(&[&file]).unwrap();
    let mut buffer = [0; 2048];
    let hear = async {
        loop {
            match hears.recv_from(&mut buffer) {
                Ok(heard) => return heard,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let (len, sends) = soon(hear).await;
    let whole = join(&Packet::decode(&buffer[..len], 0).unwrap(), "invented");
    let says = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for bit in 0..8 * whole.len() {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        says.send_to(&damaged, sends).unwrap();
    }
    says.send_to(&whole, sends).unwrap();
    let _receiver = Receiver::builder(at(&group), into.path()).name("real").receive().unwrap();
    let mut status = sender.status();
    let begun = |status: &SendStatus| status.members.iter().any(|member| member.name == "real");
    let status = soon(status.wait_for(begun)).await.unwrap().clone();
    let names: BTreeSet<&str> = status.members.iter().map(|member| &*member.name).collect();
    assert_eq!((status.members.len(), names), (2, BTreeSet::from(["invented", "real"])));
    sender.abort();
}
