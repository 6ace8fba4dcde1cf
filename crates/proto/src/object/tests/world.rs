//! World of the tests of objects: each receiver has its own subnet and its own disk.

mod disk;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use std::sync::Mutex;

use faircast_base::{Bitrate, Duration, NodeId, Rng, Time};

use crate::catalog::{self, SchemeEntry};
use crate::object::ObjectSourceInput;
use crate::object::wire::{Claim, MemberMessage};
use crate::object::{
    Fec, ObjectReceiver, ObjectReceiverSetup, ObjectSource, ObjectSourceSetup, SlowPolicy, Supply,
};
use crate::options::Options;
use crate::world::FIRST_RECEIVER;

pub(crate) use crate::object::{ObjectSender, ObjectTaker};
pub(crate) use crate::world::{DELAY, Fate, GROUP, Hop, Host, SOURCE, TSI, at, ms, s};
pub(crate) use crate::{FlowEvent, Interactive, Machine};
pub(crate) use disk::{Disk, DiskStore, Object};

pub(crate) const SYMBOL: u16 = 100;

pub(crate) struct World {
    ends: Ends,
    pub(crate) object: Object,
    limit: Option<Bitrate>,
    scheme: &'static SchemeEntry,
    pub(crate) disks: Vec<Arc<Mutex<Disk>>>,
    starts: u64,
    seed: u64,
}

type Ends = crate::world::World<ObjectSource, ObjectReceiver>;

impl Deref for World {
    type Target = Ends;
    fn deref(&self) -> &Ends {
        &self.ends
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Ends {
        &mut self.ends
    }
}

impl Host<ObjectReceiver> {
    pub(crate) fn id(&self) -> u64 {
        id_of(self.node)
    }
}

#[derive(Clone)]
pub(crate) struct Choices {
    pub(crate) fec: Fec,
    pub(crate) wait_for: u32,
    pub(crate) give_up: Duration,
    pub(crate) slow: SlowPolicy,
    pub(crate) stall_max: Option<Duration>,
    pub(crate) limit: Option<Bitrate>,
    pub(crate) symbol: u16,
    pub(crate) options: Options,
    pub(crate) scheme: &'static SchemeEntry,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            fec: Fec::Auto,
            wait_for: 1,
            give_up: Duration::from_secs(20),
            slow: SlowPolicy::Wait,
            stall_max: None,
            limit: None,
            symbol: SYMBOL,
            options: Options::default(),
            scheme: catalog::scheme(catalog::DEFAULT_SCHEME).unwrap(),
        }
    }
}

impl Choices {
    pub(crate) fn with(mut self, settings: &[(&str, &str)]) -> Self {
        self.options = crate::world::options(settings, &catalog::over_pgm(self.scheme).options());
        self
    }
}

/// Message of a member that reports as the node with its number and 100.
pub(crate) fn message(id: u64, claim: Claim) -> MemberMessage {
    MemberMessage {
        claim,
        ask: true,
        loss: 0,
        number: 1,
        id,
        reporter: NodeId(id as u32 + 100),
        bytes: 0,
        name: "n".into(),
        reason: "".into(),
        identity: None,
    }
}

fn id_of(node: NodeId) -> u64 {
    u64::from(node.0) << 20
}

pub(crate) fn floor(bits_per_s: u64) -> SlowPolicy {
    SlowPolicy::DropBelow(Bitrate::from_bits_per_s(bits_per_s))
}

impl World {
    pub(crate) fn new(content: usize, receivers: usize, choices: &Choices, seed: u64) -> Self {
        let object = Object::new(content);
        let source = Host::new(SOURCE, source(&object, choices, Time::ZERO), seed);
        let ends = Ends::of(source, false, seed);
        let (scheme, limit, disks, starts) = (choices.scheme, choices.limit, Vec::new(), 0);
        let mut world = Self { ends, object, scheme, limit, disks, starts, seed };
        world.spacing = Duration::from_micros(200);
        for _ in 0..receivers {
            world.add(Disk::default(), Time::ZERO);
        }
        world
    }

    pub(crate) fn add(&mut self, disk: Disk, start: Time) -> usize {
        let which = self.receivers.len();
        let disk = Arc::new(Mutex::new(disk));
        let node = NodeId(FIRST_RECEIVER + which as u32);
        let limit = self.limit.take();
        let machine = receiver(self.scheme, node, id_of(node), disk.clone(), limit, start);
        let host = Host::new(node, machine, self.seed);
        self.receivers.push(host);
        self.disks.push(disk);
        which
    }

    /// Restarts receiver `i` with its whole blocks on disk, and dismisses the old member.
    pub(crate) fn restart_receiver(&mut self, i: usize) {
        let old = self.source.machine.status().members;
        let old = old.iter().find(|member| member.node == self.receivers[i].node).map(|m| m.id);
        if let Some(id) = old {
            let now = self.now;
            let dismiss = ObjectSourceInput::Dismiss { id };
            self.source.act(now, |machine, cx| machine.handle_input(cx, dismiss));
        }
        let node = self.receivers[i].node;
        let disk = self.disks[i].clone();
        let disk = &mut *disk.lock().unwrap();
        disk.found.clear();
        let block = 64 * usize::from(SYMBOL);
        for start in (0..disk.parts[1].len()).step_by(block) {
            let place = start..(start + block).min(disk.parts[1].len());
            if disk.written[1][place.clone()].iter().all(|written| *written) {
                disk.found.push(place.start as u64..place.end as u64);
            } else {
                disk.parts[1][place].fill(0xee);
            }
        }
        self.starts += 1;
        let id = u64::from(node.0) << 20 | self.starts;
        let machine = receiver(self.scheme, node, id, self.disks[i].clone(), None, self.now);
        let host = Host::new(node, machine, self.seed + self.starts);
        self.receivers[i] = host;
    }

    pub(crate) fn restart_source(&mut self, choices: &Choices) {
        let machine = source(&self.object, choices, self.now);
        let host = Host::new(SOURCE, machine, self.seed + 77);
        self.source = host;
    }

    pub(crate) fn with_network(
        mut self,
        network: impl FnMut(&Hop<'_>, &mut Rng) -> Fate + 'static,
    ) -> Self {
        self.network = Box::new(network);
        self
    }

    pub(crate) fn is_intact(&self, i: usize) -> bool {
        let disk = self.disks[i].lock().unwrap();
        disk.parts.iter().zip(&self.object.0).all(|(have, sent)| have == &**sent)
    }

    pub(crate) fn complete_by(&mut self, end: Time) {
        self.run_until(end);
        self.assert_all_complete();
    }

    pub(crate) fn assert_all_complete(&self) {
        for (i, host) in self.receivers.iter().enumerate() {
            let status = host.machine.status();
            assert!(host.said(&FlowEvent::Completed), "{i} at {}: {status:?}", self.now);
            assert!(self.is_intact(i), "{i} got other bytes");
        }
    }

    pub(crate) fn overhead(&self) -> f64 {
        let status = self.source.machine.status();
        let symbols = status.packets.symbols + status.packets.parity;
        symbols as f64 * f64::from(SYMBOL) / self.object.len() as f64
    }
}

pub(crate) fn source(object: &Object, choices: &Choices, start: Time) -> ObjectSource {
    source_of(Box::new(object.clone()), choices, start)
}

pub(crate) fn source_of(supply: Box<dyn Supply>, choices: &Choices, start: Time) -> ObjectSource {
    let Choices { fec, wait_for, give_up, slow, stall_max, symbol, ref options, scheme, .. } =
        *choices;
    let setup = ObjectSourceSetup::new(SOURCE, GROUP, TSI, supply, symbol, options);
    scheme.object_source(ObjectSourceSetup {
        start,
        fec,
        wait_for,
        give_up,
        slow,
        stall_max,
        ..setup
    })
}

pub(crate) fn receiver(
    scheme: &SchemeEntry,
    node: NodeId,
    id: u64,
    disk: Arc<Mutex<Disk>>,
    limit: Option<Bitrate>,
    start: Time,
) -> ObjectReceiver {
    let (options, name) = (Options::default(), alloc::format!("receiver {}", node.0));
    let store = Box::new(DiskStore(disk));
    let setup = ObjectReceiverSetup::new(node, GROUP, TSI, store, &options);
    scheme.object_receiver(ObjectReceiverSetup { start, id, name, limit, ..setup })
}

pub(crate) fn losing_if(
    mut is_lost: impl FnMut(&Hop<'_>, &mut Rng) -> bool,
) -> impl FnMut(&Hop<'_>, &mut Rng) -> Fate {
    move |hop, rng| if is_lost(hop, rng) { Fate::drop() } else { Fate::pass() }
}

pub(crate) fn losing_data(share: f64) -> impl FnMut(&Hop<'_>, &mut Rng) -> Fate {
    losing_if(move |hop, rng| hop.is_data() && rng.chance(share))
}

pub(crate) fn losing(share: f64) -> impl FnMut(&Hop<'_>, &mut Rng) -> Fate {
    losing_if(move |_, rng| rng.chance(share))
}
