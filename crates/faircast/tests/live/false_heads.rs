//! False repair heads: a host that advertises itself as the nearest head and serves no member.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use faircast::GroupKey;

use super::*;

/// Packet kinds and field offsets: docs/tram.md.
const ADVERTISEMENT: u8 = 3;
const BIND: u8 = 5;
const HEADER: usize = 24;

/// Returns an advertisement: a head of level 2, one hop away, with room and every packet.
fn advertisement(heard: &[u8]) -> Vec<u8> {
    let mut packet = Vec::from(*b"ft");
    packet.extend([1, ADVERTISEMENT, 0, 1, 0, 0]);
    packet.extend(&heard[8..16]);
    packet.extend([0xfa; 8]);
    packet.extend([0, 2, 2, 0, 0, 0, 0, 32]);
    packet.extend(1_u64.to_be_bytes());
    let words = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[6..8].copy_from_slice(&checksum.to_be_bytes());
    packet
}

struct FalseHead {
    ends: Arc<AtomicBool>,
    advertised: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl FalseHead {
    fn new(group: &Multicast) -> Self {
        let (hears, group) = (hearing(group), group.group);
        // The address selects the interface too.
        let says = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 3), 0)).unwrap();
        says.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let [ends] = [(); 1].map(|()| Arc::new(AtomicBool::new(false)));
        let [advertised, asked] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let (order, sent, binds) = (ends.clone(), advertised.clone(), asked.clone());
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !order.load(Ordering::Relaxed) {
                let mut session = None;
                while let Ok((len, from)) = hears.recv_from(&mut buffer) {
                    if len > HEADER && from != says.local_addr().unwrap() {
                        session = Some(advertisement(&buffer[..len]));
                    }
                }
                if let Some(packet) = session {
                    let done = says.send_to(&packet, group).is_ok();
                    sent.fetch_add(u64::from(done), Ordering::Relaxed);
                }
                while let Ok((len, _)) = says.recv_from(&mut buffer) {
                    let is_bind = len > HEADER && buffer[3] == BIND;
                    binds.fetch_add(u64::from(is_bind), Ordering::Relaxed);
                }
            }
        });
        Self { ends, advertised, asked, thread }
    }

    fn end(self) -> (u64, u64) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        (self.advertised.load(Ordering::Relaxed), self.asked.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_false_head_is_left_and_with_a_key_not_heard() {
    for (number, key) in [(80, None), (81, Some(GroupKey::from_bytes([9; 32])))] {
        let (from, group) = (tempdir().unwrap(), group(number));
        let bytes = noise(300_000, 5);
        let file = put(from.path(), "file", &bytes);
        let false_head = FalseHead::new(&group);
        let receivers = ["r1", "r2"].map(|name| {
            receive(at(&group), |builder| {
                let builder = builder.name(name).once(true);
                match &key {
                    Some(key) => builder.key(key.clone()),
                    None => builder,
                }
            })
        });
        let builder = Sender::builder(to(&group)).scheme("tram").wait_for(2);
        let builder = match &key {
            Some(key) => builder.key(key.clone()),
            None => builder,
        };
        let mut sender = builder.send(&[&file]).unwrap();
        succeeds(&mut sender).await;
        assert_copies(receivers, "tram", &bytes).await;
        let (advertised, asked) = false_head.end();
        assert!(advertised > 10, "it has advertised itself {advertised} times");
        assert_eq!(asked > 0, key.is_none(), "it was asked {asked} times");
    }
}
