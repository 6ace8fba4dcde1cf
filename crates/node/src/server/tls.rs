//! TLS for clients: certificates, tokens, and non-blocking TCP connections with TLS.

use std::fmt::Display;
use std::io::{self, IoSlice, Write as _};
use std::path::Path;
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use faircast_overlay::CLIENT_BYTES_MAX;
use faircast_overlay::protocol::TOKEN_BYTES_MAX;
use faircast_seal::{Exposure, open_private};
use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

const READ_BYTES: usize = 64 * 1024;
const TOKEN_BYTES_MIN: usize = 16;

/// Certificate of a daemon, and the clients that it admits at addresses with TLS.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    tokens: Arc<[Token]>,
}

impl ServerTls {
    /// Reads the daemon's certificate and key, the CA of clients, and the tokens of other clients.
    /// The error is the key of the configuration whose file is wrong, and the reason.
    pub fn read(
        (certificate, key): (&Path, &Path),
        client_ca: Option<&Path>,
        tokens: Option<&Path>,
    ) -> Result<Self, (&'static str, String)> {
        let of = |key| move |text| (key, text);
        if client_ca.is_none() && tokens.is_none() {
            let text = "no client could connect; expected client_ca or tokens, too";
            return Err(("certificate", text.to_string()));
        }
        let chain = certificates(certificate).map_err(of("certificate"))?;
        let secret = private_key(key).map_err(of("certificate_key"))?;
        let tokens = tokens.map_or(Ok(Vec::new()), read_tokens).map_err(of("tokens"))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3");
        let config = match client_ca {
            None => config.with_no_client_auth(),
            Some(file) => {
                let roots = Arc::new(roots(file).map_err(of("client_ca"))?);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                if !tokens.is_empty() {
                    verifier = verifier.allow_unauthenticated();
                }
                let verifier = verifier.build().expect("there are certificates");
                config.with_client_cert_verifier(verifier)
            }
        };
        let config = config.with_single_cert(chain, secret);
        let mut config = config.map_err(|error| ("certificate_key", wrong(key, &error)))?;
        // A ticket would admit a client after its certificate has expired.
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), tokens: tokens.into() })
    }
}

/// CA with which a client verifies daemons, and the certificate of the client.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Reads the CA of daemons, and the certificate of the client with its key.
    pub fn read(ca: &Path, certificate: Option<(&Path, &Path)>) -> Result<Self, String> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(roots(ca)?);
        let mut config = match certificate {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => config
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(|error| wrong(key, &error))?,
        };
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn wrong(file: &Path, problem: &dyn Display) -> String {
    format!("{}: {problem}", file.display())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let read: Result<Vec<_>, _> = read.map_err(|error| wrong(file, &error));
    let none = || wrong(file, &"no certificate; expected PEM");
    read.and_then(|found| if found.is_empty() { Err(none()) } else { Ok(found) })
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| wrong(file, &error))?;
    }
    Ok(roots)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let opened = open_private(file, Exposure::Refuse).map_err(|error| error.to_string())?;
    PrivateKeyDer::from_pem_reader(opened).map_err(|error| match error {
        PemError::NoItemsFound => wrong(file, &"no private key; expected PEM"),
        error => wrong(file, &error),
    })
}

#[derive(Debug)]
struct Token {
    /// Name of the client; `*` for any client.
    name: String,
    hash: blake3::Hash,
}

fn read_tokens(file: &Path) -> Result<Vec<Token>, String> {
    let opened = open_private(file, Exposure::Refuse).map_err(|error| error.to_string())?;
    let text = io::read_to_string(opened).map_err(|error| wrong(file, &error))?;
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (name, token) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (token, lengths) = (token.trim_start(), TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX);
        let is_word = !token.contains(char::is_whitespace);
        if name.len() > CLIENT_BYTES_MAX || !lengths.contains(&token.len()) || !is_word {
            return Err(format!(
                "{}:{line}: name of {} bytes, token of {}; expected NAME TOKEN or * TOKEN, with at \
                 most {CLIENT_BYTES_MAX} and with {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes",
                file.display(),
                name.len(),
                token.len()
            ));
        }
        tokens.push(Token { name: name.to_string(), hash: blake3::hash(token.as_bytes()) });
    }
    let none = || wrong(file, &"no token; expected lines NAME TOKEN or * TOKEN");
    if tokens.is_empty() { Err(none()) } else { Ok(tokens) }
}

/// TCP connection with TLS. Its methods behave like those of `TcpStream` with the same names.
#[derive(Debug)]
pub struct TlsSocket {
    stream: TcpStream,
    tls: Mutex<Connection>,
    tokens: Arc<[Token]>,
}

impl TlsSocket {
    /// Connects to the daemon at `HOST:PORT`, and verifies that its certificate has the host.
    pub(super) async fn connect(place: &str, tls: &ClientTls) -> io::Result<Self> {
        let name = server_name(place).ok_or(io::ErrorKind::InvalidInput)?;
        let tls = ClientConnection::new(tls.0.clone(), name).map_err(io::Error::other)?;
        let stream = TcpStream::connect(place).await?;
        stream.set_nodelay(true)?;
        let socket = Self { stream, tls: Mutex::new(tls.into()), tokens: Arc::new([]) };
        socket.handshake().await?;
        Ok(socket)
    }

    pub(super) fn accept(stream: TcpStream, tls: &ServerTls) -> io::Result<Self> {
        // The handshake detects a stream that has ended.
        let _ = stream.set_nodelay(true);
        let connection = ServerConnection::new(tls.config.clone()).map_err(io::Error::other)?;
        Ok(Self { stream, tls: Mutex::new(connection.into()), tokens: tls.tokens.clone() })
    }

    /// True for a certificate, or the token of the name. Hashes are compared in constant time.
    pub(super) fn admits(&self, name: &[u8], token: &[u8]) -> bool {
        let hash = blake3::hash(token);
        let is_named = |token: &Token| token.name == "*" || token.name.as_bytes() == name;
        self.tokens.iter().fold(false, |found, it| found | ((it.hash == hash) & is_named(it)))
            || self.tls.lock().peer_certificates().is_some()
    }

    pub(super) fn peer(&self) -> String {
        self.stream.peer_addr().map_or_else(|error| error.to_string(), |it| it.to_string())
    }

    pub(super) async fn handshake(&self) -> io::Result<()> {
        loop {
            while !self.try_flush()? {
                self.stream.writable().await?;
            }
            if !self.tls.lock().is_handshaking() {
                return Ok(());
            }
            self.stream.readable().await?;
            match self.receive(&mut self.tls.lock()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    fn receive(&self, tls: &mut Connection) -> io::Result<usize> {
        let read = tls.read_tls(&mut Raw(&self.stream));
        // rustls reports an error of earlier bytes again.
        if let Err(error) = tls.process_new_packets() {
            let _ = self.send(tls);
            let text = match error {
                rustls::Error::InvalidMessage(_) if tls.is_handshaking() => {
                    format!("{error}; the other side does not speak TLS, or not at this port")
                }
                error => error.to_string(),
            };
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        read
    }

    fn send(&self, tls: &mut Connection) -> io::Result<bool> {
        while tls.wants_write() {
            match tls.write_tls(&mut Raw(&self.stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                written => _ = written?,
            }
        }
        Ok(true)
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        // Decrypted bytes remain only after a successful read; the stream is then still readable.
        self.stream.readable().await
    }

    pub(super) fn try_read_buf(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let (mut tls, start) = (self.tls.lock(), buffer.len());
        let ended = loop {
            match io::copy(&mut tls.reader(), &mut (&mut *buffer).writer()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                ended => break ended.map(|_| 0),
            }
            if buffer.len() - start >= READ_BYTES {
                break Ok(0);
            }
            if let Err(error) = self.receive(&mut tls) {
                break Err(error);
            }
        };
        if buffer.len() > start { Ok(buffer.len() - start) } else { ended }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    pub(super) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut tls = self.tls.lock();
        if !self.send(&mut tls)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = tls.writer().write_vectored(slices)?;
        self.send(&mut tls)?;
        Ok(count)
    }

    pub(super) fn try_flush(&self) -> io::Result<bool> {
        self.send(&mut self.tls.lock())
    }

    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.tls.get_mut().send_close_notify();
        self.try_flush()?;
        self.stream.shutdown().await
    }
}

/// Returns the name that the certificate of the daemon at `HOST:PORT` must have.
pub(super) fn server_name(place: &str) -> Option<ServerName<'static>> {
    let (host, port) = place.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    ServerName::try_from(address.unwrap_or(host).to_string()).ok()
}

struct Raw<'a>(&'a TcpStream);

impl io::Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl io::Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
