//! TCP connection of the kernel between two hosts.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration as WallDuration;

use faircast_base::{CutReason, Duration, Event, Time, TimeoutKind};
use faircast_proto::content::Content;
use faircast_scenario::Flow;
use faircast_sim::Delivery;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, Socket, Type};

use crate::address::{self, TCP_PORT};
use crate::clock::{HOST_PRIORITY, RECEIVER_PRIORITY, be_exact, wall};
use crate::diag::{Diagnosis, TcpInfo};
use crate::endpoint::End;
use crate::error::LabError;
use crate::plan::{TcpPlan, data_len};

const SAMPLE_SPAN: Duration = Duration::from_millis(10);
const CHUNK: usize = 64 * 1024;

pub(crate) fn socket(flow: &Flow, plan: &TcpPlan, sender: bool) -> Result<Socket, LabError> {
    let made = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_mss(plan.packet)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let socket = made().map_err(LabError::doing("make a TCP socket"))?;
    let wanted = plan.congestion_control;
    socket.set_tcp_congestion(wanted.as_bytes()).map_err(|_| {
        let available = congestion_controls().join(", ");
        LabError::NoCongestionControl { flow: flow.name.clone(), wanted, available }
    })?;
    if !sender {
        let any = SocketAddr::from(([0, 0, 0, 0], TCP_PORT)).into();
        let bound = socket.bind(&any).and_then(|()| socket.listen(1));
        bound.map_err(LabError::doing("listen for a TCP connection"))?;
    }
    Ok(socket)
}

pub(crate) fn congestion_controls() -> Vec<String> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let known = std::fs::read_to_string(path).unwrap_or_default();
    known.split_whitespace().map(str::to_string).collect()
}

pub(crate) fn send(
    end: End<'_>,
    socket: Socket,
    content: Box<dyn Content>,
) -> Result<(), LabError> {
    be_exact(HOST_PRIORITY);
    end.place.sleep_until(end.flow.start);
    let mut sender = Sender { content, offset: 0, chunk: Vec::new(), written: 0 };
    let sent = end.send(&socket, &mut sender);
    end.place.out.borrow_mut().flush(end.place.clock.now());
    end.place.failed(sent)
}

pub(crate) fn receive(end: End<'_>, listener: Socket, real: bool) -> Delivery {
    be_exact(RECEIVER_PRIORITY);
    let mut delivery = Delivery::new(real);
    let mut receiver = Receiver { packet: end.flow.packet.count().max(1), bytes: 0 };
    // A broken connection delivers the bytes received until then.
    let _ = end.receive(&listener, &mut receiver, &mut delivery);
    end.place.out.borrow_mut().flush(end.place.clock.now());
    delivery
}

struct Sender {
    content: Box<dyn Content>,
    offset: u64,
    chunk: Vec<u8>,
    written: usize,
}

impl Sender {
    fn next(&mut self) -> &[u8] {
        if self.written == self.chunk.len() {
            let left = self.content.len().map_or(u64::MAX, |len| len - self.offset);
            let len = left.min(CHUNK as u64) as u32;
            self.chunk.clear();
            if len > 0 {
                let zeros = self.content.read(self.offset, len, &mut self.chunk);
                self.chunk.resize(self.chunk.len() + zeros as usize, 0);
            }
            (self.offset, self.written) = (self.offset + u64::from(len), 0);
        }
        &self.chunk[self.written..]
    }
}

struct Receiver {
    packet: u64,
    bytes: u64,
}

impl End<'_> {
    fn send(&self, socket: &Socket, sender: &mut Sender) -> io::Result<()> {
        let peer = SocketAddrV4::new(address::of_node(self.flow.to[0]), TCP_PORT);
        if let Err(error) = socket.connect(&SocketAddr::from(peer).into())
            && error.raw_os_error() != Some(nix::libc::EINPROGRESS)
        {
            return Err(error);
        }
        let local = socket.local_addr()?.as_socket_ipv4();
        let local = local.ok_or_else(|| io::Error::other("the socket has no address"))?;
        let diagnosis = Diagnosis::new(local, peer)?;
        let mut monitor = Monitor { diagnosis, last: TcpInfo::default() };
        let (mut next_sample, mut open) = (self.place.clock.now(), true);
        let mut stream: TcpStream = socket.try_clone()?.into();
        while !self.place.stopped() {
            let now = self.place.clock.now();
            if now >= next_sample {
                monitor.sample(self, now);
                next_sample = now + SAMPLE_SPAN;
                self.place.out.borrow_mut().flush_if_due(now);
            }
            let wanted = if open { PollFlags::POLLOUT } else { PollFlags::empty() };
            let ready = wait(socket, wanted, wall(next_sample.since(now)))?;
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
            if !open {
                // A poll without requested events would return at once for a closed connection.
                std::thread::sleep(self.place.clock.until(next_sample));
                continue;
            }
            if !ready {
                continue;
            }
            let ended = self.flow.stop.is_some_and(|stop| now >= stop);
            open = !ended && write_some(&mut stream, sender)?;
            if !open {
                stream.shutdown(Shutdown::Write)?;
            }
        }
        Ok(())
    }

    fn receive(
        &self,
        listener: &Socket,
        receiver: &mut Receiver,
        delivery: &mut Delivery,
    ) -> io::Result<()> {
        self.place.say(Time::ZERO, Event::Joined);
        let mut stream: TcpStream = loop {
            if self.place.stopped() {
                return Ok(());
            }
            match listener.accept() {
                Ok((stream, _)) => break stream.into(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            wait(listener, PollFlags::POLLIN, wall(SAMPLE_SPAN))?;
        };
        stream.set_nonblocking(true)?;
        let mut buffer = vec![0; CHUNK];
        while !self.place.stopped() {
            let now = self.place.clock.now();
            self.place.out.borrow_mut().flush_if_due(now);
            if !wait(&stream, PollFlags::POLLIN, wall(SAMPLE_SPAN))? {
                continue;
            }
            match stream.read(&mut buffer) {
                Ok(0) => {
                    self.finish(receiver, delivery);
                    return Ok(());
                }
                Ok(len) => self.deliver(receiver, &buffer[..len], delivery),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn deliver(&self, receiver: &mut Receiver, bytes: &[u8], delivery: &mut Delivery) {
        let now = self.place.clock.now();
        delivery.take(bytes, 0);
        let end = receiver.bytes + bytes.len() as u64;
        while receiver.bytes < end {
            let seq = receiver.bytes / receiver.packet;
            let upto = ((seq + 1) * receiver.packet).min(end);
            let bytes = (upto - receiver.bytes) as u32;
            self.place.say(now, Event::Delivered { seq, bytes });
            receiver.bytes = upto;
        }
    }

    fn finish(&self, receiver: &Receiver, delivery: &mut Delivery) {
        if data_len(self.flow) == Some(receiver.bytes) {
            let now = self.place.clock.now();
            delivery.completed = Some(now);
            self.place.say(now, Event::Completed { bytes: receiver.bytes });
        }
    }
}

fn write_some(stream: &mut TcpStream, sender: &mut Sender) -> io::Result<bool> {
    loop {
        let next = sender.next();
        if next.is_empty() {
            return Ok(false);
        }
        match stream.write(next) {
            Ok(len) => sender.written += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn wait(file: &impl AsFd, wanted: PollFlags, span: WallDuration) -> io::Result<bool> {
    let mut polled = [PollFd::new(file.as_fd(), wanted)];
    match ppoll(&mut polled, Some(TimeSpec::from_duration(span)), None) {
        Err(nix::errno::Errno::EINTR) => Ok(false),
        result => Ok(result? > 0),
    }
}

struct Monitor {
    diagnosis: Diagnosis,
    last: TcpInfo,
}

/// Lowest state of the kernel's congestion control with repairs.
const RECOVERY: u8 = 3;
const LOSS: u8 = 4;

impl Monitor {
    fn sample(&mut self, end: &End<'_>, now: Time) {
        let Ok(info) = self.diagnosis.ask() else { return };
        let last = std::mem::replace(&mut self.last, info);
        let timeouts = match (info.timeouts, last.timeouts) {
            (Some(count), before) => u32::from(count.wrapping_sub(before.unwrap_or(0))),
            (None, _) => u32::from(info.state == LOSS && info.retransmits > last.retransmits),
        };
        let window_milli = u64::from(info.threshold.min(info.window)) * 1000;
        for _ in 0..timeouts {
            let after_ns = u64::from(info.rto_us) * 1000;
            let kind = TimeoutKind::Retransmission;
            end.place.say(now, Event::Timeout { kind, after_ns });
        }
        if timeouts > 0 {
            end.place.say(now, Event::Cut { reason: CutReason::Timeout, window_milli: 1000 });
        } else if info.state == RECOVERY && last.state != RECOVERY {
            end.place.say(now, Event::Cut { reason: CutReason::Loss, window_milli });
        }
        if info.rtt_us > 0 && info.bytes_acked > last.bytes_acked {
            let rtt_ns = u64::from(info.rtt_us) * 1000;
            end.place.say(now, Event::RttSample { node: end.flow.to[0], rtt_ns });
        }
        if (info.window, info.flight) != (last.window, last.flight) {
            let window_milli = u64::from(info.window) * 1000;
            end.place.say(now, Event::Window { window_milli, flight: info.flight });
        }
    }
}
