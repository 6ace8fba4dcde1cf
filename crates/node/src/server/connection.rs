//! Connection of a client: reads requests, writes events.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faircast_overlay::ClientId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::outbox::{HEAD_BYTES, Outbox};
use super::{ClientSocket, ToHub, ToTask};
use crate::batch::Batch;
use faircast_overlay::protocol::{
    Decoder, Frame, HANDSHAKE_TIMEOUT, HELLO_BYTES_MAX, IDLE_TIMEOUT, REQUEST_BYTES_MAX,
    ReasonCode, VERSION,
};

const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// Silence of a client after which the daemon sends a ping: 10 s.
const PING_INTERVAL: Duration = Duration::from_secs(IDLE_TIMEOUT.as_secs() / (PINGS_MAX + 1));
const PINGS_MAX: u64 = 2;
/// Longest time to write the last frame, and then to wait for the end of the client's stream: 1 s.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const BATCHES_MAX: usize = 2;
/// Maximum payload of a batch in bytes; the last request may exceed it.
const BATCH_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Hello {
    pub(super) name: Bytes,
    pub(super) incarnation: u64,
    pub(super) next: u64,
    token: Bytes,
}

/// Batch of numbered requests. The task reads again once its permit is dropped.
#[derive(Debug)]
pub(super) struct Requests {
    /// Number and cost in bytes of each request.
    pub(super) queue: VecDeque<(u64, usize, Frame)>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum End {
    Lost,
    Gone,
    Malformed(String),
    Idle,
    Closed(ReasonCode, String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Lost
    }
}

/// `displaced` drops a client that is not admitted yet, to make room for others.
pub(super) async fn serve(
    mut socket: ClientSocket,
    (hub, rooms): ToTask,
    mut displaced: oneshot::Receiver<()>,
) {
    let (mut decoder, mut batch) = (Decoder::new(HELLO_BYTES_MAX), Batch::default());
    let greeted = timeout(HANDSHAKE_TIMEOUT, hello(&socket, &mut decoder));
    let greeted = tokio::select! {
        greeted = greeted => greeted,
        _ = &mut displaced => return,
    };
    let hello = match greeted {
        Ok(Ok(hello)) => hello,
        Ok(Err((code, text))) => return finish(&mut socket, batch, code, &text).await,
        Err(_) => return finish(&mut socket, batch, ReasonCode::HandshakeTimeout, "").await,
    };
    if let ClientSocket::Tls(tls) = &socket
        && !tls.admits(&hello.name, &hello.token)
    {
        let (name, peer) = (String::from_utf8_lossy(&hello.name), tls.peer());
        tracing::warn!(target: "faircast::session", %peer, %name, "a client is not admitted: {}", ReasonCode::NotAuthenticated);
        tokio::time::sleep(REFUSAL_PAUSE).await;
        return finish(&mut socket, batch, ReasonCode::NotAuthenticated, "").await;
    }
    drop(displaced);
    decoder.set_max(REQUEST_BYTES_MAX);
    let (outbox, (reply, answer)) = (Arc::new(Outbox::default()), oneshot::channel());
    if hub.send(ToHub::Open { hello, outbox: outbox.clone(), reply }).await.is_err() {
        return finish(&mut socket, batch, ReasonCode::Shutdown, "").await;
    }
    let id = match answer.await {
        Ok(Ok(id)) => id,
        Ok(Err((code, text))) => return finish(&mut socket, batch, code, &text).await,
        Err(_) => return finish(&mut socket, batch, ReasonCode::Shutdown, "").await,
    };
    let link = Link { socket: &socket, outbox: &outbox, hub: &hub, rooms: &rooms, id };
    // A stopping daemon sends its reason before it closes its channels.
    let end = tokio::select! {
        biased;
        (code, text) = outbox.closed() => End::Closed(code, text),
        end = link.read(&mut decoder) => end,
        Err(error) = link.write(&mut batch) => End::from(error),
        () = hub.closed() => End::Lost,
    };
    let _ = match end {
        End::Lost | End::Idle | End::Closed(..) => hub.send(ToHub::Lost(id)).await,
        End::Gone | End::Malformed(_) => hub.send(ToHub::Gone(id)).await,
    };
    match end {
        End::Lost | End::Gone => {}
        End::Idle => finish(&mut socket, batch, ReasonCode::IdleTimeout, "").await,
        End::Malformed(text) => finish(&mut socket, batch, ReasonCode::Malformed, &text).await,
        End::Closed(code, text) => finish(&mut socket, batch, code, &text).await,
    }
}

async fn hello(
    socket: &ClientSocket,
    decoder: &mut Decoder,
) -> Result<Hello, (ReasonCode, String)> {
    let malformed = |text: String| (ReasonCode::Malformed, text);
    if let ClientSocket::Tls(tls) = socket {
        tls.handshake().await.map_err(|error| {
            tracing::info!(target: "faircast::session", peer = %tls.peer(), %error, "no handshake");
            malformed(error.to_string())
        })?;
    }
    loop {
        match decoder.next_frame() {
            Ok(None) => {}
            Ok(Some(Frame::Hello { version, .. })) if version != VERSION => {
                return Err((ReasonCode::VersionMismatch, String::new()));
            }
            Ok(Some(Frame::Hello { incarnation, next, name, token, .. })) => {
                // A slice would keep the buffer of the frame in memory.
                let name = Bytes::copy_from_slice(&name);
                return Ok(Hello { name, incarnation, next, token });
            }
            Ok(Some(_)) => return Err(malformed("the first frame is no hello".to_string())),
            Err(error) => return Err(malformed(error.to_string())),
        }
        let lost = |_| malformed(String::new());
        socket.readable().await.map_err(lost)?;
        socket.try_read(decoder.room()).map_err(lost)?;
    }
}

/// Reads the client's remaining bytes: with unread bytes a reset would discard the last frame.
async fn finish(socket: &mut ClientSocket, mut batch: Batch, code: ReasonCode, text: &str) {
    let text = if text.is_empty() { code.to_string() } else { format!("{code}: {text}") };
    batch.push(&Frame::Error(code, text));
    if !matches!(timeout(CLOSE_TIMEOUT, batch.write(socket)).await, Ok(Ok(()))) {
        return;
    }
    socket.shut_down().await;
    let mut decoder = Decoder::new(1);
    let rest = async {
        while socket.readable().await.is_ok() && socket.try_read(decoder.room()).is_ok() {
            decoder.room().clear();
        }
    };
    let _ = timeout(CLOSE_TIMEOUT, rest).await;
}

#[derive(Clone, Copy)]
struct Link<'a> {
    socket: &'a ClientSocket,
    outbox: &'a Outbox,
    hub: &'a mpsc::Sender<ToHub>,
    rooms: &'a mpsc::UnboundedSender<ClientId>,
    id: ClientId,
}

impl Link<'_> {
    async fn read(self, decoder: &mut Decoder) -> End {
        let room = Arc::new(Semaphore::new(BATCHES_MAX));
        let mut pings = 0;
        loop {
            let (queue, is_whole, end) = self.decode(decoder);
            if !queue.is_empty() {
                let Ok(permit) = room.clone().acquire_owned().await else { return End::Lost };
                let requests = Requests { queue, _permit: permit };
                if self.hub.send(ToHub::Requests(self.id, requests)).await.is_err() {
                    return End::Lost;
                }
            }
            if let Some(end) = end {
                return end;
            }
            if !is_whole {
                continue;
            }
            decoder.shrink();
            match timeout(PING_INTERVAL, self.socket.readable()).await {
                Ok(Ok(())) => pings = 0,
                Ok(Err(_)) => return End::Lost,
                Err(_) if pings == PINGS_MAX => return End::Idle,
                Err(_) => {
                    pings += 1;
                    self.outbox.update(|it| it.ping = Some(pings));
                    continue;
                }
            }
            if self.socket.try_read(decoder.room()).is_err() {
                return End::Lost;
            }
        }
    }

    /// Returns a batch, true if all frames are decoded, and the end that a frame causes, if any.
    fn decode(self, decoder: &mut Decoder) -> (VecDeque<(u64, usize, Frame)>, bool, Option<End>) {
        let (mut queue, mut bytes) = (VecDeque::new(), 0);
        while bytes < BATCH_BYTES {
            let frame = match decoder.next_frame() {
                Ok(None) => return (queue, true, None),
                Ok(Some(frame)) => frame,
                Err(error) => return (queue, true, Some(End::Malformed(error.to_string()))),
            };
            let (number, length) = match &frame {
                Frame::Join { request, .. } | Frame::Leave { request, .. } => (*request, 0),
                Frame::Send { request, payload, .. } => (*request, payload.len()),
                Frame::Ping(number) => {
                    self.outbox.update(|it| it.pong = Some(*number));
                    continue;
                }
                Frame::Pong(_) => continue,
                Frame::Goodbye => return (queue, true, Some(End::Gone)),
                Frame::Error(..) => return (queue, true, Some(End::Lost)),
                _ => {
                    let text = "a frame that daemons send".to_string();
                    return (queue, true, Some(End::Malformed(text)));
                }
            };
            bytes += length;
            queue.push_back((number, HEAD_BYTES + length, frame));
        }
        (queue, false, None)
    }

    async fn write(self, batch: &mut Batch) -> io::Result<()> {
        loop {
            if self.outbox.take(batch) && self.rooms.send(self.id).is_err() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if batch.is_empty() {
                self.outbox.wake.notified().await;
            } else {
                batch.write(self.socket).await?;
            }
        }
    }
}
