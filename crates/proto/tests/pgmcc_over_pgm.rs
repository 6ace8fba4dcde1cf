//! pgmcc and PGM together: a source with pgmcc's sender, receivers with pgmcc's receivers, one
//! bottleneck with a drop-tail queue, and random loss behind it for one of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use faircast_base::{Cx, Duration, Event, NodeId, Purpose, Rng, Time, Trace};
use faircast_proto::congestion::pgmcc::{PgmccConfig, PgmccReceiver, PgmccSender, Profile};
use faircast_proto::congestion::{boxed_control, boxed_feedback};
use faircast_proto::content::InMemory;
use faircast_proto::pgm::wire::{Gsi, Nla, Tsi};
use faircast_proto::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use faircast_proto::{AppEvent, Datagram, Destination, Machine, Transmit};

const GROUP: Nla = Nla::V4([239, 192, 0, 1]);
const TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 5000 };
const DELAY: Duration = Duration::from_millis(25);
/// Time of one packet on the bottleneck: 100 packets of 1000 bytes a second.
const SLOT: Duration = Duration::from_millis(10);
const QUEUE_MAX: u64 = 15;

#[derive(Default)]
struct Log(Vec<(Time, Event)>);

impl Trace for Log {
    fn emit(&mut self, at: Time, event: Event) {
        self.0.push((at, event));
    }
}

struct Host {
    machine: Box<dyn Machine>,
    rng: Rng,
    log: Log,
    payload: Vec<u8>,
    completed: Option<Time>,
}

struct Flying {
    to: usize,
    from: usize,
    destination: Destination,
    bytes: Vec<u8>,
    zeros: u32,
}

struct Net {
    now: Time,
    hosts: Vec<Host>,
    flying: BTreeMap<(Time, u64), Flying>,
    launched: u64,
    free_at: Time,
    dropped: u64,
    faults: Rng,
    loss_of_last: f64,
}

impl Net {
    fn new(object: &[u8], receivers: u32, profile: Profile, loss_of_last: f64) -> Self {
        let pgmcc = PgmccConfig::profile(profile);
        let mut config = SourceConfig::new(NodeId(0), GROUP, TSI);
        config.payload = 956;
        let content = Box::new(InMemory(Arc::from(object)));
        let source = PgmSource::new(config, content, boxed_control(PgmccSender::new(pgmcc)));
        let mut machines: Vec<Box<dyn Machine>> = vec![Box::new(source)];
        for i in 1..=receivers {
            let feedback = PgmccReceiver::new(pgmcc, NodeId(i));
            machines.push(Box::new(PgmReceiver::new(
                ReceiverConfig::new(GROUP),
                boxed_feedback(feedback),
            )));
        }
        let host = |(i, machine)| Host {
            machine,
            rng: Rng::new(5, NodeId(i as u32), Purpose::Machine(0)),
            log: Log::default(),
            payload: Vec::new(),
            completed: None,
        };
        Self {
            now: Time::ZERO,
            hosts: machines.into_iter().enumerate().map(host).collect(),
            flying: BTreeMap::new(),
            launched: 0,
            free_at: Time::ZERO,
            dropped: 0,
            faults: Rng::new(5, NodeId(0), Purpose::Fault),
            loss_of_last,
        }
    }

    fn act(&mut self, i: usize, input: Option<Datagram<'_>>) {
        let host = &mut self.hosts[i];
        let mut cx = Cx { now: self.now, rng: &mut host.rng, trace: &mut host.log };
        match input {
            Some(datagram) => host.machine.handle_datagram(&mut cx, datagram),
            None => host.machine.handle_timeout(&mut cx),
        }
        let mut sent = Vec::new();
        let mut buf = Vec::new();
        while let Some(transmit) = host.machine.poll_transmit(&mut cx, &mut buf) {
            sent.push((transmit, std::mem::take(&mut buf)));
        }
        while let Some(event) = host.machine.poll_event() {
            match event {
                AppEvent::Delivered { bytes, .. } => host.payload.extend(bytes),
                AppEvent::Completed => host.completed = Some(self.now),
                _ => {}
            }
        }
        for (transmit, bytes) in sent {
            self.launch(i, &transmit, &bytes);
        }
    }

    /// What the source sends crosses the bottleneck once, whoever it is for.
    fn launch(&mut self, from: usize, transmit: &Transmit, bytes: &[u8]) {
        let mut at = self.now + DELAY;
        if from == 0 {
            let waiting = self.free_at.since(self.now).as_nanos() / SLOT.as_nanos();
            if waiting >= QUEUE_MAX {
                self.dropped += 1;
                return;
            }
            let len = bytes.len() as u64 + u64::from(transmit.zeros);
            self.free_at = self.free_at.max(self.now) + SLOT * len / 1000;
            at = self.free_at + DELAY;
        }
        let last = self.hosts.len() - 1;
        for to in 0..self.hosts.len() {
            let wanted = match transmit.to {
                Destination::Group(_) => to != from,
                Destination::Node(node) => to == node.index(),
            };
            let lost = to == last && from == 0 && self.faults.chance(self.loss_of_last);
            if wanted && !lost {
                let (bytes, destination) = (bytes.to_vec(), transmit.to);
                let zeros = transmit.zeros;
                self.launched += 1;
                let flying = Flying { to, from, destination, bytes, zeros };
                self.flying.insert((at, self.launched), flying);
            }
        }
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let due = self
                .hosts
                .iter()
                .enumerate()
                .filter_map(|(i, host)| Some((host.machine.next_timeout()?, i)))
                .min();
            let timer = due.map(|(at, _)| at);
            let Some(next) = arrival.into_iter().chain(timer).min() else { return };
            if next > end {
                return;
            }
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let (_, flying) = self.flying.pop_first().expect("something is on its way");
                let datagram = Datagram {
                    from: NodeId(flying.from as u32),
                    to: flying.destination,
                    bytes: &flying.bytes,
                    zeros: flying.zeros,
                    congestion_experienced: false,
                };
                self.act(flying.to, Some(datagram));
            } else if let Some((_, i)) = due {
                self.act(i, None);
            }
        }
    }

    fn source_events(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.hosts[0].log.0.iter().filter(|(_, event)| wanted(event)).count()
    }
}

#[test]
fn an_object_crosses_a_bottleneck_intact_at_most_of_its_rate() {
    let object: Vec<u8> = (0..956 * 2000u32).map(|i| (i * 31 + i / 509) as u8).collect();
    for (profile, loss, share) in [
        (Profile::Improved, 0.0, 0.8),
        (Profile::Improved, 0.01, 0.5),
        (Profile::Draft, 0.0, 0.6),
        (Profile::Paper, 0.0, 0.6),
    ] {
        let case = format!("{profile:?} with loss {loss}");
        let mut net = Net::new(&object, 3, profile, loss);
        net.run_until(Time::from_secs_f64(400.0));
        // 2000 packets on a link that takes 100 a second.
        for host in &net.hosts[1..] {
            let took = host.completed.unwrap_or_else(|| panic!("{case}: incomplete"));
            assert!(host.payload == object, "{case}: other bytes");
            let took = took.as_secs_f64();
            assert!(took < 20.0 / share, "{case}: {took} s");
            assert!(took > 20.0, "{case}: faster than the link, in {took} s");
        }
        // The control had something to do, and did it by what the endpoints brought it.
        assert!(net.dropped > 0, "{case}: the queue was never full");
        let cuts = net.source_events(|event| matches!(event, Event::Cut { .. }));
        assert!(cuts > 3, "{case}: {cuts} cuts");
        let acks = net.source_events(|event| matches!(event, Event::AckReceived { .. }));
        assert!(acks > 1500, "{case}: {acks} ACKs");
        let bad = |event: &Event| matches!(event, Event::BadInput { .. });
        assert_eq!(net.source_events(bad), 0, "{case}");
        assert!(net.hosts[0].machine.next_timeout().is_none(), "{case}: the source rests");
    }
}
