//! World of the tests of streams: all hosts are in one subnet, and all packets are recorded.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{NodeId, Seq, Time};

use super::control::{Window, WindowFeedback};
use crate::congestion::{boxed_control, boxed_feedback};
use crate::content::{Content, InMemory, Zeros};
use crate::pgm::wire::Body;
use crate::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use crate::world::FIRST_RECEIVER;
pub(super) use crate::world::{
    DELAY, Fate, GROUP, Hop, Host, Network, SOURCE, SentPacket, TSI, at,
};

pub(super) type World = crate::world::World<PgmSource, PgmReceiver>;

pub(super) fn losing(mut lose: impl FnMut(&Hop<'_>) -> bool + 'static) -> Network {
    Box::new(move |hop, _| if lose(hop) { Fate::drop() } else { Fate::pass() })
}

pub(super) fn losing_data(lose: impl Fn(u32) -> bool + 'static) -> Network {
    losing(move |hop| hop.is_data() && hop.seq().is_some_and(&lose))
}

pub(super) fn in_memory(len: usize) -> Box<InMemory> {
    Box::new(InMemory(Arc::from(object(len))))
}

pub(super) fn endless() -> Box<Zeros> {
    Box::new(Zeros { len: None })
}

impl PgmSource {
    pub(super) fn window(&self) -> &Window {
        self.control().inner().downcast_ref().expect("sources of these tests have a window")
    }
}

impl PgmReceiver {
    pub(super) fn window_feedback(&self) -> &WindowFeedback {
        self.feedback().inner().downcast_ref().expect("receivers of these tests speak of a window")
    }
}

pub(super) fn source_config() -> SourceConfig {
    let mut config = SourceConfig::new(SOURCE, GROUP, TSI);
    config.payload = 100;
    config
}

pub(super) fn object(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

impl World {
    pub(super) fn new(
        config: SourceConfig,
        content: Box<dyn Content>,
        receivers: impl IntoIterator<Item = ReceiverConfig>,
        seed: u64,
    ) -> Self {
        let source = PgmSource::new(config, content, boxed_control(Window::new(16)));
        let mut world = Self::of(Host::new(SOURCE, source, seed).keeping(), true, seed);
        for (config, node) in receivers.into_iter().zip(FIRST_RECEIVER..) {
            let node = NodeId(node);
            let machine = PgmReceiver::new(config, boxed_feedback(WindowFeedback::new(node)));
            world.receivers.push(Host::new(node, machine, seed).keeping());
        }
        world
    }

    pub(super) fn simple(receivers: usize, len: usize) -> Self {
        let configs = vec![ReceiverConfig::new(GROUP); receivers];
        Self::new(source_config(), in_memory(len), configs, 1)
    }

    pub(super) fn with_network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    pub(super) fn repaired(&self) -> Vec<u32> {
        let rdata = |sent: &SentPacket| match sent.packet().body {
            Body::Rdata(data) => Some(data.sequence.value()),
            _ => None,
        };
        self.sent.iter().filter_map(rdata).collect()
    }

    pub(super) fn deliver_by(&mut self, end: Time, len: usize) {
        self.run_until(end);
        self.assert_all_delivered(&object(len));
    }

    pub(super) fn assert_all_delivered(&self, object: &[u8]) {
        for host in &self.receivers {
            assert!(host.completed(), "{:?}: {:?}", host.node, host.last_word());
            assert!(host.payload == object, "{:?} got other bytes", host.node);
        }
    }
}

pub(super) fn seq(value: u32) -> Seq {
    Seq::new(value)
}
