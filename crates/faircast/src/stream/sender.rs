//! Sender of a stream.

use std::task::{Context, Poll};

use faircast_base::{Duration, Time};
use faircast_net::{App, Ended, Live, NetError, SessionId, SessionOptions, Target, Waker};
use faircast_proto::pgm::SourceConfig;
use faircast_proto::pgm::negotiation::SchemeMismatch;
use faircast_proto::{BlackHole, StreamEvent, catalog, tram};
use tokio::sync::watch;

use super::packets::Queue;
use super::{IncompleteReceiver, StreamStatus};
use crate::Error;
use crate::common::{Common, family, group_to};
use crate::ends::{Carrier, Hops, StreamSending, over};
use crate::envelope::{Watched, Wrapper};
use crate::ids::new_tsi;
use crate::session::{SessionSetup, Worker, start};
use crate::trace::{self, About, LiveTrace};

#[derive(Debug)]
pub(crate) struct StreamSender {
    queue: Queue,
    waker: Waker<StreamSending>,
    status: watch::Receiver<StreamStatus>,
    shut: bool,
}

/// Default interval of SPMs, by which receivers follow a source to a new address.
const SPM_INTERVAL: Duration = Duration::from_secs(1);

impl StreamSender {
    pub(crate) fn start(target: Target, common: Common) -> Result<Self, Error> {
        let (address, group) = (family(&target), group_to(&target));
        let (carrier, options) = super::carrier(&common, &target)?;
        let payload = common.stream_bytes(address, carrier)?;
        let headers = common.headers(address);
        let with_heads = matches!(carrier, Carrier::Tram(_));
        let (sockets, via) = common.source_sockets(&target, with_heads)?;
        let (_, credits) = common.apart()?;
        let (tell, status) = watch::channel(StreamStatus::default());
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
                mismatched: 0,
                scheme_mismatch: None,
                starved: 0,
                black_hole: None,
                headers,
                incomplete: Vec::new(),
                unnamed: 0,
                started,
                queue: filled,
                tell,
                watched,
                trace,
                scheme: carrier.stack().name(),
                payload,
                give_up: options.duration("give_up").unwrap_or(GIVE_UP),
                shut_at: None,
            })
        })?;
        Ok(Self { queue, waker, status, shut: false })
    }

    pub(crate) fn status(&self) -> watch::Receiver<StreamStatus> {
        self.status.clone()
    }

    pub(crate) fn payload(&self) -> usize {
        self.queue.payload()
    }

    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let written = self.queue.poll_write(cx, bytes);
        self.look();
        written
    }

    pub(crate) fn poll_push(
        &self,
        cx: &mut Context<'_>,
        message: &[u8],
    ) -> Poll<Result<(), Error>> {
        let pushed = self.queue.poll_push(cx, message);
        self.look();
        pushed
    }

    pub(crate) fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.queue.poll_drained(cx)
    }

    pub(crate) fn shut(&mut self) {
        if std::mem::replace(&mut self.shut, true) {
            return;
        }
        let queue = self.queue.clone();
        self.waker.run(move |live| {
            if queue.close() {
                let all: Vec<SessionId> = live.sessions().collect();
                all.into_iter().for_each(|id| live.close_session(id));
            }
        });
        self.look();
    }

    pub(crate) async fn finish(&mut self) -> Result<StreamStatus, Error> {
        self.shut();
        let last = self.status.wait_for(|status| status.ended).await;
        last.map(|status| status.clone()).map_err(|_| Error::Closed)
    }

    fn look(&self) {
        self.waker.run(|live| {
            let all: Vec<SessionId> = live.sessions().collect();
            for id in all {
                live.with(id, |_, _| ());
            }
        });
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        self.shut();
    }
}

struct Work {
    session: SessionId,
    mismatched: u64,
    scheme_mismatch: Option<SchemeMismatch>,
    starved: u64,
    black_hole: Option<BlackHole>,
    headers: u32,
    incomplete: Vec<IncompleteReceiver>,
    unnamed: u64,
    started: Time,
    queue: Queue,
    tell: watch::Sender<StreamStatus>,
    watched: Watched,
    trace: Option<LiveTrace>,
    scheme: String,
    payload: u32,
    give_up: Duration,
    shut_at: Option<Time>,
}

impl Work {
    fn report(&self, live: &Live<StreamSending>, ended: bool) {
        let (bytes, packets) = self.queue.sent();
        let incidents = *self.watched.lock();
        self.tell.send_replace(StreamStatus {
            bytes,
            packets,
            lost: 0,
            traffic: *live.counters(),
            refusals: incidents.refusals,
            mismatch: incidents.mismatch,
            mismatched: self.mismatched,
            scheme_mismatch: self.scheme_mismatch.clone(),
            starved: self.starved,
            black_hole: self.black_hole,
            incomplete: self.incomplete.clone(),
            unnamed: self.unnamed,
            ended,
        });
    }
}

impl App<StreamSending> for Work {
    fn event(&mut self, live: &mut Live<StreamSending>, _: SessionId, event: StreamEvent) {
        match event {
            StreamEvent::OtherScheme { node, sender, receiver } => {
                let from = live.address(node);
                tracing::warn!(
                    "a receiver ({from:?}) speaks {receiver} and not {sender}: it takes nothing"
                );
                self.mismatched += 1;
                self.scheme_mismatch = Some(catalog::mismatch(sender, receiver));
            }
            StreamEvent::BlackHole { node, hole } => {
                let (from, hole) = (live.address(node), hole.with(self.headers));
                tracing::warn!("a receiver ({from:?}) says: {hole}");
                self.starved += 1;
                self.black_hole = Some(hole);
            }
            StreamEvent::Incomplete { named, unnamed } => {
                for receiver in named {
                    let receiver = IncompleteReceiver::new(live, &receiver);
                    let (who, reason) = (receiver.label(), receiver.reason);
                    tracing::warn!("{who} did not get everything: {reason}");
                    self.incomplete.push(receiver);
                }
                self.unnamed = unnamed;
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
    fn ended(self, live: &mut Live<StreamSending>, ended: Result<Ended, NetError>) {
        self.queue.end();
        trace::finish(self.trace.as_ref(), || About {
            name: "stream".to_string(),
            title: "a stream to many receivers".to_string(),
            scheme: self.scheme.clone(),
            packet_bytes: self.payload.into(),
            interrupted: !matches!(ended, Ok(Ended::Idle)),
            ..About::default()
        });
        tracing::debug!(session = self.session.0, ?ended, since = ?self.started, "a stream has ended");
        self.report(live, true);
    }
}

/// Default wait of a finished stream for its first receiver, in schemes that wait.
const GIVE_UP: Duration = Duration::from_secs(30);
