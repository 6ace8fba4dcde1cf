//! Streams on paths that drop long packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use faircast::{Error, MessageReceiver, MessageSender};

use super::*;

fn way_to(receiver: SocketAddr, limit: Arc<AtomicUsize>) -> SocketAddr {
    let way = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = way.local_addr().unwrap();
    way.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    std::thread::spawn(move || {
        let mut sender = None;
        let mut buf = vec![0; 1 << 16];
        while let Ok((len, from)) = way.recv_from(&mut buf) {
            if from == receiver {
                if let Some(sender) = sender {
                    let _ = way.send_to(&buf[..len], sender);
                }
            } else {
                sender = Some(from);
                if len <= limit.load(Ordering::Relaxed) {
                    let _ = way.send_to(&buf[..len], receiver);
                }
            }
        }
    });
    address
}

#[tokio::test]
async fn both_ends_of_a_stream_are_told_that_long_packets_do_not_arrive() {
    let at = free();
    let limit = Arc::new(AtomicUsize::new(1280 - 28));
    let to = Target::Unicast(vec![way_to(at, limit.clone())]);
    let mut receiver = MessageReceiver::builder(Listen::Unicast(at)).start().unwrap();
    let mut sender = MessageSender::builder(to).start().unwrap();
    let long = noise(sender.message_max(), 1);
    let (mut sends, mut receives) = (sender.status(), receiver.status());
    let writing = async {
        while sender.send(&long).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let reading = async {
        let error = receiver.next().await.unwrap().unwrap_err();
        let Error::BlackHole(hole) = &error else { panic!("{error}") };
        assert!(hole.sent == Some(1500) && hole.arrives < 300, "{hole:?}");
        let text = error.to_string();
        assert!(text.contains("of up to 1500 bytes") && text.contains("such as 1280"), "{text}");
        receives.wait_for(|status| status.black_hole == Some(*hole)).await.unwrap();
        let told = sends.wait_for(|status| status.starved == 1).await.unwrap().black_hole;
        assert_eq!(told.map(|hole| hole.sent), Some(Some(1500)));
        limit.store(usize::MAX, Ordering::Relaxed);
        while !matches!(receiver.next().await.unwrap(), Ok(message) if message == long) {}
        receives.wait_for(|status| status.black_hole.is_none()).await.unwrap();
    };
    soon(async {
        tokio::select! { () = writing => panic!("it sends for ever"), () = reading => () }
    })
    .await;
}
