//! Publishers and subscribers of the benchmark. Clients of faircast and of NATS share their code,
//! and differ in their frames.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use faircast_overlay::Service;
use faircast_overlay::protocol::{Frame, VERSION};
use socket2::Socket;

/// Group and subject of all messages.
const GROUP: &str = "bench";
/// Bytes of one read, and of messages that a publisher gathers for one write.
const IO_BYTES: usize = 128 << 10;
/// Kinds of frames of docs/overlay-protocol.md.
const MESSAGE: u8 = 16;
const GROUP_EVENT: u8 = 17;
/// Silence after which a subscriber has lost what is missing.
const SILENCE: Duration = Duration::from_secs(2);

/// Frames of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Faircast(Service),
    Nats,
}

/// Address of a server.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Tcp(u16),
    Unix(PathBuf),
}

impl Address {
    pub(super) fn connect(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
            Self::Unix(path) => UnixStream::connect(path).map(Socket::from),
        }
    }
}

/// Connection of a client.
pub(super) struct Client {
    socket: Socket,
    protocol: Protocol,
    request: u64,
    out: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: &Address, protocol: Protocol, name: &str) -> io::Result<Self> {
        let socket = address.connect()?;
        let hello = match protocol {
            Protocol::Faircast(_) => {
                let (name, token) = (name.to_string().into(), Default::default());
                Frame::Hello { version: VERSION, incarnation: 1, next: 0, name, token }.encode()
            }
            Protocol::Nats => b"CONNECT {\"verbose\":false}\r\n".to_vec(),
        };
        (&socket).write_all(&hello)?;
        Ok(Self { socket, protocol, request: 0, out: Vec::new() })
    }

    /// Joins the group of all messages. Returns once the server knows.
    pub(super) fn subscribe(self) -> io::Result<Subscriber> {
        self.subscribe_to(GROUP)
    }

    /// Joins a group. Returns once the server knows.
    pub(super) fn subscribe_to(self, group: &str) -> io::Result<Subscriber> {
        let join = match self.protocol {
            Protocol::Faircast(_) => Frame::Join(1, group.to_string().into(), false).encode(),
            Protocol::Nats => format!("SUB {group} 1\r\nPING\r\n").into_bytes(),
        };
        (&self.socket).write_all(&join)?;
        self.socket.set_read_timeout(Some(SILENCE))?;
        let Self { socket, protocol, .. } = self;
        let mut subscriber = Subscriber { socket, protocol, bytes: Vec::new(), start: 0 };
        while !subscriber.is_joined() {
            subscriber.read()?;
        }
        Ok(subscriber)
    }

    /// Has a thread take what the server says to a publisher, which nobody needs. A server that
    /// takes nothing for 2 s ends the publisher with an error.
    pub(super) fn drain(&self) -> io::Result<()> {
        self.socket.set_write_timeout(Some(SILENCE))?;
        let mut socket = self.socket.try_clone()?;
        let mut bytes = vec![0; IO_BYTES];
        // Ends with the connection.
        std::thread::spawn(move || while socket.read(&mut bytes).is_ok_and(|count| count > 0) {});
        Ok(())
    }

    /// Publishes a message; several leave in one write.
    pub(super) fn publish(&mut self, payload: &[u8]) -> io::Result<()> {
        match self.protocol {
            Protocol::Faircast(service) => {
                self.request += 1;
                // Length, kind, request, service, one group with its length.
                let len = 1 + 8 + 1 + 1 + 1 + GROUP.len() + payload.len();
                self.out.extend_from_slice(&(len as u32).to_be_bytes());
                self.out.push(10);
                self.out.extend_from_slice(&self.request.to_be_bytes());
                self.out.extend_from_slice(&[service as u8, 1, GROUP.len() as u8]);
                self.out.extend_from_slice(GROUP.as_bytes());
                self.out.extend_from_slice(payload);
            }
            Protocol::Nats => {
                self.out.extend_from_slice(b"PUB ");
                self.out.extend_from_slice(GROUP.as_bytes());
                write!(self.out, " {}\r\n", payload.len())?;
                self.out.extend_from_slice(payload);
                self.out.extend_from_slice(b"\r\n");
            }
        }
        if self.out.len() >= IO_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Closes the connection, also for the thread that drains it.
    pub(super) fn close(&self) {
        // The server may have closed it.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Counts of a subscriber.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    pub(super) messages: u64,
    /// Moment of the last message.
    pub(super) at: Option<Instant>,
    /// Nanoseconds between publishing and arrival of each message.
    pub(super) latencies: Vec<u64>,
}

/// Client that has joined the group.
pub(super) struct Subscriber {
    socket: Socket,
    protocol: Protocol,
    bytes: Vec<u8>,
    /// Start of what is not read yet.
    start: usize,
}

impl Subscriber {
    /// The connection alone, without buffers.
    pub(super) fn into_socket(self) -> Socket {
        self.socket
    }

    fn read(&mut self) -> io::Result<()> {
        self.bytes.drain(..self.start);
        self.start = 0;
        let end = self.bytes.len();
        self.bytes.resize(end + IO_BYTES, 0);
        let read = self.socket.read(&mut self.bytes[end..]);
        self.bytes.truncate(end + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// True once the answer to the join is there.
    fn is_joined(&mut self) -> bool {
        match self.protocol {
            Protocol::Faircast(_) => {
                while let Some((kind, _)) = self.frame() {
                    if kind == GROUP_EVENT {
                        return true;
                    }
                }
                false
            }
            Protocol::Nats => {
                let is_there = self.bytes.windows(6).any(|it| it == b"PONG\r\n");
                self.start = if is_there { self.bytes.len() } else { 0 };
                is_there
            }
        }
    }

    /// Next frame of a daemon: its kind, and where it lies.
    fn frame(&mut self) -> Option<(u8, std::ops::Range<usize>)> {
        let len = self.bytes[self.start..].first_chunk()?;
        let len = u32::from_be_bytes(*len) as usize;
        let (from, to) = (self.start + 4, self.start + 4 + len);
        let kind = *self.bytes.get(from).filter(|_| to <= self.bytes.len())?;
        self.start = to;
        Some((kind, from..to))
    }

    /// Next message: where its last bytes lie.
    fn message(&mut self) -> Option<std::ops::Range<usize>> {
        match self.protocol {
            Protocol::Faircast(_) => loop {
                let (kind, range) = self.frame()?;
                if kind == MESSAGE {
                    return Some(range);
                }
            },
            Protocol::Nats => loop {
                let rest = &self.bytes[self.start..];
                let end = rest.iter().position(|it| *it == b'\n')?;
                let head = &rest[..end.saturating_sub(1)];
                if head.starts_with(b"MSG ") {
                    let len = head.rsplit(|it| *it == b' ').next()?;
                    let len: usize = std::str::from_utf8(len).ok()?.parse().ok()?;
                    let from = self.start + end + 1;
                    if from + len + 2 > self.bytes.len() {
                        return None;
                    }
                    self.start = from + len + 2;
                    return Some(from..from + len);
                }
                self.start += end + 1;
            },
        }
    }

    /// Reads until `is_over` says so of the number of messages, or nothing comes any more.
    pub(super) fn count(
        mut self,
        since: Option<Instant>,
        mut is_over: impl FnMut(u64) -> bool,
    ) -> Received {
        let mut received = Received::default();
        loop {
            let before = received.messages;
            while let Some(range) = self.message() {
                received.messages += 1;
                if let Some(since) = since
                    && let Some(stamp) = self.bytes[range].last_chunk()
                {
                    let now = since.elapsed().as_nanos() as u64;
                    received.latencies.push(now.saturating_sub(u64::from_be_bytes(*stamp)));
                }
            }
            if received.messages > before {
                received.at = Some(Instant::now());
            }
            if is_over(received.messages) || self.read().is_err() {
                return received;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use faircast_overlay::{ClientEvent, DaemonId, Mate};

    use super::*;

    fn pair(protocol: Protocol) -> (Client, Subscriber) {
        let (one, other) = UnixStream::pair().unwrap();
        let client = Client { socket: one.into(), protocol, request: 0, out: Vec::new() };
        (client, Subscriber { socket: other.into(), protocol, bytes: Vec::new(), start: 0 })
    }

    #[test]
    fn a_published_message_is_a_frame_that_daemons_read() {
        let (mut client, mut subscriber) = pair(Protocol::Faircast(Service::Agreed));
        client.publish(b"abc").unwrap();
        client.flush().unwrap();
        subscriber.read().unwrap();
        let (_, range) = subscriber.frame().unwrap();
        let frame = Frame::decode(&subscriber.bytes[range].to_vec().into());
        let (service, groups) = (Service::Agreed, [GROUP].into_iter().collect());
        let expected = Frame::Send {
            request: 1,
            service,
            wants_receipt: false,
            view: None,
            benefit: None,
            groups,
            payload: "abc".into(),
        };
        assert_eq!(frame, Ok(expected));
    }

    #[test]
    fn messages_are_counted_though_other_frames_stand_between_and_reads_end_anywhere() {
        let message = |payload: &'static [u8]| ClientEvent::Message {
            from: Mate { daemon: DaemonId(1), name: "a".into(), incarnation: 1 },
            service: Service::Fifo,
            groups: [GROUP].into_iter().collect(),
            parts: [payload.into()].into(),
            view: Default::default(),
            sequence: 1,
        };
        let stamp = &[0, 0, 0, 0, 0, 0, 0, 1];
        let own = [
            Frame::Event(1, message(stamp).into()).encode(),
            Frame::Waiting(None).encode(),
            Frame::Event(2, message(stamp).into()).encode(),
        ];
        let mut nats = Vec::new();
        for text in [&b"INFO {}\r\nMSG bench 1 8\r\n"[..], stamp, b"\r\nPONG\r\nMSG bench 1 8\r\n"]
        {
            nats.extend_from_slice(text);
        }
        nats.extend_from_slice(stamp);
        nats.extend_from_slice(b"\r\n");
        for (protocol, bytes) in
            [(Protocol::Faircast(Service::Fifo), own.concat()), (Protocol::Nats, nats)]
        {
            let (client, subscriber) = pair(protocol);
            let since = Instant::now();
            let counter = std::thread::spawn(move || subscriber.count(Some(since), |it| it == 2));
            for byte in bytes {
                (&client.socket).write_all(&[byte]).unwrap();
            }
            let received = counter.join().unwrap();
            assert_eq!((received.messages, received.latencies.len()), (2, 2), "{protocol:?}");
            // The stamp is of the first nanosecond.
            let most = since.elapsed().as_nanos() as u64;
            assert!(received.latencies.iter().all(|it| (1..most).contains(it)));
        }
    }
}
