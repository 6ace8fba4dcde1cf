//! Our ends: a source and a receiver of pgmcc on a host, each in a thread of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration as WallDuration, Instant};

use faircast_base::{Duration, NodeId, Time};
use faircast_net::{
    App, Driver, DriverSettings, Heard, Interface, Listen, Live, Multicast, SessionId,
    SessionOptions, SocketSettings, Sockets, Target, Upstream,
};
use faircast_proto::catalog::scheme;
use faircast_proto::congestion::pgmcc::{
    PgmccConfig, PgmccReceiver, PgmccSender, Profile, SlowStart,
};
use faircast_proto::congestion::{boxed_control, boxed_feedback};
use faircast_proto::content::InMemory;
use faircast_proto::object::{
    ContentSupply, Fec, InOrder, ObjectReceiverSetup, ObjectSourceSetup, SlowPolicy,
};
use faircast_proto::options::Options;
use faircast_proto::pgm::wire::{Gsi, Nla, Tsi};
use faircast_proto::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use faircast_proto::{AppEvent, Machine};

use crate::hop::{Hop, Shared, Weather};
use crate::hosts::Hosts;
use crate::{GROUP, PORT};

/// One of our ends, ended when dropped.
pub(crate) struct End {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Packets that were sent and received.
    pub(crate) log: Shared,
    /// The payloads that were delivered, one for each packet.
    pub(crate) payloads: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Packets that can never be delivered.
    pub(crate) lost: Arc<Mutex<u32>>,
}

/// Starts a source of `content` in packets of `payload` bytes.
pub(crate) fn source(
    hosts: &Hosts,
    host: u8,
    content: &[u8],
    payload: u32,
    weather: Weather,
) -> End {
    let node = NodeId(hosts.address(host).into());
    let tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, host]), port: 40_000 };
    let content = InMemory(content.into());
    start(hosts, host, move |group, driver, log| {
        let config = SourceConfig {
            data_port: PORT,
            payload,
            ambient_interval: Duration::from_secs(1),
            linger: Duration::from_secs(60),
            ..SourceConfig::new(node, Nla::V4(GROUP), tsi)
        };
        let machine =
            PgmSource::new(config, Box::new(content), boxed_control(PgmccSender::new(pgmcc())));
        let settings = SocketSettings { loopback: false, ..Default::default() };
        let sockets = Sockets::source(Target::Multicast(group), settings).unwrap();
        let mut driver = Driver::new(sockets, driver).unwrap();
        let options = SessionOptions { key: Some(tsi), subject: None };
        driver.live().add(Hop::new(machine, weather, log), options);
        driver
    })
}

/// Starts a receiver. The source's packets name its address; what it wants to hear goes to `PORT`.
pub(crate) fn receiver(hosts: &Hosts, host: u8, weather: Weather) -> End {
    let node = NodeId(hosts.address(host).into());
    start(hosts, host, move |group, driver, log| {
        let config = ReceiverConfig {
            data_port: PORT,
            // libpgm tells of packets before it may send them.
            tail_delay: Duration::from_secs(4),
            ..ReceiverConfig::new(Nla::V4(GROUP))
        };
        let machine = PgmReceiver::new(config, boxed_feedback(PgmccReceiver::new(pgmcc(), node)));
        let settings = SocketSettings { upstream: Upstream::Port(PORT), ..Default::default() };
        let sockets = Sockets::receiver(Listen::Multicast(group), settings).unwrap();
        let mut driver = Driver::new(sockets, driver).unwrap();
        driver.live().add(Hop::new(machine, weather, log), SessionOptions::default());
        driver
    })
}

/// Starts the source of an object, once two receivers are there.
pub(crate) fn object_source(hosts: &Hosts, host: u8, content: &[u8], weather: Weather) -> End {
    let node = NodeId(hosts.address(host).into());
    let tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, host]), port: 40_000 };
    let content = InMemory(content.into());
    start(hosts, host, move |group, driver, log| {
        let setup = ObjectSourceSetup {
            node,
            group: Nla::V4(GROUP),
            tsi,
            data_port: PORT,
            start: Time::ZERO,
            supply: Box::new(ContentSupply::new(Box::new(content), SYMBOL_BYTES)),
            symbol_bytes: SYMBOL_BYTES,
            fec: Fec::Auto,
            wait_for: 2,
            give_up: Duration::from_secs(30),
            slow: SlowPolicy::Wait,
            options: &Options::default(),
        };
        let machine = scheme("pgmcc").unwrap().object_source(setup);
        let settings = SocketSettings { loopback: false, ..Default::default() };
        let sockets = Sockets::source(Target::Multicast(group), settings).unwrap();
        let mut driver = Driver::new(sockets, driver).unwrap();
        let options = SessionOptions { key: Some(tsi), subject: None };
        driver.live().add(Hop::new(machine, weather, log), options);
        driver
    })
}

/// Starts a receiver of the object that `source` sends.
pub(crate) fn object_receiver(hosts: &Hosts, host: u8, source: u8, weather: Weather) -> End {
    let node = NodeId(hosts.address(host).into());
    start(hosts, host, move |group, driver, log| {
        let tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, source]), port: 40_000 };
        let setup = ObjectReceiverSetup {
            node,
            group: Nla::V4(GROUP),
            tsi,
            data_port: PORT,
            start: Time::ZERO,
            store: Box::new(InOrder::new()),
            id: u64::from(host),
            name: format!("host {host}"),
            options: &Options::default(),
        };
        let machine = scheme("pgmcc").unwrap().object_receiver(setup);
        let sockets = Sockets::receiver(Listen::Multicast(group), SocketSettings::default());
        let mut driver = Driver::new(sockets.unwrap(), driver).unwrap();
        let options = SessionOptions { key: Some(tsi), subject: None };
        driver.live().add(Hop::new(machine, weather, log), options);
        driver
    })
}

/// As many as an Ethernet packet has room for.
const SYMBOL_BYTES: u16 = 1420;

/// The recommended settings, but for slow start: up to a window of 4, as OpenPGM has it.
fn pgmcc() -> PgmccConfig {
    PgmccConfig {
        // The draft's growth, which libpgm has too, in bursts whose edges can be told apart.
        slow_start_threshold: 4.0,
        slow_start: SlowStart::Limited,
        spread: false,
        // OpenPGM grows by a packet for each acknowledgement.
        ack_every: 1,
        // A machine that is busy with other things must not look like a path that has failed.
        timeout_min: Duration::from_secs(5),
        ..PgmccConfig::profile(Profile::Improved)
    }
}

fn start<M: Machine + 'static>(
    hosts: &Hosts,
    host: u8,
    make: impl FnOnce(Multicast, DriverSettings, Shared) -> Driver<M> + Send + 'static,
) -> End {
    let mut end = End {
        stop: Arc::new(AtomicBool::new(false)),
        thread: None,
        log: Shared::default(),
        payloads: Arc::default(),
        lost: Arc::default(),
    };
    let mut listener = Listener {
        stop: Arc::clone(&end.stop),
        payloads: Arc::clone(&end.payloads),
        lost: Arc::clone(&end.lost),
    };
    let log = Arc::clone(&end.log);
    let here = hosts.address(host);
    let enter = hosts.gate(host);
    let thread = std::thread::spawn(move || {
        enter();
        let multicast = Multicast {
            interfaces: vec![Interface::Address(IpAddr::V4(here))],
            ..Multicast::new(SocketAddr::from((GROUP, PORT)))
        };
        let settings = DriverSettings {
            node: Some(NodeId(here.into())),
            seed: Some(1),
            ends_when_idle: false,
            tick: Duration::from_millis(20),
            ..DriverSettings::default()
        };
        make(multicast, settings, log).run(&mut listener).unwrap();
    });
    end.thread = Some(thread);
    end
}

impl End {
    /// Waits until as many bytes as this were delivered.
    pub(crate) fn wait_for(&self, bytes: usize, patience: WallDuration) -> Vec<Vec<u8>> {
        let start = Instant::now();
        loop {
            let payloads = self.payloads.lock().unwrap();
            let got: usize = payloads.iter().map(Vec::len).sum();
            if got >= bytes {
                return payloads.clone();
            }
            drop(payloads);
            assert!(!self.thread.as_ref().is_some_and(JoinHandle::is_finished), "it has ended");
            assert!(start.elapsed() < patience, "{got} of {bytes} bytes after {patience:?}");
            std::thread::sleep(WallDuration::from_millis(10));
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok(), "our end failed");
        }
    }
}

struct Listener {
    stop: Arc<AtomicBool>,
    payloads: Arc<Mutex<Vec<Vec<u8>>>>,
    lost: Arc<Mutex<u32>>,
}

impl<M: Machine> App<M> for Listener {
    fn heard(&mut self, _live: &mut Live<M>, _heard: &Heard<'_>) -> Option<M> {
        None
    }

    fn event(&mut self, _live: &mut Live<M>, _session: SessionId, event: AppEvent) {
        match event {
            AppEvent::Delivered { bytes, .. } => self.payloads.lock().unwrap().push(bytes),
            AppEvent::Lost { packets } => *self.lost.lock().unwrap() += packets,
            _ => {}
        }
    }

    fn tick(&mut self, live: &mut Live<M>) {
        if self.stop.load(Ordering::Relaxed) {
            live.stop();
        }
    }
}
