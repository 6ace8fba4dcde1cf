//! Files over TRAM.

use faircast::{GroupKey, MemberState};
use faircast_proto::options::OptionValue;
use tempfile::{TempDir, tempdir};

use super::*;

/// Three receivers of a group, of which each plays one of the roles of a head.
fn receivers(group: &Multicast, key: Option<&GroupKey>) -> Vec<(Receiver, TempDir)> {
    let receiver = |(i, role): (usize, &str)| {
        let folder = tempdir().unwrap();
        let mut builder = Receiver::builder(at(group), folder.path())
            .name(format!("r{i}"))
            .once(true)
            .option("head", OptionValue::Text(role.into()));
        if let Some(key) = key {
            builder = builder.key(key.clone());
        }
        (builder.receive().unwrap(), folder)
    };
    ["eager", "reluctant", "never"].into_iter().enumerate().map(receiver).collect()
}

#[tokio::test]
async fn a_tree_of_files_gets_to_three_receivers() {
    for (number, key) in [(1, None), (2, Some(GroupKey::from_bytes([7; 32])))] {
        let (from, group) = (tempdir().unwrap(), group(60 + number));
        let tree = from.path().join("tree");
        let large = noise(1_000_001, 1);
        put(&tree, "large.bin", &large);
        put(&tree, "a/b/small.txt", b"hello");
        put(&tree, "a/empty", b"");
        let mut receivers = receivers(&group, key.as_ref());
        let mut builder = Sender::builder(to(&group)).scheme("tram").wait_for(3);
        if let Some(key) = key {
            builder = builder.key(key);
        }
        let mut sender = builder.send(&[&tree]).unwrap();
        let last = succeeds(&mut sender).await;
        assert!(last.members.iter().all(|member| member.state == MemberState::Done), "{last:?}");
        assert_eq!(last.members.len(), 3);
        for (receiver, folder) in &mut receivers {
            assert_eq!(whole(receiver).await.len(), 3);
            let tree = folder.path().join("tree");
            assert_eq!(std::fs::read(tree.join("large.bin")).unwrap(), large);
            assert_eq!(std::fs::read(tree.join("a/b/small.txt")).unwrap(), b"hello");
            assert_eq!(std::fs::read(tree.join("a/empty")).unwrap(), b"");
        }
    }
}

#[tokio::test]
async fn without_multicast_all_are_members_of_the_source() {
    let (from, bytes) = (tempdir().unwrap(), noise(200_000, 3));
    let file = put(from.path(), "file", &bytes);
    let free = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let sockets = [free(), free()];
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    drop(sockets);
    let mut receivers = addresses.map(|address| {
        let folder = tempdir().unwrap();
        let builder = Receiver::builder(Listen::Unicast(address), folder.path());
        (builder.once(true).receive().unwrap(), folder)
    });
    let target = Target::Unicast(addresses.to_vec());
    let mut sender = Sender::builder(target).scheme("tram").wait_for(2).send(&[&file]).unwrap();
    succeeds(&mut sender).await;
    for (receiver, folder) in &mut receivers {
        whole(receiver).await;
        assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_sender_that_is_closed_tells_its_receivers() {
    let (from, into, group) = (tempdir().unwrap(), tempdir().unwrap(), group(63));
    let file = put(from.path(), "file", &noise(6_000_000, 4));
    let mut receiver = Receiver::builder(at(&group), into.path()).receive().unwrap();
    let slow = faircast::Bitrate::from_bits_per_s(10_000_000);
    let builder = Sender::builder(to(&group)).scheme("tram").rate_max(slow);
    let mut sender = builder.send(&[&file]).unwrap();
    let mut status = receiver.status();
    soon(status.wait_for(|status| status.incoming.iter().any(|i| i.object.bytes_done > 3_000_000)))
        .await
        .unwrap();
    sender.close();
    let last = soon(sender.finish()).await.unwrap();
    assert!(!last.succeeded() && last.ended, "{last:?}");
    let received = next(&mut receiver).await;
    assert_eq!(received.outcome, ReceiveOutcome::SenderGone);
    let mut sender = Sender::builder(to(&group)).scheme("tram").send(&[&file]).unwrap();
    succeeds(&mut sender).await;
    let received = next(&mut receiver).await;
    assert!(received.last.object.bytes_found > 0, "{received:?}");
    assert!(matches!(received.outcome, ReceiveOutcome::Complete { .. }), "{received:?}");
}

#[test]
fn a_pipe_is_refused() {
    let spool = tempdir().unwrap();
    let builder = Sender::builder(to(&group(64))).scheme("tram");
    let refused = builder.send_pipe(&b"some bytes"[..], spool.path()).unwrap_err().to_string();
    assert!(refused.contains("tram cannot send a pipe"), "{refused}");
}
