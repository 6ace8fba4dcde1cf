//! Receiver of a stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use faircast_base::{Duration, Time};
use faircast_net::{App, Ended, Listen, Live, NetError, NewSession, SessionId, Waker};
use faircast_proto::catalog::{self, DEFAULT_SCHEME, tree_negotiation};
use faircast_proto::options::Options;
use faircast_proto::pgm::ReceiverConfig;
use faircast_proto::pgm::wire::Nla;
use faircast_proto::tram::TramStreamReceiver;
use faircast_proto::{FlowEvent, StreamEvent, StreamInput};
use tokio::sync::{mpsc, watch};

use super::StreamStatus;
use crate::common::{Common, Speaks, group_of};
use crate::ends::{Carrier, Hops, StreamReceiving, over};
use crate::envelope::{Watched, Wrapper};
use crate::session::{SessionSetup, Worker, start};
use crate::trace::{self, About, LiveTrace};
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct StreamReceiver {
    pub(super) waker: Waker<StreamReceiving>,
    pub(super) status: watch::Receiver<StreamStatus>,
    items: mpsc::UnboundedReceiver<Result<Vec<u8>, Error>>,
    waiting_bytes: Arc<AtomicUsize>,
    /// True while delivery pauses, so that the sender waits.
    is_held: Arc<AtomicBool>,
}

impl StreamReceiver {
    pub(crate) fn start(listen: Listen, common: Common) -> Result<Self> {
        let speaks = common.speaks(&[])?;
        super::check(&speaks.of_tram())?;
        let group = group_of(&listen);
        let (sockets, via) = common.receiver_sockets(&listen)?;
        let (status_sender, status) = watch::channel(StreamStatus::default());
        let (item_sender, items) = mpsc::unbounded_channel();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let is_held = Arc::new(AtomicBool::new(false));
        let mut setup = SessionSetup::new("faircast-stream", sockets, &common, Wrapper::receiver)?;
        setup.settings.ends_when_idle = false;
        setup.pgm.moves_after = MOVES_AFTER;
        setup.set_via(via);
        let (watched, trace) = (setup.watched.clone(), setup.trace.clone());
        let (counted, holds) = (waiting_bytes.clone(), is_held.clone());
        let waker = start(setup, move |_: &mut Live<StreamReceiving>| {
            Ok(Work {
                group,
                speaks,
                session: None,
                ending: None,
                status: StreamStatus::default(),
                status_sender,
                item_sender: Some(item_sender),
                waiting_bytes: counted,
                is_held: holds,
                watched,
                trace,
                scheme: DEFAULT_SCHEME.to_string(),
                over_tree: false,
                common,
                headers: 0,
            })
        })?;
        Ok(Self { waker, status, items, waiting_bytes, is_held })
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>>>> {
        let item = std::task::ready!(self.items.poll_recv(cx));
        if let Some(Ok(packet)) = &item {
            let before = self.waiting_bytes.fetch_sub(weight(packet), Ordering::Relaxed);
            if before < WAITING_BYTES_LOW && self.is_held.swap(false, Ordering::Relaxed) {
                let resume = |live: &mut Live<_>, id| live.input(id, StreamInput::Hold(false));
                self.waker.run(move |live| live.for_each(resume));
            }
        }
        Poll::Ready(item)
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        self.waker.close();
    }
}

struct Work {
    group: Nla,
    speaks: Speaks,
    /// The accepted sender; no other one is accepted later.
    session: Option<SessionId>,
    /// Time to report an end, and true if the sender left before it. Any host can forge an end, so
    /// data in the meantime cancels it.
    ending: Option<(Time, bool)>,
    status: StreamStatus,
    status_sender: watch::Sender<StreamStatus>,
    /// Channel to the application; `None` after the end of the stream.
    item_sender: Option<mpsc::UnboundedSender<Result<Vec<u8>>>>,
    waiting_bytes: Arc<AtomicUsize>,
    is_held: Arc<AtomicBool>,
    watched: Watched,
    trace: Option<LiveTrace>,
    scheme: String,
    over_tree: bool,
    common: Common,
    /// Bytes of a packet's headers, which black holes count too.
    headers: u32,
}

impl Work {
    fn report(&mut self, live: &Live<StreamReceiving>, ended: bool) {
        self.status.observe(live, &self.watched, ended);
        self.status_sender.send_replace(self.status.clone());
    }

    fn give(&self, item: Result<Vec<u8>>) {
        let _ = self.item_sender.as_ref().map(|sender| sender.send(item));
    }
}

impl App<StreamReceiving> for Work {
    fn accept(
        &mut self,
        live: &mut Live<StreamReceiving>,
        new: &NewSession<'_>,
    ) -> Option<StreamReceiving> {
        if self.session.is_some() || live.sessions().next().is_some() {
            return None;
        }
        let (carrier, options) = self.speaks.after(new.packet)?;
        self.scheme = carrier.stack().name();
        self.over_tree = matches!(carrier, Carrier::Tram(_));
        self.headers = self.common.headers(new.from);
        let none = Options::default();
        let hops = live.is_behind_relay().then(|| Hops::new(live, new.tsi, &none));
        Some(match carrier {
            Carrier::Pgm(scheme) => {
                let config = ReceiverConfig {
                    tsi: Some(new.tsi),
                    data_port: new.data_port,
                    start: new.now,
                    ..ReceiverConfig::from_options(self.group, &options)
                };
                over!(hops.receiver(scheme.stream_receiver(live.node(), config, &options)))
            }
            Carrier::Tram(tree) => {
                let (session, node) = ((new.tsi, new.source), live.node());
                let negotiation =
                    tree_negotiation(Some(tree).filter(|_| self.speaks.required.is_some()));
                let end = TramStreamReceiver::new(session, node, new.now, &options, negotiation);
                over!(hops.receiver(end))
            }
        })
    }

    fn event(&mut self, live: &mut Live<StreamReceiving>, id: SessionId, event: StreamEvent) {
        self.session = Some(id);
        if let StreamEvent::Flow(FlowEvent::Delivered { .. } | FlowEvent::Lost { .. }) = event {
            self.ending = None;
        }
        match event {
            StreamEvent::Flow(FlowEvent::Delivered { mut bytes, zeros }) => {
                self.status.black_hole = None;
                bytes.resize(bytes.len() + zeros as usize, 0);
                self.status.bytes += bytes.len() as u64;
                self.status.packets += 1;
                let before = self.waiting_bytes.fetch_add(weight(&bytes), Ordering::Relaxed);
                if before > WAITING_BYTES_MAX {
                    self.give(Err(Error::Overrun { bytes: before as u64 }));
                    // Later packets would follow a gap that nothing reports.
                    self.item_sender = None;
                    live.stop();
                } else {
                    self.give(Ok(bytes));
                }
                if before > WAITING_BYTES_HIGH && !self.is_held.load(Ordering::Relaxed) {
                    live.input(id, StreamInput::Hold(true));
                    let can_pause = live.machine(id).is_some_and(|end| end.can_pause_sender());
                    self.is_held.store(can_pause, Ordering::Relaxed);
                }
            }
            StreamEvent::Flow(FlowEvent::Lost { packets }) => {
                self.status.lost += u64::from(packets);
                self.give(Err(Error::Lost { packets }));
            }
            StreamEvent::BlackHole { hole, .. } => {
                let hole = hole.with(self.headers);
                self.status.black_hole = Some(hole);
                self.give(Err(Error::BlackHole(hole)));
            }
            StreamEvent::Flow(FlowEvent::Gone) => {
                self.ending = Some((live.now() + END_QUIET, true))
            }
            StreamEvent::OtherScheme { sender, receiver, .. } => {
                let mismatch = match self.over_tree {
                    true => catalog::tree_mismatch(sender, receiver),
                    false => catalog::mismatch(sender, receiver),
                };
                self.status.scheme_mismatch = Some(mismatch.clone());
                self.give(Err(Error::OtherScheme(mismatch)));
                live.close();
            }
            StreamEvent::Flow(FlowEvent::Completed) => {
                self.ending = Some((live.now() + END_QUIET, false))
            }
            StreamEvent::Incomplete { .. }
            | StreamEvent::Flow(FlowEvent::Note(_) | FlowEvent::Link(_)) => {}
        }
    }

    fn tick(&mut self, live: &mut Live<StreamReceiving>) {
        let now = live.now();
        if let Some((_, gone)) = self.ending.take_if(|(at, _)| *at <= now) {
            if gone {
                self.give(Err(Error::Gone));
            }
            self.item_sender = None;
        }
        // The pause may have begun just after the application took the last packet.
        if self.waiting_bytes.load(Ordering::Relaxed) < WAITING_BYTES_LOW
            && self.is_held.swap(false, Ordering::Relaxed)
            && let Some(id) = self.session
        {
            live.input(id, StreamInput::Hold(false));
        }
        // Members of a head may still lack packets.
        let serves = |id| live.machine(id).is_some_and(|end| end.serves());
        if self.item_sender.is_none() && !self.session.is_some_and(serves) {
            live.close();
        }
        self.report(live, false);
    }
}

impl Worker<StreamReceiving> for Work {
    fn ended(mut self, live: &mut Live<StreamReceiving>, ended: Result<Ended, NetError>) {
        if let Err(error) = ended {
            self.give(Err(error.into()));
        }
        trace::finish(self.trace.as_ref(), || About {
            name: "stream".to_string(),
            title: "what was received of a stream".to_string(),
            scheme: self.scheme.clone(),
            names: [(live.node(), "receiver".to_string())].into(),
            ..About::default()
        });
        self.report(live, true);
    }
}

/// Silence after an end before it is reported.
const END_QUIET: Duration = Duration::from_millis(500);

/// Returns the bytes that a waiting packet takes, with its place in the channel.
fn weight(packet: &[u8]) -> usize {
    packet.len() + 64
}

/// Waiting bytes above which delivery pauses, and below which delivery resumes.
const WAITING_BYTES_HIGH: usize = 4 << 20;
const WAITING_BYTES_LOW: usize = 1 << 20;

/// Most waiting bytes. PGM without relays cannot make a sender wait.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Silence after which a sender may be at another address.
const MOVES_AFTER: Duration = Duration::from_secs(5);
