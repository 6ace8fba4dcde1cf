//! Sockets of clients: Unix, TCP, and TCP with TLS.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::tls::{ClientTls, ServerTls, TlsSocket, server_name};

/// Address for clients: `unix:/run/faircast.sock`, `tcp:127.0.0.1:4803`, `tls:host.example:4804`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientAddress {
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// Address of a TCP socket.
    Tcp(SocketAddr),
    /// Host and port of a TCP socket with TLS. A daemon listens at an IP address.
    Tls(String),
}

impl FromStr for ClientAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            "expected unix:/PATH, tls:HOST:PORT or tcp:ADDR:PORT, such as tcp:127.0.0.1:4803";
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => {
                let address = address.parse().map_err(|_| format!("\"{text}\": {expected}"))?;
                Ok(Self::Tcp(address))
            }
            Some(("tls", place)) if server_name(place).is_some() => Ok(Self::Tls(place.into())),
            _ => Err(format!("\"{text}\": {expected}")),
        }
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Tls(place) => write!(f, "tls:{place}"),
        }
    }
}

impl ClientAddress {
    /// Opens a connection to a daemon; fails if none accepts connections. An address with TLS needs
    /// the CA that issued the daemon's certificate.
    pub async fn connect(&self, tls: Option<&ClientTls>) -> io::Result<ClientSocket> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).await.map(ClientSocket::Unix),
            Self::Tcp(address) => tcp(TcpStream::connect(address).await?),
            Self::Tls(place) => {
                let tls = tls.ok_or_else(|| needs("the CA of the daemon's certificate"))?;
                Ok(ClientSocket::Tls(TlsSocket::connect(place, tls).await?.into()))
            }
        }
    }
}

fn needs(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("expected {what}"))
}

fn tcp(stream: TcpStream) -> io::Result<ClientSocket> {
    stream.set_nodelay(true)?;
    Ok(ClientSocket::Tcp(stream))
}

#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
    Tls(TcpListener, ServerTls),
}

impl Listener {
    pub(super) async fn bind(address: &ClientAddress, tls: Option<&ServerTls>) -> io::Result<Self> {
        match address {
            ClientAddress::Tcp(address) if !address.ip().is_loopback() => {
                Err(needs("tls:ADDR:PORT, a loopback address or unix:/PATH: TCP is not encrypted"))
            }
            ClientAddress::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            ClientAddress::Tls(place) => {
                let tls = tls.ok_or_else(|| needs("a certificate"))?.clone();
                let address: SocketAddr = place.parse().map_err(|_| needs("an IP address"))?;
                Ok(Self::Tls(TcpListener::bind(address).await?, tls))
            }
            ClientAddress::Unix(path) => {
                let listener = match UnixListener::bind(path) {
                    Err(error)
                        if error.kind() == io::ErrorKind::AddrInUse && is_left(path).await =>
                    {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)?
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        let folder = path.parent().unwrap_or(path).display();
                        let text = format!("no folder {folder}; make it, or change `clients`");
                        return Err(io::Error::new(error.kind(), text));
                    }
                    bound => bound?,
                };
                Ok(Self::Unix(listener, path.clone()))
            }
        }
    }

    pub(super) fn address(&self) -> io::Result<ClientAddress> {
        match self {
            Self::Unix(_, path) => Ok(ClientAddress::Unix(path.clone())),
            Self::Tcp(listener) => listener.local_addr().map(ClientAddress::Tcp),
            Self::Tls(listener, _) => Ok(ClientAddress::Tls(listener.local_addr()?.to_string())),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<ClientSocket> {
        match self {
            Self::Unix(listener, _) => Ok(ClientSocket::Unix(listener.accept().await?.0)),
            Self::Tcp(listener) => tcp(listener.accept().await?.0),
            Self::Tls(listener, tls) => {
                Ok(ClientSocket::Tls(TlsSocket::accept(listener.accept().await?.0, tls)?.into()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn is_left(path: &Path) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    UnixStream::connect(path).await.err().is_some_and(refused)
}

/// Connection between a client and a daemon. Its methods fail on a broken connection.
#[derive(Debug)]
#[expect(missing_docs, reason = "variants are what their names and types say")]
pub enum ClientSocket {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsSocket>),
}

macro_rules! each {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            ClientSocket::Unix($stream) => $call,
            ClientSocket::Tcp($stream) => $call,
            ClientSocket::Tls($stream) => $call,
        }
    };
}

impl ClientSocket {
    /// Waits for readable bytes or the end of the stream.
    pub async fn readable(&self) -> io::Result<()> {
        each!(self, stream => stream.readable().await)
    }

    /// Reads into a buffer. Returns the count of bytes; `None` if there are none. Fails at the end.
    pub fn try_read(&self, buffer: &mut BytesMut) -> io::Result<Option<usize>> {
        match each!(self, stream => stream.try_read_buf(buffer)) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until the socket accepts bytes.
    pub async fn writable(&self) -> io::Result<()> {
        each!(self, stream => stream.writable().await)
    }

    /// Writes what the socket accepts. Returns the number of bytes; `None` if the socket is full.
    pub fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match each!(self, stream => stream.try_write_vectored(slices)) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes what [`try_write`](Self::try_write) has buffered. Returns true if nothing is left.
    pub fn try_flush(&self) -> io::Result<bool> {
        if let Self::Tls(stream) = self { stream.try_flush() } else { Ok(true) }
    }

    /// Ends the stream to the peer.
    pub async fn shut_down(&mut self) {
        use tokio::io::AsyncWriteExt as _;
        let _ = each!(self, stream => stream.shutdown().await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "unix:/run/node.sock",
            "tcp:127.0.0.1:4803",
            "tcp:[::1]:4803",
            "tls:10.0.0.1:4804",
            "tls:[::1]:4804",
            "tls:node.example.org:4804",
        ] {
            assert_eq!(text.parse::<ClientAddress>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "tcp:localhost:1",
            "tcp:127.0.0.1",
            "tls:",
            "tls:host",
            "tls::1",
            "tls:host:",
            "tls:host:65536",
            "tls:ho st:1",
            "tls:::1:1:x",
            "tls:[::1:1",
            "ssl:host:1",
        ] {
            let error = text.parse::<ClientAddress>().unwrap_err();
            assert!(error.starts_with(&format!("\"{text}\": expected unix:/PATH")), "{error}");
        }
    }
}
