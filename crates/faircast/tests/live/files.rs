//! Transfers of files.

use faircast::{GroupKey, MemberState};

use super::*;

const ROLES: [&str; 3] = ["eager", "reluctant", "never"];

#[tokio::test]
async fn a_tree_of_files_gets_to_three_receivers() {
    let key = GroupKey::from_bytes([7; 32]);
    for (number, scheme, key) in [(1, "pgmcc", None), (61, "tram", None), (62, "tram", Some(key))] {
        let (from, group) = (tempdir().unwrap(), group(number));
        let tree = from.path().join("tree");
        let large = noise(3_000_001, 1);
        put(&tree, "large.bin", &large);
        put(&tree, "a/b/small.txt", b"hello");
        put(&tree, "a/empty", b"");
        let receivers = [0, 1, 2].map(|i| {
            receive(at(&group), |mut builder| {
                if let Some(key) = &key {
                    builder = builder.key(key.clone());
                }
                if scheme == "tram" {
                    builder = builder.option("head", text(ROLES[i]));
                }
                builder.name(format!("r{i}")).once(true)
            })
        });
        let mut builder = Sender::builder(to(&group)).scheme(scheme).wait_for(3);
        if let Some(key) = key {
            builder = builder.key(key);
        }
        let last = succeeds(&mut builder.send(&[&tree]).unwrap()).await;
        let mut names: Vec<_> = last.members.iter().map(|member| member.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["r0", "r1", "r2"], "{scheme}");
        assert!(last.members.iter().all(|member| member.state == MemberState::Done), "{last:?}");
        for (mut receiver, folder) in receivers {
            let files = whole(&mut receiver).await;
            assert_eq!(files.len(), 3);
            let known = |name: &str| files.iter().find(|file| file.path.ends_with(name)).unwrap();
            assert_eq!(known("large.bin").blake3, Some(*blake3::hash(&large).as_bytes()));
            assert_eq!(known("large.bin").bytes, large.len() as u64);
            let tree = folder.path().join("tree");
            assert_eq!(std::fs::read(tree.join("large.bin")).unwrap(), large);
            assert_eq!(std::fs::read(tree.join("a/b/small.txt")).unwrap(), b"hello");
            assert_eq!(std::fs::read(tree.join("a/empty")).unwrap(), b"");
            assert!(soon(receiver.next()).await.is_none());
        }
    }
}

#[tokio::test]
async fn who_is_killed_and_started_again_is_not_waited_for_twice() {
    let (from, group) = (tempdir().unwrap(), group(9));
    let file = put(from.path(), "file", &noise(3_000_000, 9));
    let folders = [tempdir().unwrap(), tempdir().unwrap()];
    let start = |i: usize| {
        let builder = Receiver::builder(at(&group), folders[i].path());
        builder.name(format!("r{i}")).receive().unwrap()
    };
    let mut receivers = [start(0), start(1)];
    let builder = Sender::builder(to(&group))
        .wait_for(2)
        .rate_max(faircast_base::Bitrate::from_bits_per_s(8_000_000));
    let give_up = faircast_base::Duration::from_secs(600);
    let mut sender = builder.give_up(give_up).send(&[&file]).unwrap();
    let status = sender.status();
    while status.borrow().begun.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    receivers[1].abort();
    while receivers[1].next().await.is_some() {}
    receivers[1] = start(1);
    let last = succeeds(&mut sender).await;
    assert_eq!((last.members.len(), last.done()), (2, 2), "{:?}", last.members);
}

#[tokio::test]
async fn what_is_there_already_is_not_sent_again() {
    let (from, into, group) = (tempdir().unwrap(), tempdir().unwrap(), group(2));
    let file = put(from.path(), "file", &noise(2_000_000, 2));
    let mut sent = Vec::new();
    let mut receiver = Receiver::builder(at(&group), into.path()).receive().unwrap();
    for _ in 0..2 {
        let mut sender = Sender::builder(to(&group)).send(&[&file]).unwrap();
        let last = succeeds(&mut sender).await;
        whole(&mut receiver).await;
        sent.push(last.traffic.sent.bytes);
    }
    assert!(sent[0] > 2_000_000 && sent[1] < 100_000, "{sent:?}");
}

#[tokio::test]
async fn without_multicast_each_receiver_is_sent_to() {
    for scheme in ["pgmcc", "tram"] {
        let (from, bytes) = (tempdir().unwrap(), noise(500_000, 3));
        let file = put(from.path(), "file", &bytes);
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let addresses = sockets.map(|socket| socket.local_addr().unwrap());
        let receivers = addresses
            .map(|address| receive(Listen::Unicast(address), |builder| builder.once(true)));
        let target = Target::Unicast(addresses.to_vec());
        let builder = Sender::builder(target).scheme(scheme).wait_for(2);
        succeeds(&mut builder.send(&[&file]).unwrap()).await;
        assert_copies(receivers, scheme, &bytes).await;
    }
}

#[tokio::test]
async fn a_sender_that_is_closed_tells_its_receivers() {
    for (number, scheme) in [(4, "pgmcc"), (63, "tram")] {
        let (from, group) = (tempdir().unwrap(), group(number));
        let file = put(from.path(), "file", &noise(6_000_000, 4));
        let (mut receiver, _into) = receive(at(&group), |builder| builder);
        let slow = faircast::Bitrate::from_bits_per_s(10_000_000);
        let builder = || Sender::builder(to(&group)).scheme(scheme);
        let mut sender = builder().rate_max(slow).send(&[&file]).unwrap();
        until_has(&receiver, 3_000_000).await;
        sender.close();
        let last = soon(sender.finish()).await.unwrap();
        assert!(!last.succeeded() && last.ended, "{last:?}");
        let received = next(&mut receiver).await;
        assert_eq!(received.outcome, ReceiveOutcome::SenderGone);
        succeeds(&mut builder().send(&[&file]).unwrap()).await;
        let received = next(&mut receiver).await;
        assert!(received.last.object.bytes_found > 0, "{received:?}");
        assert!(matches!(received.outcome, ReceiveOutcome::Complete { .. }), "{received:?}");
    }
}

#[tokio::test]
async fn a_trace_of_either_end_can_be_read() {
    let (from, into, group) = (tempdir().unwrap(), tempdir().unwrap(), group(5));
    let file = put(from.path(), "file", &noise(300_000, 5));
    let traces = [from.path().join("s.jsonl.gz"), from.path().join("r.jsonl.gz")];
    let builder = Receiver::builder(at(&group), into.path()).name("one").trace(&traces[1]);
    let mut receiver = builder.once(true).receive().unwrap();
    let mut sender = Sender::builder(to(&group)).trace(&traces[0]).send(&[&file]).unwrap();
    succeeds(&mut sender).await;
    whole(&mut receiver).await;
    assert!(soon(receiver.next()).await.is_none());
    for path in &traces {
        let mut reader = faircast_trace::Reader::open(path).unwrap();
        let header = reader.header().clone();
        let mut recording = faircast_trace::Recording::default();
        assert!(reader.replay(&mut recording).unwrap().is_some(), "it has its end");
        assert!(recording.records.len() > 200, "{}", recording.records.len());
        assert_eq!(header.on, faircast_trace::On::Net);
    }
    let header = faircast_trace::Reader::open(&traces[0]).unwrap().header().clone();
    assert!(header.nodes.contains(&"sender".to_string()), "{:?}", header.nodes);
    assert!(header.nodes.contains(&"one".to_string()), "{:?}", header.nodes);
    assert_eq!(header.flows[0].to.len(), 1, "one receiver, whatever names it goes by");
}

#[tokio::test]
async fn what_cannot_be_is_said_at_once() {
    let (from, group) = (tempdir().unwrap(), group(6));
    let file = put(from.path(), "file", b"x");
    let error = Sender::builder(to(&group)).send(&[from.path().join("absent")]).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
    let error = Sender::builder(to(&group)).scheme("tcp").send(&[&file]).unwrap_err();
    assert!(error.to_string().contains("there are pgmcc"), "{error}");
    let error = Receiver::builder(at(&group), file.join("sub")).receive().unwrap_err();
    assert!(error.to_string().contains("sub"), "{error}");
    let nowhere = Interface::Name("none0".to_string());
    let nowhere = Multicast { interfaces: vec![nowhere], ..group };
    let error = Sender::builder(to(&nowhere)).send(&[&file]).unwrap_err();
    assert!(error.to_string().contains("none0"), "{error}");
}
