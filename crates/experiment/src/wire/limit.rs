//! The bare limit: what this machine moves by multicast with nothing but a window.
//!
//! One sender, which keeps at most the slowest receiver's socket buffer outstanding; datagrams in
//! batches by UDP segmentation offload, read in batches by receive offload into memory that nobody
//! looks at; cumulative acknowledgements. No file, no repair, no control of congestion: what
//! carries files can come near it and not above it. With files the sender reads what it sends, and
//! receivers write what they read: what files alone cost.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Error;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    pub(super) here: Ipv4Addr,
    pub(super) sender: Ipv4Addr,
    pub(super) group: Ipv4Addr,
    /// Data goes to this port and acknowledgements to the next.
    pub(super) port: u16,
    pub(super) bytes: u64,
    pub(super) receivers: u32,
    /// Whether buffers are as large as those of `faircast send`, which takes privilege; else they
    /// are those that every program has.
    pub(super) forced: bool,
    /// What is sent, and where it goes; nothing in particular and nowhere where there is none.
    pub(super) file: Option<PathBuf>,
}

/// Bytes of a datagram: an Ethernet packet less the headers of IP and UDP, and of PGM or what else
/// stands there.
pub(super) const PAYLOAD: usize = 1456;

/// Datagrams in a batch: as many as go into the 64 KB that segmentation offload takes.
const BATCH: usize = 44;

/// Wanted of the kernel where it is forced: what `faircast` asks for.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 4 << 20;

/// Acknowledgements in a window, so that the sender need not stop.
const ACKS_PER_WINDOW: u64 = 8;

/// After so much silence an acknowledgement is repeated.
const REPEAT: Duration = Duration::from_millis(50);

/// After so much silence the measurement is given up.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Bytes of an acknowledgement: datagrams received, then bytes of the window.
const ACK_LEN: usize = 16;

/// Sends, until every receiver has acknowledged everything.
pub(super) fn send(end: &End) -> Result<(), Error> {
    let socket = open(end.here, end.port + 1, end.forced)?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket)).map_err(failed)?;
    let total = datagrams(end.bytes);
    let mut receivers = Receivers { known: BTreeMap::new(), wanted: end.receivers as usize };
    let to = SocketAddr::from((end.group, end.port));
    let mut buffer = vec![0x5a; BATCH * PAYLOAD];
    let mut file = end.file.as_ref().map(File::open).transpose().map_err(failed)?;
    let mut sent = 0;
    loop {
        let batch = (total - sent).min(BATCH as u64);
        if batch == 0 && receivers.acknowledged() == Some(total) {
            return Ok(());
        }
        if batch == 0 || receivers.room(sent) < batch {
            receivers.hear(&socket)?;
            continue;
        }
        let contents = &mut buffer[..batch as usize * PAYLOAD];
        if let Some(file) = &mut file {
            // Where it has ended what is sent is what was there.
            let _ = file.read(contents).map_err(failed)?;
        }
        for (number, datagram) in (sent..).zip(contents.chunks_exact_mut(PAYLOAD)) {
            datagram[..8].copy_from_slice(&number.to_be_bytes());
        }
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents,
            segment_size: Some(PAYLOAD),
            src_ip: None,
        };
        match state.try_send(UdpSockRef::from(&socket), &transmit) {
            Ok(()) => sent += batch,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&socket, PollFlags::POLLOUT, SILENCE_MAX)?;
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Receives until everything has come. A gap is a failure: nothing is repaired.
pub(super) fn receive(end: &End) -> Result<(), Error> {
    let socket = open(Ipv4Addr::UNSPECIFIED, end.port, end.forced)?;
    socket.join_multicast_v4(&end.group, &end.here).map_err(failed)?;
    receive_on(&socket, end)
}

fn receive_on(socket: &UdpSocket, end: &End) -> Result<(), Error> {
    let state = UdpSocketState::new(UdpSockRef::from(socket)).map_err(failed)?;
    // The kernel counts each packet with its overhead, so it gives twice what it was asked for.
    let window = state.recv_buffer_size(UdpSockRef::from(socket)).map_err(failed)? as u64 / 2;
    let every = (window / PAYLOAD as u64 / ACKS_PER_WINDOW).max(1);
    let sender = SocketAddr::from((end.sender, end.port + 1));
    let total = datagrams(end.bytes);
    let mut file = end.file.as_ref().map(File::create).transpose().map_err(failed)?;
    let mut buffers = vec![vec![0; 1 << 16]; BATCH_SIZE];
    let mut metas = [RecvMeta::default(); BATCH_SIZE];
    let (mut next, mut acknowledged) = (0, 0);
    let mut last = Instant::now();
    while next < total {
        if !wait(socket, PollFlags::POLLIN, REPEAT)? {
            if last.elapsed() > SILENCE_MAX {
                return Err(Error::Work(format!("{next} of {total} datagrams came")));
            }
            acknowledge(socket, sender, next, window)?;
            continue;
        }
        let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        let count = match state.recv(UdpSockRef::from(socket), &mut slices, &mut metas) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(failed(error)),
        };
        for (buffer, meta) in buffers.iter().zip(&metas[..count]) {
            for datagram in buffer[..meta.len].chunks(meta.stride) {
                let number = datagram.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                if number != Some(next) {
                    return Err(Error::Work(format!("{number:?} came where {next} was next")));
                }
                next += 1;
            }
            if let Some(file) = &mut file {
                file.write_all(&buffer[..meta.len]).map_err(failed)?;
            }
        }
        last = Instant::now();
        if next - acknowledged >= every || next == total {
            acknowledged = next;
            acknowledge(socket, sender, next, window)?;
        }
    }
    Ok(())
}

/// What receivers have said, by their addresses.
struct Receivers {
    /// Datagrams received and datagrams that the window holds.
    known: BTreeMap<SocketAddr, (u64, u64)>,
    wanted: usize,
}

impl Receivers {
    /// How many more datagrams may be sent where `sent` were.
    fn room(&self, sent: u64) -> u64 {
        if self.known.len() < self.wanted {
            return 0;
        }
        let rooms = self.known.values().map(|(got, window)| (got + window).saturating_sub(sent));
        rooms.min().unwrap_or(0)
    }

    /// What everybody has; `None` before everybody has spoken.
    fn acknowledged(&self) -> Option<u64> {
        let all = self.known.len() >= self.wanted;
        self.known.values().map(|(got, _)| *got).min().filter(|_| all)
    }

    fn hear(&mut self, socket: &UdpSocket) -> Result<(), Error> {
        if !wait(socket, PollFlags::POLLIN, SILENCE_MAX)? {
            return Err(Error::Work("no receiver says anything".into()));
        }
        let mut ack = [0; ACK_LEN];
        match socket.recv_from(&mut ack) {
            Ok((ACK_LEN, from)) => {
                let number = |at: usize| {
                    let bytes = ack[at..at + 8].try_into().expect("eight bytes were taken");
                    u64::from_be_bytes(bytes)
                };
                let known = self.known.entry(from).or_default();
                *known = (known.0.max(number(0)), number(8) / PAYLOAD as u64);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}

fn acknowledge(socket: &UdpSocket, sender: SocketAddr, got: u64, window: u64) -> Result<(), Error> {
    let mut ack = [0; ACK_LEN];
    ack[..8].copy_from_slice(&got.to_be_bytes());
    ack[8..].copy_from_slice(&window.to_be_bytes());
    match socket.send_to(&ack, sender) {
        // A sender that is not there yet, or no more, is told again or need not know.
        Err(error) if error.kind() != ErrorKind::ConnectionRefused => Err(failed(error)),
        _ => Ok(()),
    }
}

fn open(address: Ipv4Addr, port: u16, forced: bool) -> Result<UdpSocket, Error> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
    if forced {
        let refused = |error: nix::Error| failed(error.into());
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).map_err(refused)?;
        setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER).map_err(refused)?;
    }
    if !address.is_unspecified() {
        socket.set_multicast_if_v4(&address).map_err(failed)?;
        socket.set_multicast_loop_v4(false).map_err(failed)?;
    }
    socket.bind(&SocketAddrV4::new(address, port).into()).map_err(failed)?;
    Ok(socket.into())
}

/// Waits until the socket is ready. False where it is not in time.
fn wait(socket: &UdpSocket, events: PollFlags, longest: Duration) -> Result<bool, Error> {
    let timeout = PollTimeout::try_from(longest).expect("waits are short");
    let ready = poll(&mut [PollFd::new(socket.as_fd(), events)], timeout);
    Ok(ready.map_err(|error| failed(error.into()))? > 0)
}

fn datagrams(bytes: u64) -> u64 {
    bytes.div_ceil(PAYLOAD as u64)
}

fn failed(error: std::io::Error) -> Error {
    Error::doing("the bare limit", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_receiver_decides_and_nothing_goes_before_all_have_spoken() {
        let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 1));
        let mut receivers = Receivers { known: BTreeMap::new(), wanted: 2 };
        receivers.known.insert(address(1), (10, 100));
        assert_eq!((receivers.room(0), receivers.acknowledged()), (0, None));
        receivers.known.insert(address(2), (4, 100));
        assert_eq!((receivers.room(50), receivers.acknowledged()), (54, Some(4)));
        assert_eq!(receivers.room(200), 0);
    }

    #[test]
    fn the_limit_moves_a_file_over_loopback() {
        let here = Ipv4Addr::LOCALHOST;
        // Unicast: whether loopback takes multicast is the host's affair. Data has the port below
        // that of the acknowledgements, so both must be free.
        let (port, socket) = std::iter::repeat_with(|| {
            let free = UdpSocket::bind((here, 0)).unwrap().local_addr().unwrap().port();
            open(here, free - 1, false).map(|socket| (free - 1, socket))
        })
        .find_map(Result::ok)
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("content");
        std::fs::write(&file, vec![7; 3 << 20]).unwrap();
        let end = End {
            here,
            sender: here,
            group: here,
            port,
            bytes: 3 << 20,
            receivers: 1,
            forced: false,
            file: Some(file.clone()),
        };
        let copy = folder.path().join("copy");
        let receiver = End { file: Some(copy.clone()), ..end.clone() };
        let receiving = std::thread::spawn(move || receive_on(&socket, &receiver));
        assert!(send(&end).is_ok());
        assert!(receiving.join().unwrap().is_ok());
        let len = std::fs::metadata(copy).unwrap().len();
        assert_eq!(len, datagrams(end.bytes) * PAYLOAD as u64);
    }
}
