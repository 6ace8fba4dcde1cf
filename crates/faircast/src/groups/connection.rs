//! Successive connections of a client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faircast_node::{Batch, ClientAddress, ClientSocket, ClientTls};
use faircast_overlay::protocol::{
    Decoder, EVENT_BYTES_MAX, Frame, ReasonCode, TOKEN_BYTES_MAX, Welcome,
};
use tokio::time::{Instant, timeout};

use super::session::Shared;
use super::{CLOSE_TIMEOUT, ClientOptions, GroupError};

const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const PING_INTERVAL: Duration = Duration::from_secs(10);
const SILENCE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Target {
    address: ClientAddress,
    tls: Option<ClientTls>,
    token: Bytes,
}

impl Target {
    pub(super) fn new(address: &str, options: &ClientOptions) -> Result<Self, GroupError> {
        let ClientOptions { token, server_ca, certificate, .. } = options;
        let address: ClientAddress = address.parse().map_err(GroupError::Usage)?;
        let usage = |text: &str| Err(GroupError::Usage(format!("{address}: {text}")));
        let token = Bytes::from(token.clone().unwrap_or_default());
        let tls = match (&address, server_ca) {
            (ClientAddress::Tls(_), None) => {
                return usage("expected the file of a CA that has signed the daemon's certificate");
            }
            (ClientAddress::Tls(_), Some(_)) if token.len() > TOKEN_BYTES_MAX => {
                return usage(&format!("expected a token of at most {TOKEN_BYTES_MAX} bytes"));
            }
            (ClientAddress::Tls(_), Some(ca)) => {
                let certificate = certificate.as_ref().map(|(file, key)| (&**file, &**key));
                Some(ClientTls::read(ca, certificate).map_err(GroupError::Usage)?)
            }
            (_, None) if token.is_empty() && certificate.is_none() => None,
            _ => return usage("expected tls:HOST:PORT for a token, a CA or a certificate"),
        };
        Ok(Self { address, tls, token })
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Disconnect {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{1}")]
    Refused(ReasonCode, String),
}

impl Disconnect {
    fn is_final(&self) -> bool {
        let codes = [
            ReasonCode::NameUnavailable,
            ReasonCode::VersionMismatch,
            ReasonCode::Malformed,
            ReasonCode::Replaced,
            ReasonCode::NotAuthenticated,
        ];
        matches!(self, Self::Refused(code, _) if codes.contains(code))
    }
}

pub(super) struct Connection {
    socket: ClientSocket,
    decoder: Decoder,
}

pub(super) async fn open(target: &Target, shared: &Shared) -> Result<Connection, Disconnect> {
    let silent = || io::Error::new(io::ErrorKind::TimedOut, "no answer within 5 s");
    loop {
        let (hello, resumes) = shared.session().hello(target.token.clone());
        let attempt = timeout(CONNECT_TIMEOUT, greet(target, &hello));
        match attempt.await.map_err(|_| silent())? {
            Ok((open, welcome)) => {
                shared.begin(&welcome);
                return Ok(open);
            }
            Err(Disconnect::Refused(ReasonCode::SessionOver, _)) if resumes => shared.restart(),
            Err(lost) => return Err(lost),
        }
    }
}

async fn greet(target: &Target, hello: &Frame) -> Result<(Connection, Welcome), Disconnect> {
    let socket = target.address.connect(target.tls.as_ref()).await?;
    let decoder = Decoder::new(EVENT_BYTES_MAX);
    let (mut open, mut batch) = (Connection { socket, decoder }, Batch::default());
    batch.push(hello);
    batch.write(&open.socket).await?;
    match open.frame().await? {
        Frame::Welcome(welcome) => Ok((open, welcome)),
        Frame::Error(code, text) => Err(Disconnect::Refused(code, text)),
        _ => Err(malformed(&"the first frame is no welcome")),
    }
}

/// Serves a session until its end, with a new connection after each lost one.
pub(super) async fn run(target: Target, shared: Arc<Shared>, first: Connection) {
    let (mut current, mut pause) = (Some(first), RETRY_PAUSES.0);
    let mut closes_at = None;
    loop {
        let opened = match current.take() {
            Some(connection) => Ok(connection),
            None => open(&target, &shared).await,
        };
        let lost = match opened {
            Ok(connection) => {
                pause = RETRY_PAUSES.0;
                match connection.run(&shared).await {
                    Ok(()) => return shared.end(None),
                    Err(lost) => lost,
                }
            }
            Err(lost) => lost,
        };
        if lost.is_final() {
            let refusal = match lost {
                Disconnect::Refused(code, text) => Some((code, text)),
                Disconnect::Io(_) => None,
            };
            return shared.end(refusal);
        }
        tracing::debug!(target: "faircast::session", ?lost, "the connection to the daemon is lost");
        shared.disconnected(lost.to_string());
        if shared.session().is_closing() {
            let at = *closes_at.get_or_insert_with(|| Instant::now() + CLOSE_TIMEOUT);
            if Instant::now() + pause > at {
                return shared.end(None);
            }
        }
        let _ = timeout(pause, shared.closing.notified()).await;
        pause = (pause * 2).min(RETRY_PAUSES.1);
    }
}

impl Connection {
    async fn frame(&mut self) -> Result<Frame, Disconnect> {
        loop {
            match self.decoder.next_frame() {
                Ok(None) => {}
                Ok(Some(frame)) => return Ok(frame),
                Err(error) => return Err(malformed(&error)),
            }
            self.socket.readable().await?;
            self.socket.try_read(self.decoder.room())?;
        }
    }

    async fn run(self, shared: &Shared) -> Result<(), Disconnect> {
        let Self { socket, mut decoder } = self;
        tokio::select! {
            lost = read(&socket, &mut decoder, shared) => Err(lost),
            written = write(&socket, shared) => written,
        }
    }
}

fn malformed(error: &dyn std::fmt::Display) -> Disconnect {
    Disconnect::Refused(ReasonCode::Malformed, error.to_string())
}

async fn read(socket: &ClientSocket, decoder: &mut Decoder, shared: &Shared) -> Disconnect {
    loop {
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Err((code, text)) = shared.take(frame) {
                        return Disconnect::Refused(code, text);
                    }
                }
                Err(error) => return malformed(&error),
            }
        }
        decoder.shrink();
        while !shared.has_room() {
            shared.drained.notified().await;
        }
        match timeout(SILENCE_MAX, socket.readable()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return Disconnect::Io(io::ErrorKind::TimedOut.into()),
        }
        if let Err(error) = socket.try_read(decoder.room()) {
            return error.into();
        }
    }
}

async fn write(socket: &ClientSocket, shared: &Shared) -> Result<(), Disconnect> {
    let (mut batch, mut pings, mut closing) = (Batch::default(), 0, None);
    loop {
        let is_closed = !shared.fill(&mut batch);
        if is_closed {
            batch.push(&Frame::Goodbye);
            batch.write(socket).await?;
            return Ok(());
        }
        if !batch.is_empty() {
            batch.write(socket).await?;
            continue;
        }
        if shared.session().is_closing() {
            let at = *closing.get_or_insert_with(|| Instant::now() + CLOSE_TIMEOUT);
            if Instant::now() >= at {
                return Ok(());
            }
            let _ = tokio::time::timeout_at(at, shared.work.notified()).await;
        } else if timeout(PING_INTERVAL, shared.work.notified()).await.is_err() {
            pings += 1;
            batch.push(&Frame::Ping(pings));
        }
    }
}
