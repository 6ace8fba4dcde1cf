//! Files and streams over TRAM.

use faircast::{ByteSender, GroupKey, MessageReceiver, MessageSender, Shortfall};
use tokio::io::AsyncWriteExt as _;

use super::*;

#[tokio::test]
async fn a_static_tree_is_what_the_sender_sees() {
    let (from, group, bytes) = (tempdir().unwrap(), group(69), noise(2_000_000, 9));
    let file = put(from.path(), "file", &bytes);
    let tree = "a sender\nb a\nc b # two below it\nd c\ne c\n";
    let tree = faircast::RepairTree::read(put(from.path(), "tree", tree.as_bytes())).unwrap();
    let receivers = ["e", "d", "c", "b", "a", "f"].map(|name| {
        receive(at(&group), |builder| builder.name(name).once(true).tree(tree.clone()))
    });
    let builder = Sender::builder(to(&group)).scheme("tram").wait_for(6);
    let last = succeeds(&mut builder.send(&[&file]).unwrap()).await;
    for (name, head, level) in
        [("a", faircast::SENDER, 2), ("b", "a", 3), ("c", "b", 4), ("d", "c", 5), ("e", "c", 5)]
    {
        let seat = last.members.iter().find(|it| it.name == name).unwrap().seat.clone().unwrap();
        assert_eq!((seat.head.as_deref(), seat.level), (Some(head), level), "{name}: {seat:?}");
    }
    assert_copies(receivers, "tram", &bytes).await;
}

#[tokio::test]
async fn a_tree_that_a_receiver_cannot_follow_is_refused() {
    let (folder, group) = (tempdir().unwrap(), group(70));
    let tree = put(folder.path(), "tree", b"a sender\nb a\n");
    let tree = faircast::RepairTree::read(tree).unwrap();
    let never =
        Receiver::builder(at(&group), folder.path()).name("a").option("head", text("never"));
    let error = never.tree(tree.clone()).receive().unwrap_err();
    assert!(error.to_string().contains("`a` for the head of `b`"), "{error}");
    let alone = Listen::Unicast("127.0.0.1:0".parse().unwrap());
    let error = Receiver::builder(alone, folder.path()).tree(tree).receive().unwrap_err();
    assert!(error.to_string().starts_with("a tree needs a group"), "{error}");
}

#[tokio::test]
async fn a_pipe_gets_to_three_receivers() {
    let (folder, group, bytes) = (tempdir().unwrap(), group(64), noise(3_000_001, 5));
    let targets = ["a", "b", "c"].map(|name| folder.path().join(name));
    let receivers = targets.each_ref().map(|target| {
        let options = faircast::DeviceOptions::new(target, "pipe");
        Receiver::to_device(at(&group), options).receive().unwrap()
    });
    let builder = Sender::builder(to(&group)).scheme("tram").wait_for(3);
    let pipe = std::io::Cursor::new(bytes.clone());
    let mut sender = builder.send_pipe(pipe, folder.path()).unwrap();
    let last = succeeds(&mut sender).await;
    assert_eq!(last.bytes_total(), bytes.len() as u64);
    for (mut receiver, target) in receivers.into_iter().zip(&targets) {
        whole(&mut receiver).await;
        assert_eq!(std::fs::read(target).unwrap(), bytes);
    }
}

#[tokio::test]
async fn what_all_have_is_not_sent_again_and_settings_of_the_sender_hold() {
    let (from, group, bytes) = (tempdir().unwrap(), group(65), noise(4_000_000, 6));
    let file = put(from.path(), "file", &bytes);
    let folders = [tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap()];
    let mut sent = Vec::new();
    for _ in 0..2 {
        let receivers = folders.each_ref().map(|folder| {
            let builder = Receiver::builder(at(&group), folder.path()).once(true);
            builder.option("head", text("eager")).receive().unwrap()
        });
        let builder = Sender::builder(to(&group)).scheme("tram").wait_for(3);
        let one = OptionValue::Integer(1);
        let mut sender = builder.option("members_max", one).send(&[&file]).unwrap();
        let last = succeeds(&mut sender).await;
        sent.push(last.traffic.sent.bytes);
        let seats: Vec<_> =
            last.members.iter().map(|member| member.seat.clone().unwrap()).collect();
        assert!(seats.iter().all(|seat| seat.members <= 1), "{seats:?}");
        for mut receiver in receivers {
            whole(&mut receiver).await;
        }
    }
    assert!(sent[0] > 4_000_000 && sent[1] < 400_000, "{sent:?}");
    for folder in &folders {
        assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), bytes);
    }
}

#[tokio::test]
async fn messages_get_to_heads_and_members_under_a_key() {
    let (group, key) = (group(65), GroupKey::from_bytes([9; 32]));
    let receiver = |role| {
        let builder = MessageReceiver::builder(at(&group)).key(key.clone());
        builder.option("head", text(role)).start().unwrap()
    };
    let receivers = ["eager", "reluctant", "never"].map(receiver);
    // The source has room for two members, so that heads are needed.
    let builder = MessageSender::builder(to(&group)).scheme("tram").key(key);
    let builder = builder.option("wait_for", OptionValue::Integer(3));
    let mut sender = builder.option("members_max", OptionValue::Integer(2)).start().unwrap();
    let max = sender.message_max();
    assert_eq!(max, 1500 - 28 - 56 - 56);
    let messages: Vec<Vec<u8>> =
        (0..300).map(|i| noise([0, 1, 700, max][i % 4], i as u32)).collect();
    let sending = async {
        for message in &messages {
            sender.send(message).await.unwrap();
        }
        let last = sender.finish().await.unwrap();
        assert_eq!(last.packets, 300);
    };
    let receiving = async {
        for mut receiver in receivers {
            for (i, message) in messages.iter().enumerate() {
                assert_eq!(&receiver.next().await.unwrap().unwrap(), message, "{i}");
            }
            assert!(receiver.next().await.is_none());
        }
    };
    soon(async { tokio::join!(sending, receiving) }).await;
}

#[tokio::test]
async fn who_joins_a_stream_late_has_the_rest_and_its_end() {
    let group = group(66);
    let bytes = noise(3_000_000, 66);
    let receiver = || ByteReceiver::builder(at(&group)).start().unwrap();
    let mut first = receiver();
    let mut sender = ByteSender::builder(to(&group)).scheme("tram").start().unwrap();
    soon(sender.write_all(&bytes[..1_000_000])).await.unwrap();
    let mut got = vec![0; 1_000_000];
    soon(first.read_exact(&mut got)).await.unwrap();
    let mut late = receiver();
    let mut status = late.status();
    // A late receiver joins with the first delivery, which needs new data.
    let (mut written, mut rest) = (1_000_000, Vec::new());
    while status.borrow_and_update().packets == 0 && written < 2_000_000 {
        soon(sender.write_all(&bytes[written..written + 1000])).await.unwrap();
        written += 1000;
        soon(status.changed()).await.unwrap();
    }
    soon(sender.write_all(&bytes[written..])).await.unwrap();
    let ending = async { sender.finish().await.unwrap() };
    let reading = async { first.read_to_end(&mut got).await.unwrap() };
    let late_reading = async { late.read_to_end(&mut rest).await.unwrap() };
    soon(async { tokio::join!(ending, reading, late_reading) }).await;
    assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
    assert!(!rest.is_empty() && rest.len() < 2_000_000, "{} bytes", rest.len());
    assert!(bytes.ends_with(&rest), "{} bytes, and not the last", rest.len());
}

#[tokio::test]
async fn a_stream_names_receivers_that_left_before_its_end() {
    for leaves in [false, true] {
        let group = group(90 + u8::from(leaves));
        let bytes = noise(1_000_000, 90);
        let receiver = || ByteReceiver::builder(at(&group)).start().unwrap();
        let mut receivers = vec![receiver(), receiver(), receiver()];
        let builder = ByteSender::builder(to(&group)).scheme("tram");
        let mut sender = builder.option("wait_for", OptionValue::Integer(3)).start().unwrap();
        soon(sender.write_all(&bytes[..500_000])).await.unwrap();
        let mut got = vec![0; 500_000];
        for receiver in &mut receivers {
            soon(receiver.read_exact(&mut got)).await.unwrap();
        }
        if leaves {
            let receiver = receivers.remove(1);
            let mut status = receiver.status();
            drop(receiver);
            soon(status.wait_for(|status| status.ended)).await.unwrap();
        }
        soon(sender.write_all(&bytes[500_000..])).await.unwrap();
        let ending = async { sender.finish().await.unwrap() };
        let reading = async {
            for receiver in &mut receivers {
                assert_reads(receiver, &bytes[500_000..], "the rest").await;
            }
        };
        let (last, ()) = soon(async { tokio::join!(ending, reading) }).await;
        assert_eq!(last.unnamed, 0);
        let named: Vec<_> = last.incomplete.iter().map(|it| (it.host, it.reason)).collect();
        let left = (Some(Ipv4Addr::LOCALHOST.into()), Shortfall::Left);
        assert_eq!(named, if leaves { vec![left] } else { vec![] });
    }
}

#[tokio::test]
async fn a_stream_waits_for_who_reads_late() {
    let group = group(67);
    let bytes = noise(9_000_000, 67);
    let mut receiver = ByteReceiver::builder(at(&group)).start().unwrap();
    let mut sender = ByteSender::builder(to(&group)).scheme("tram").start().unwrap();
    let mut status = receiver.status();
    let writing = async {
        sender.write_all(&bytes).await.unwrap();
        sender.finish().await.unwrap();
    };
    let reading = async {
        status.wait_for(|status| status.bytes > 3_900_000).await.unwrap();
        assert_reads(&mut receiver, &bytes, "late").await;
    };
    soon(async { tokio::join!(writing, reading) }).await;
}

#[tokio::test]
async fn nobody_can_have_all_of_a_stream_late_and_a_stream_without_receivers_ends() {
    let group = group(68);
    let full = |builder: faircast::StreamSenderBuilder<ByteSender>| {
        builder.scheme("tram").option("late_join", text("full")).start().unwrap_err()
    };
    let builder = ByteReceiver::builder(at(&group)).option("late_join", text("full"));
    for error in [full(ByteSender::builder(to(&group))), builder.start().unwrap_err()] {
        assert!(error.to_string().starts_with("late_join = \"full\": a stream is not kept"));
    }
    let builder = MessageSender::builder(to(&group)).scheme("tram");
    let mut sender = builder.option("give_up", text("1 s")).start().unwrap();
    soon(sender.send(b"nobody hears it")).await.unwrap();
    let last = soon(sender.finish()).await.unwrap();
    assert_eq!((last.packets, last.ended), (0, true));
}

const STEERED: [&str; 3] = ["tram-pgmcc", "tram-tfmcc", "tram-ormcc"];

#[tokio::test]
async fn other_controllers_steer_the_tree_and_receivers_follow() {
    for (scheme, number) in STEERED.into_iter().zip(71..) {
        let (from, group, bytes) = (tempdir().unwrap(), group(number), noise(1_500_001, 71));
        let file = put(from.path(), "file", &bytes);
        let receiver = |name: &str, scheme: Option<&str>| {
            receive(at(&group), |builder| {
                let builder = builder.once(true).name(name).option("head", text("eager"));
                match scheme {
                    Some(scheme) => builder.scheme(scheme),
                    None => builder,
                }
            })
        };
        let receivers = [receiver("a", None), receiver("b", Some(scheme)), receiver("c", None)];
        let builder = Sender::builder(to(&group)).scheme(scheme).wait_for(3);
        let one = OptionValue::Integer(1);
        let mut sender = builder.option("members_max", one).send(&[&file]).unwrap();
        let last = succeeds(&mut sender).await;
        let mut levels: Vec<_> =
            last.members.iter().map(|member| member.seat.as_ref().unwrap().level).collect();
        levels.sort_unstable();
        assert_eq!(levels, [2, 3, 4], "{scheme}");
        assert_copies(receivers, scheme, &bytes).await;
    }
}

#[tokio::test]
async fn other_controllers_steer_streams_too_and_receivers_follow_or_say_what_they_insist_on() {
    for (scheme, other) in STEERED.into_iter().zip(["tram", "tram-pgmcc", "tram-tfmcc"]) {
        let (group, bytes) = (group(77), noise(600_001, 77));
        let receiver = |scheme: Option<&str>| {
            let builder = ByteReceiver::builder(at(&group));
            let builder = match scheme {
                Some(scheme) => builder.scheme(scheme),
                None => builder,
            };
            builder.option("head", text("eager")).start().unwrap()
        };
        let mut receivers = [receiver(None), receiver(Some(scheme))];
        let mut insists = receiver(Some(other));
        let (two, one) = (OptionValue::Integer(2), OptionValue::Integer(1));
        let builder = ByteSender::builder(to(&group)).scheme(scheme).option("wait_for", two);
        let mut sender = builder.option("members_max", one).start().unwrap();
        let sending = async {
            sender.write_all(&bytes).await.unwrap();
            sender.finish().await.unwrap()
        };
        let reading = async {
            for receiver in &mut receivers {
                assert_reads(receiver, &bytes, scheme).await;
            }
        };
        let (last, ()) = soon(async { tokio::join!(sending, reading) }).await;
        assert!(last.incomplete.is_empty(), "{scheme}: {last:?}");
        soon(insists.read_to_end(&mut Vec::new())).await.unwrap_err();
        let told = insists.status().borrow().scheme_mismatch.clone();
        assert_eq!(told, Some(faircast_proto::catalog::tree_mismatch(scheme, other)));
    }
}

#[tokio::test]
async fn who_insists_on_another_controller_of_the_tree_says_so_and_holds_up_nobody() {
    for (speaks, other) in
        [("tram-pgmcc", "tram"), ("tram", "tram-tfmcc"), (STEERED[2], STEERED[0])]
    {
        let want = faircast_proto::catalog::tree_mismatch(speaks, other);
        crate::schemes::one_insists((speaks, other), 74, want).await;
    }
}

#[tokio::test]
async fn policies_for_the_slow_are_not_steered_by_others() {
    let (from, group) = (tempdir().unwrap(), group(75));
    let file = put(from.path(), "file", b"little");
    for scheme in STEERED {
        let floor = faircast::Bitrate::from_bits_per_s(1_000_000);
        let builder = Sender::builder(to(&group)).scheme(scheme);
        let slow = faircast::SlowPolicy::DropBelow(floor);
        let error = builder.slow(slow).send(&[&file]).unwrap_err();
        assert!(error.to_string().contains("serves nobody later"), "{error}");
    }
}
