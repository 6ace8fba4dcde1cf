//! Streams of bytes and messages.

use faircast::{ByteSender, Error, GroupKey, MessageReceiver, MessageSender, RelayServer};
use faircast_proto::catalog::{Stack, live_stacks};
use tokio::io::AsyncWriteExt as _;

use super::*;

fn neighbours(relay: &RelayServer) -> usize {
    let status = relay.status();
    let report = &status.borrow().report;
    report.as_ref().map_or(0, |report| report.node.neighbours.len())
}

#[tokio::test]
async fn bytes_arrive_in_order_at_several_receivers_over_every_stack_and_through_a_relay() {
    for (stack, number) in live_stacks().zip(0..) {
        bytes_arrive_in_order(stack, number, None).await;
        let relay = RelayServer::builder("127.0.0.1:0".parse().unwrap()).start().unwrap();
        bytes_arrive_in_order(stack, number, Some(relay)).await;
    }
}

async fn bytes_arrive_in_order(stack: Stack, number: u32, relay: Option<RelayServer>) {
    let (scheme, group) = (stack.name(), group(21));
    let via: Vec<_> = relay.iter().map(|relay| relay.local_address().to_string()).collect();
    let bytes = noise(300_000, 21 + number);
    let receiver =
        || ByteReceiver::builder(at(&group)).scheme(&scheme).via(via.clone()).start().unwrap();
    let receivers: Vec<_> = (0..2).map(|_| receiver()).collect();
    let mut builder = ByteSender::builder(to(&group)).scheme(&scheme).via(via.clone());
    if stack.has_heads() {
        builder = builder.option("wait_for", OptionValue::Integer(2));
    }
    let mut sender = builder.start().unwrap();
    let writing = async {
        // Receivers attached later to the relay would miss the beginning.
        while relay.as_ref().is_some_and(|relay| neighbours(relay) < 3) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        for piece in bytes.chunks(7_777) {
            sender.write_all(piece).await.unwrap();
        }
        sender.shutdown().await.unwrap();
    };
    let reading = async {
        for mut receiver in receivers {
            assert_reads(&mut receiver, &bytes, &format!("{scheme} via {via:?}")).await;
        }
    };
    soon(async { tokio::join!(writing, reading) }).await;
}

#[tokio::test]
async fn messages_keep_their_bounds_and_too_long_ones_are_refused() {
    let group = group(22);
    let key = GroupKey::from_bytes([7; 32]);
    let mut receiver = MessageReceiver::builder(at(&group)).key(key.clone()).start().unwrap();
    let mut sender = MessageSender::builder(to(&group)).key(key).start().unwrap();
    let max = sender.message_max();
    assert_eq!(max, 1500 - 72 - 56 - 16);
    let messages = [b"first".to_vec(), noise(max, 1), b"x".to_vec(), noise(100, 2)];
    for message in &messages {
        soon(sender.send(message)).await.unwrap();
    }
    let error = soon(sender.send(&noise(max + 1, 3))).await.unwrap_err();
    assert!(matches!(error, Error::MessageTooLong { .. }), "{error}");
    for message in &messages {
        assert_eq!(&soon(receiver.next()).await.unwrap().unwrap(), message);
    }
    let last = soon(sender.finish()).await.unwrap();
    assert_eq!(last.packets, messages.len() as u64);
    assert!(soon(receiver.next()).await.is_none());
}

#[tokio::test]
async fn through_relays_a_sender_waits_for_who_reads_slowly() {
    // Above the limit of waiting bytes: without credits the slow reader would fail.
    const BYTES: usize = 12 << 20;
    let relay = RelayServer::builder("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let via = vec![relay.local_address().to_string()];
    let group = group(29);
    let bytes = noise(BYTES, 29);
    let receiver = || ByteReceiver::builder(at(&group)).via(via.clone()).start().unwrap();
    let (mut slow, mut quick) = (receiver(), receiver());
    let mut sender = ByteSender::builder(to(&group)).via(via.clone()).start().unwrap();
    let status = slow.status();
    let writing = async {
        while neighbours(&relay) < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        sender.write_all(&bytes).await.unwrap();
        sender.shutdown().await.unwrap();
    };
    let reading = async {
        let mut before = 0;
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
            let now = status.borrow().bytes;
            if now > 0 && now == before {
                break;
            }
            before = now;
        }
        assert!(before < 6 << 20, "{before} bytes came to who reads nothing");
        assert_reads(&mut slow, &bytes, "slow").await;
    };
    let beside = assert_reads(&mut quick, &bytes, "quick");
    soon(async { tokio::join!(writing, reading, beside) }).await;
}
