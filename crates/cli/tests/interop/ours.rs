//! Our ends: source and receiver of pgmcc on a host, each in a thread of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use faircast_base::{Duration, NodeId};
use faircast_net::{
    App, Driver, DriverSettings, Interface, Listen, Live, Multicast, SessionId, SessionOptions,
    SocketSettings, Sockets, Target, Upstream,
};
use faircast_proto::catalog::scheme;
use faircast_proto::congestion::pgmcc::{PgmccConfig, PgmccReceiver, PgmccSender, Profile};
use faircast_proto::congestion::{boxed_control, boxed_feedback};
use faircast_proto::content::InMemory;
use faircast_proto::object::{ContentSupply, InOrder, ObjectReceiverSetup, ObjectSourceSetup};
use faircast_proto::options::Options;
use faircast_proto::pgm::wire::{Gsi, Nla, Tsi};
use faircast_proto::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use faircast_proto::{AppEvent, FlowEvent, Machine};

use crate::hop::{Hop, Shared, Weather};
use crate::hosts::Hosts;
use crate::{GROUP, PORT, until};

pub(crate) struct End {
    stop: Box<dyn Fn()>,
    thread: Option<JoinHandle<()>>,
    pub(crate) log: Shared,
    pub(crate) payloads: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(crate) lost: Arc<Mutex<u32>>,
}

pub(crate) fn source(
    hosts: &Hosts,
    host: u8,
    content: &[u8],
    payload: u32,
    weather: Weather,
) -> End {
    let content = InMemory(content.into());
    start(hosts, host, weather, source_sockets, Some(tsi(host)), move |node| {
        let mut config = SourceConfig::new(node, Nla::V4(GROUP), tsi(host));
        (config.data_port, config.payload) = (PORT, payload);
        config.settings.spm_interval = Duration::from_secs(1);
        config.settings.linger = Duration::from_secs(60);
        PgmSource::new(config, Box::new(content), boxed_control(PgmccSender::new(pgmcc())))
    })
}

/// Starts a receiver. The source's packets name its address; upstream packets go to `PORT`.
pub(crate) fn receiver(hosts: &Hosts, host: u8, weather: Weather) -> End {
    let sockets = |group| {
        let settings = SocketSettings { upstream: Upstream::Port(PORT), ..Default::default() };
        Sockets::receiver(Listen::Multicast(group), settings).unwrap()
    };
    start(hosts, host, weather, sockets, None, |node| {
        let mut config = ReceiverConfig::new(Nla::V4(GROUP));
        config.data_port = PORT;
        // libpgm announces packets before the rate limit allows sending them.
        config.settings.tail_delay = Duration::from_secs(4);
        PgmReceiver::new(config, boxed_feedback(PgmccReceiver::new(pgmcc(), node)))
    })
}

pub(crate) fn object_source(hosts: &Hosts, host: u8, content: &[u8], weather: Weather) -> End {
    let content = InMemory(content.into());
    start(hosts, host, weather, source_sockets, Some(tsi(host)), move |node| {
        let (group, options) = (Nla::V4(GROUP), Options::default());
        let supply = Box::new(ContentSupply::new(Box::new(content), SYMBOL_BYTES));
        let setup = ObjectSourceSetup::new(node, group, tsi(host), supply, SYMBOL_BYTES, &options);
        scheme("pgmcc").unwrap().object_source(ObjectSourceSetup {
            data_port: PORT,
            wait_for: 2,
            give_up: Duration::from_secs(30),
            ..setup
        })
    })
}

pub(crate) fn object_receiver(hosts: &Hosts, host: u8, source: u8, weather: Weather) -> End {
    let sockets =
        |group| Sockets::receiver(Listen::Multicast(group), SocketSettings::default()).unwrap();
    start(hosts, host, weather, sockets, Some(tsi(source)), move |node| {
        let (group, options) = (Nla::V4(GROUP), Options::default());
        let store = Box::new(InOrder::default());
        let setup = ObjectReceiverSetup::new(node, group, tsi(source), store, &options);
        scheme("pgmcc").unwrap().object_receiver(ObjectReceiverSetup {
            data_port: PORT,
            id: u64::from(host),
            name: format!("host {host}"),
            ..setup
        })
    })
}

fn tsi(source: u8) -> Tsi {
    Tsi { gsi: Gsi([1, 2, 3, 4, 5, source]), port: 40_000 }
}

fn source_sockets(group: Multicast) -> Sockets {
    let settings = SocketSettings { loopback: false, ..Default::default() };
    Sockets::source(Target::Multicast(group), settings).unwrap()
}

const SYMBOL_BYTES: u16 = 1420;

fn pgmcc() -> PgmccConfig {
    PgmccConfig {
        // Growth by the draft, as in libpgm, in bursts with distinct edges.
        slow_start_threshold: 4.0,
        slow_start_open: false,
        spread: false,
        // OpenPGM grows its window by a packet for each acknowledgement.
        ack_every: 1,
        // A busy machine must not look like a failed path.
        timeout_min: Duration::from_secs(5),
        ..PgmccConfig::profile(Profile::Improved)
    }
}

fn start<M: Machine<Event: AppEvent> + 'static>(
    hosts: &Hosts,
    host: u8,
    weather: Weather,
    sockets: impl FnOnce(Multicast) -> Sockets + Send + 'static,
    key: Option<Tsi>,
    machine: impl FnOnce(NodeId) -> M + Send + 'static,
) -> End {
    let (log, listener) = (Shared::default(), Listener::default());
    let (payloads, lost) = (Arc::clone(&listener.payloads), Arc::clone(&listener.lost));
    let (here, enter) = (hosts.address(host), hosts.gate(host));
    let (ready, is_ready) = mpsc::channel();
    let hop_log = Arc::clone(&log);
    let thread = std::thread::spawn(move || {
        enter();
        let multicast = Multicast {
            interfaces: vec![Interface::Address(IpAddr::V4(here))],
            ..Multicast::new(SocketAddr::from((GROUP, PORT)))
        };
        let node = NodeId(here.into());
        let settings = DriverSettings {
            node: Some(node),
            seed: Some(1),
            ends_when_idle: false,
            ..DriverSettings::default()
        };
        let mut driver = Driver::new(sockets(multicast), settings).unwrap();
        let machine = Hop::new(machine(node), weather, hop_log);
        driver.live().add(machine, SessionOptions { key, subject: None });
        ready.send(driver.waker()).unwrap();
        let mut listener = listener;
        driver.run(&mut listener).unwrap();
    });
    let waker = is_ready.recv().unwrap();
    End { stop: Box::new(move || waker.stop()), thread: Some(thread), log, payloads, lost }
}

impl End {
    pub(crate) fn wait_for(&self, bytes: usize) -> Vec<Vec<u8>> {
        let got = || self.payloads.lock().unwrap().iter().map(Vec::len).sum::<usize>();
        let has_all = || {
            assert!(!self.thread.as_ref().is_some_and(JoinHandle::is_finished), "it has ended");
            (got() >= bytes).then_some(())
        };
        until(has_all, || format!("{} of {bytes} bytes", got()));
        self.payloads.lock().unwrap().clone()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        (self.stop)();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok(), "our end failed");
        }
    }
}

#[derive(Default)]
struct Listener {
    payloads: Arc<Mutex<Vec<Vec<u8>>>>,
    lost: Arc<Mutex<u32>>,
}

impl<M: Machine<Event: AppEvent>> App<M> for Listener {
    fn event(&mut self, _live: &mut Live<M>, _session: SessionId, event: M::Event) {
        match event.into_flow() {
            Some(FlowEvent::Delivered { bytes, .. }) => self.payloads.lock().unwrap().push(bytes),
            Some(FlowEvent::Lost { packets }) => *self.lost.lock().unwrap() += packets,
            _ => {}
        }
    }
}
