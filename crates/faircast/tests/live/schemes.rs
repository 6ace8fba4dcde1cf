//! Scheme negotiation: receivers follow the sender's scheme, or report a mismatch.

use std::net::UdpSocket;

use faircast::{ByteSender, Error, MemberState, MessageReceiver, SCHEMES, SchemeMismatch};
use faircast_base::Seq;
use faircast_proto::catalog;
use faircast_proto::pgm::negotiation::SchemeAnnouncement;
use faircast_proto::pgm::wire::{
    Body, Encoder, Gsi, Header, Nla, OptionType, Packet, PacketType, Spm, Tsi,
};
use tokio::io::AsyncWriteExt as _;

use super::*;

fn pairs() -> Vec<(&'static str, &'static str)> {
    let all = SCHEMES.iter().flat_map(|a| SCHEMES.iter().map(move |b| (a.name, b.name)));
    let pairs: Vec<_> = all.filter(|(a, b)| a != b).collect();
    assert_eq!(pairs.len(), SCHEMES.len() * (SCHEMES.len() - 1));
    pairs
}

#[tokio::test]
async fn a_receiver_without_a_scheme_follows_and_one_with_the_right_one_agrees() {
    for (scheme, number) in SCHEMES.iter().zip(0..) {
        let (from, group) = (tempdir().unwrap(), group(40 + number));
        let bytes = noise(700_000, 40);
        let file = put(from.path(), "file", &bytes);
        let receivers = [
            receive(at(&group), |builder| builder.once(true)),
            receive(at(&group), |builder| builder.once(true).scheme(scheme.name)),
        ];
        let builder = Sender::builder(to(&group)).scheme(scheme.name).wait_for(2);
        let last = soon(builder.send(&[&file]).unwrap().finish()).await.unwrap();
        assert!(last.succeeded(), "{}: {last:?}", scheme.name);
        assert_copies(receivers, scheme.name, &bytes).await;
    }
}

#[tokio::test]
async fn who_insists_on_another_scheme_gets_no_file_and_holds_up_nobody() {
    for (speaks, other) in pairs() {
        one_insists((speaks, other), 50, catalog::mismatch(speaks, other)).await;
    }
}

/// Sends by `speaks` to two receivers; the one that insists on `other` must report `want`.
pub(crate) async fn one_insists((speaks, other): (&str, &str), number: u8, want: SchemeMismatch) {
    let (from, group) = (tempdir().unwrap(), group(number));
    let file = put(from.path(), "file", &noise(300_000, 50));
    let (mut one, _folder) = receive(at(&group), |builder| builder.once(true).name("one"));
    let (mut two, folder) =
        receive(at(&group), |builder| builder.once(true).name("two").scheme(other));
    let builder = Sender::builder(to(&group)).scheme(speaks).wait_for(2);
    let last = soon(builder.send(&[&file]).unwrap().finish()).await.unwrap();
    assert!(!last.succeeded() && last.done() == 1, "{speaks} {other}: {last:?}");
    let failed = last.members.iter().find(|member| member.name == "two").unwrap();
    assert_eq!(failed.state, MemberState::Failed);
    assert!(failed.reason.contains(speaks) && failed.reason.contains(other), "{failed:?}");
    whole(&mut one).await;
    assert_eq!(next(&mut two).await.outcome, ReceiveOutcome::OtherScheme(want));
    assert!(!folder.path().join("file").exists());
}

#[tokio::test]
async fn streams_say_so_at_both_ends_too() {
    for (speaks, other) in pairs() {
        let group = group(51);
        let mut one = ByteReceiver::builder(at(&group)).start().unwrap();
        let mut two = MessageReceiver::builder(at(&group)).scheme(other).start().unwrap();
        let mut sender = ByteSender::builder(to(&group)).scheme(speaks).start().unwrap();
        let bytes = noise(100_000, 51);
        sender.write_all(&bytes).await.unwrap();
        let want = catalog::mismatch(speaks, other);
        match soon(two.next()).await {
            Some(Err(Error::OtherScheme(mismatch))) => assert_eq!(mismatch, want),
            other => panic!("{other:?}"),
        }
        assert!(soon(two.next()).await.is_none(), "nothing follows");
        assert_eq!(two.status().borrow().scheme_mismatch.as_ref(), Some(&want));
        let mut status = sender.status();
        let told = soon(status.wait_for(|status| status.mismatched > 0)).await.unwrap().clone();
        assert_eq!((told.mismatched, told.scheme_mismatch), (1, Some(want)));
        sender.shutdown().await.unwrap();
        soon(assert_reads(&mut one, &bytes, "who follows")).await;
    }
}

struct UnknownSender {
    socket: UdpSocket,
    group: std::net::SocketAddr,
    sent: u32,
}

impl UnknownSender {
    fn new(group: &Multicast) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket2::SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self { socket, group: group.group, sent: 0 }
    }

    fn speak(&mut self) {
        let spm = Spm {
            sequence: Seq::new(self.sent),
            trail: Seq::new(0),
            lead: Seq::new(0) - 1,
            path: Nla::V4([127, 0, 0, 1]),
        };
        self.sent += 1;
        let tsi = Tsi { gsi: Gsi([9; 6]), port: 0x8001 };
        let announced = SchemeAnnouncement { scheme: "unheard-of".into(), settings: Vec::new() };
        let mut packet = Vec::new();
        let header = Header::downstream(tsi, self.group.port());
        let mut encoder = Encoder::new(&mut packet, &header, &Body::Spm(spm));
        encoder.raw_option(OptionType::SCHEME, 0, &announced.encode().unwrap());
        encoder.finish();
        self.socket.send_to(&packet, self.group).unwrap();
    }

    fn hear(&mut self, option: u8) -> Vec<u8> {
        let mut buffer = [0; 2000];
        for _ in 0..100 {
            self.speak();
            while let Ok((len, _)) = self.socket.recv_from(&mut buffer) {
                let packet = Packet::decode(&buffer[..len], 0).unwrap();
                assert_eq!(packet.kind(), PacketType::Spmr);
                if let Some(option) = packet.options.find(option) {
                    return option.value.to_vec();
                }
            }
        }
        panic!("nobody says it");
    }
}

#[tokio::test]
async fn a_sender_that_speaks_what_nobody_knows_is_told_so_and_so_is_the_application() {
    let (group, folder) = (group(52), tempdir().unwrap());
    let builder = Receiver::builder(at(&group), folder.path());
    let mut receiver = builder.once(true).name("somebody").receive().unwrap();
    let mut sender = UnknownSender::new(&group);
    let hears = tokio::task::spawn_blocking(move || {
        let said = sender.hear(OptionType::MEMBER);
        (sender, said)
    });
    let (mut sender, said) = soon(hears).await.unwrap();
    // State 3 is failed, with a request for an answer (docs/transfer.md).
    assert_eq!(said[1], 0x83);
    let words = String::from_utf8_lossy(&said[28..]).into_owned();
    assert!(words.contains("somebody"), "{words}");
    assert!(words.contains("it does not know the scheme unheard-of"), "{words}");
    match next(&mut receiver).await.outcome {
        ReceiveOutcome::OtherScheme(mismatch) => {
            assert!(!mismatch.is_known());
            let text = mismatch.to_string();
            assert!(text.contains("the sender speaks unheard-of"), "{text}");
            assert!(SCHEMES.iter().all(|entry| text.contains(entry.name)), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert!(soon(receiver.next()).await.is_none());

    let mut stream = MessageReceiver::builder(at(&group)).start().unwrap();
    let hears = tokio::task::spawn_blocking(move || sender.hear(OptionType::SCHEME));
    let said = soon(hears).await.unwrap();
    let own = SchemeAnnouncement::decode(&said).unwrap();
    assert!(SCHEMES.iter().any(|entry| entry.name == own.scheme), "{own:?}");
    assert!(matches!(soon(stream.next()).await, Some(Err(Error::OtherScheme(_)))));
}
