//! Sender of a stream.

use std::task::{Context, Poll};

use faircast_base::{Duration, Time};
use faircast_net::{App, Ended, Live, NetError, SessionId, SessionOptions, Target, Waker};
use faircast_proto::pgm::SourceConfig;
use faircast_proto::{StreamEvent, catalog, tram};
use tokio::sync::watch;

use super::packets::Queue;
use super::{IncompleteReceiver, StreamStatus};
use crate::common::{Common, family, group_to};
use crate::ends::{Carrier, Hops, StreamSending, new_tsi, over};
use crate::envelope::{Watched, Wrapper};
use crate::session::{SessionSetup, Worker, start};
use crate::trace::{self, About, LiveTrace};
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct StreamSender {
    pub(super) queue: Queue,
    waker: Waker<StreamSending>,
    pub(super) status: watch::Receiver<StreamStatus>,
}

/// Default interval of SPMs, by which receivers follow a source to a new address.
const SPM_INTERVAL: Duration = Duration::from_secs(1);

impl StreamSender {
    pub(crate) fn start(target: Target, common: Common) -> Result<Self> {
        let (address, group) = (family(&target), group_to(&target));
        let (carrier, options) = super::carrier(&common, &target)?;
        let payload = common.stream_bytes(address, carrier)?;
        let headers = common.headers(address);
        let with_heads = matches!(carrier, Carrier::Tram(_));
        let (sockets, via) = common.source_sockets(&target, with_heads)?;
        let (_, credits) = common.split_credits()?;
        let (status_sender, status) = watch::channel(StreamStatus::default());
        let mut setup = SessionSetup::new("faircast-stream", sockets, &common, Wrapper::source)?;
        let through_relays = via.is_some();
        setup.set_via(via);
        let (watched, trace) = (setup.watched.clone(), setup.trace.clone());
        let tsi = new_tsi();
        let mut config = SourceConfig::from_options(Default::default(), group, tsi, &options);
        if !options.has("spm_interval") {
            config.settings.spm_interval = SPM_INTERVAL;
        }
        let window = match carrier {
            Carrier::Pgm(_) => u64::from(config.transmit_window),
            Carrier::Tram(tree) => tram::stream_window(tree, &options),
        };
        let queue = Queue::new(payload as usize, window);
        let filled = queue.clone();
        let waker = start(setup, move |live: &mut Live<StreamSending>| {
            let (started, node) = (live.now(), live.node());
            let packets = Box::new(filled.clone());
            let hops = through_relays.then(|| Hops::new(live, tsi, &credits));
            let machine: StreamSending = match carrier {
                Carrier::Pgm(scheme) => {
                    let (data_port, start) = (address.port(), started);
                    let config = SourceConfig { node, data_port, start, payload, ..config };
                    over!(hops.source(scheme.stream_source(config, packets, &options)))
                }
                Carrier::Tram(tree) => {
                    let session = (tsi, node);
                    let source = tram::stream_source(session, started, tree, &options, packets);
                    over!(hops.source(source))
                }
            };
            let session = live.add(machine, SessionOptions { key: Some(tsi), subject: None });
            Ok(Work {
                session,
                status: StreamStatus::default(),
                headers,
                queue: filled,
                status_sender,
                watched,
                trace,
                scheme: carrier.stack().name(),
                payload,
                give_up: options.duration("give_up").unwrap_or(GIVE_UP),
                shut_at: None,
            })
        })?;
        Ok(Self { queue, waker, status })
    }

    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = self.queue.poll_write(cx, bytes);
        self.wake();
        written
    }

    pub(crate) fn poll_push(&self, cx: &mut Context<'_>, message: &[u8]) -> Poll<Result> {
        let pushed = self.queue.poll_push(cx, message);
        self.wake();
        pushed
    }

    pub(crate) fn shut(&self) {
        if self.queue.is_closed() {
            return;
        }
        let queue = self.queue.clone();
        self.waker.run(move |live| {
            if queue.close() {
                live.for_each(Live::close_session);
            }
        });
        self.wake();
    }

    pub(crate) async fn finish(&mut self) -> Result<StreamStatus> {
        self.shut();
        let last = self.status.wait_for(|status| status.ended).await;
        last.map(|status| status.clone()).map_err(|_| Error::Closed)
    }

    fn wake(&self) {
        self.waker.run(|live| live.for_each(|live, id| _ = live.with(id, |_, _| ())));
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        self.shut();
    }
}

struct Work {
    session: SessionId,
    status: StreamStatus,
    status_sender: watch::Sender<StreamStatus>,
    queue: Queue,
    /// Bytes of a packet's headers, which black holes count too.
    headers: u32,
    watched: Watched,
    trace: Option<LiveTrace>,
    scheme: String,
    payload: u32,
    /// Wait of an unsent stream for its first receiver after `shut_at`.
    give_up: Duration,
    shut_at: Option<Time>,
}

impl Work {
    fn report(&mut self, live: &Live<StreamSending>, ended: bool) {
        (self.status.bytes, self.status.packets) = self.queue.sent();
        self.status.observe(live, &self.watched, ended);
        self.status_sender.send_replace(self.status.clone());
    }
}

impl App<StreamSending> for Work {
    fn event(&mut self, live: &mut Live<StreamSending>, _: SessionId, event: StreamEvent) {
        let status = &mut self.status;
        match event {
            StreamEvent::OtherScheme { node, sender, receiver } => {
                let from = live.address(node);
                tracing::warn!(
                    "a receiver ({from:?}) speaks {receiver} and not {sender}: it takes nothing"
                );
                status.mismatched += 1;
                status.scheme_mismatch = Some(catalog::mismatch(sender, receiver));
            }
            StreamEvent::BlackHole { node, hole } => {
                let (from, hole) = (live.address(node), hole.with(self.headers));
                tracing::warn!("a receiver ({from:?}) says: {hole}");
                status.starved += 1;
                status.black_hole = Some(hole);
            }
            StreamEvent::Incomplete { named, unnamed } => {
                for receiver in named {
                    let receiver = IncompleteReceiver::new(live, &receiver);
                    let (label, reason) = (receiver.label(), receiver.reason);
                    tracing::warn!("{label} did not get everything: {reason}");
                    status.incomplete.push(receiver);
                }
                status.unnamed = unnamed;
            }
            StreamEvent::Flow(_) => {}
        }
    }

    fn tick(&mut self, live: &mut Live<StreamSending>) {
        self.report(live, false);
        if self.queue.is_closed() && self.queue.sent().1 == 0 {
            let now = live.now();
            if now.since(*self.shut_at.get_or_insert(now)) >= self.give_up {
                live.close_session(self.session);
            }
        }
    }
}

impl Worker<StreamSending> for Work {
    fn ended(mut self, live: &mut Live<StreamSending>, ended: Result<Ended, NetError>) {
        self.queue.end();
        trace::finish(self.trace.as_ref(), || About {
            name: "stream".to_string(),
            title: "a stream to many receivers".to_string(),
            scheme: self.scheme.clone(),
            packet_bytes: self.payload.into(),
            interrupted: !matches!(ended, Ok(Ended::Idle)),
            ..About::default()
        });
        tracing::debug!(session = self.session.0, ?ended, "a stream has ended");
        self.report(live, true);
    }
}

/// Default wait of a finished stream for its first receiver, in schemes that wait.
const GIVE_UP: Duration = Duration::from_secs(30);
