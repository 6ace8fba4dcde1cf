//! A machine that speaks no PGM at a host, over a UDP socket: constant bit rate.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use faircast_base::{Cx, Duration, Event, FlowId, GroupId, NodeId, Purpose, Rng, Time};
use faircast_proto::content::Content;
use faircast_proto::transport::Role;
use faircast_proto::{AppEvent, Datagram, Destination, Machine, Transmit};
use faircast_scenario::Flow;
use faircast_sim::{Builtin, Delivery, Protocols};
use faircast_trace::{Record, Sink, Subject, Tagged};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, Socket, Type};

use crate::address::{self, UDP_PORT};
use crate::clock::{Clock, HOST_PRIORITY, RECEIVER_PRIORITY, be_exact, wall};
use crate::emulator::Shared;
use crate::error::LabError;
use crate::merge::Outbox;

/// How long a host sleeps at the most, so that a stop is seen.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// Packets that are taken before timers have their turn.
const READS_MAX: usize = 64;
/// Bytes that the kernel holds for a socket that is not read.
const SOCKET_BUFFER: usize = 4 << 20;

/// One end of a scheme's flow, in its own namespace.
pub(crate) struct End<'a> {
    pub(crate) flow: &'a Flow,
    pub(crate) id: FlowId,
    pub(crate) node: NodeId,
    pub(crate) clock: Clock,
    pub(crate) shared: &'a Shared,
    pub(crate) out: Outbox,
    pub(crate) rng: Rng,
}

/// When an end is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Membership {
    pub(crate) at: Time,
    pub(crate) leave: Option<Time>,
}

/// The socket of an end at `node`.
pub(crate) fn socket(node: NodeId) -> Result<UdpSocket, LabError> {
    let made = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        // The kernel may give less; packets that it drops then show as losses.
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
        socket.set_multicast_loop_v4(false)?;
        socket.set_multicast_if_v4(&address::of_node(node))?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, UDP_PORT)).into())?;
        Ok(UdpSocket::from(socket))
    };
    made().map_err(LabError::doing("make a UDP socket"))
}

/// The stream of random numbers of an end, the same that the simulator gives it.
pub(crate) fn random(seed: u64, node: NodeId, end: u32) -> Rng {
    Rng::new(seed, node, Purpose::Machine(end))
}

/// Sends everything that the flow sends.
pub(crate) fn send(
    mut end: End<'_>,
    socket: UdpSocket,
    content: Box<dyn Content>,
) -> Result<(), LabError> {
    be_exact(HOST_PRIORITY);
    let (node, role) = (end.node, Role::Source(content));
    let machine = Builtin.end(end.flow, end.id, node, role, end.flow.start);
    let mut delivery = Delivery::new(false);
    let stop = end.flow.stop;
    let mut driver = Driver::new(machine, &socket);
    let sent =
        driver.run_until(&mut end, stop.unwrap_or(Time::MAX), &mut delivery).and_then(|()| {
            if end.stopped() {
                return Ok(());
            }
            driver.close(&mut end, &mut delivery)?;
            driver.run_until(&mut end, Time::MAX, &mut delivery)
        });
    end.ended(sent, "send")
}

/// Receives everything, while it is a member.
pub(crate) fn receive(
    mut end: End<'_>,
    socket: UdpSocket,
    real: bool,
) -> Result<Delivery, LabError> {
    be_exact(RECEIVER_PRIORITY);
    let mut delivery = Delivery::new(real);
    let received = end.receive(&socket, &mut delivery);
    end.ended(received, "receive").map(|()| delivery)
}

impl End<'_> {
    pub(crate) fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Sends the last records. At the end of the run interfaces go away; that is no failure.
    fn ended(&mut self, result: io::Result<()>, doing: &str) -> Result<(), LabError> {
        let now = self.clock.now();
        self.out.flush(now);
        match result {
            Err(error) if !self.stopped() => {
                Err(LabError::doing(format!("{doing} flow \"{}\"", self.flow.name))(error))
            }
            _ => Ok(()),
        }
    }

    /// When it is a member, in order; throughout where the scenario does not say.
    pub(crate) fn memberships(&self) -> Vec<Membership> {
        let joins = self.flow.join.iter().filter(|join| join.node == self.node);
        let mut memberships: Vec<Membership> =
            joins.map(|join| Membership { at: join.at, leave: join.leave }).collect();
        if memberships.is_empty() {
            memberships.push(Membership { at: Time::ZERO, leave: None });
        }
        memberships.sort_unstable();
        memberships
    }

    /// Where its records go; for who keeps them from now on.
    pub(crate) fn take_out(&mut self) -> Outbox {
        self.out.fork()
    }

    fn receive(&mut self, socket: &UdpSocket, delivery: &mut Delivery) -> io::Result<()> {
        let (group, interface) =
            (address::group(self.id, GroupId::SESSION), address::of_node(self.node));
        let mut driver: Option<Driver<'_>> = None;
        for Membership { at, leave } in self.memberships() {
            match &mut driver {
                // Between two memberships the machine has still to say goodbye.
                Some(driver) => driver.run_until(self, at, delivery)?,
                None => self.sleep_until(at),
            }
            if self.stopped() {
                return Ok(());
            }
            socket.join_multicast_v4(&group, &interface)?;
            let now = self.clock.now();
            let mut joined = {
                let machine = Builtin.end(self.flow, self.id, self.node, Role::Receiver, now);
                Driver::new(machine, socket)
            };
            self.say(now, Event::Joined);
            joined.drain(self, delivery)?;
            joined.run_until(self, leave.unwrap_or(Time::MAX), delivery)?;
            if !self.stopped() {
                joined.close(self, delivery)?;
                socket.leave_multicast_v4(&group, &interface)?;
                self.say(self.clock.now(), Event::Left);
            }
            driver = Some(joined);
        }
        match &mut driver {
            Some(driver) => driver.run_until(self, Time::MAX, delivery),
            None => Ok(()),
        }
    }

    pub(crate) fn sleep_until(&self, at: Time) {
        while !self.stopped() {
            let left = self.clock.until(at);
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(wall(SLEEP_MAX)));
        }
    }

    fn subject(&self) -> Subject {
        Subject::Endpoint {
            flow: self.id,
            node: self.node,
            sender: self.node == self.flow.sender(),
        }
    }

    fn say(&mut self, at: Time, event: Event) {
        let subject = self.subject();
        self.out.record(&Record { at, subject, event });
    }
}

/// Gives a machine time and packets.
struct Driver<'s> {
    machine: Box<dyn Machine>,
    socket: &'s UdpSocket,
    buffer: Vec<u8>,
    packet: Vec<u8>,
    time_to_live: Option<u8>,
}

impl<'s> Driver<'s> {
    fn new(machine: Box<dyn Machine>, socket: &'s UdpSocket) -> Self {
        let (buffer, packet) = (vec![0; 65_536], Vec::new());
        Self { machine, socket, buffer, packet, time_to_live: None }
    }

    /// Runs the machine until a moment, or until everything is to stop.
    fn run_until(
        &mut self,
        end: &mut End<'_>,
        until: Time,
        delivery: &mut Delivery,
    ) -> io::Result<()> {
        while !end.stopped() {
            let now = end.clock.now();
            if now >= until {
                return Ok(());
            }
            end.out.flush_if_due(now);
            let timeout = self.machine.next_timeout();
            if timeout.is_some_and(|at| at <= now) {
                self.call(end, |machine, cx| machine.handle_timeout(cx));
                self.drain(end, delivery)?;
            }
            let next = self.machine.next_timeout().unwrap_or(Time::MAX).min(until);
            let span = end.clock.until(next.min(now + SLEEP_MAX));
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut polled, Some(TimeSpec::from_duration(span)), None) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => self.read(end, delivery)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Tells the machine that its application wants to end.
    fn close(&mut self, end: &mut End<'_>, delivery: &mut Delivery) -> io::Result<()> {
        self.call(end, |machine, cx| machine.handle_close(cx));
        self.drain(end, delivery)
    }

    fn read(&mut self, end: &mut End<'_>, delivery: &mut Delivery) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..READS_MAX {
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(from))) => (len, *from.ip()),
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // What an earlier packet met, told on a later call.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let Some(from) = address::to_node(from) else { continue };
            // Who is no sender hears the group; what was sent to it alone is for it all the same.
            let to = Destination::Node(end.node);
            let datagram = Datagram {
                from,
                to,
                bytes: &buffer[..len],
                zeros: 0,
                congestion_experienced: false,
            };
            self.call(end, |machine, cx| machine.handle_datagram(cx, datagram));
            self.drain(end, delivery)?;
        }
        self.buffer = buffer;
        Ok(())
    }

    fn call<R>(
        &mut self,
        end: &mut End<'_>,
        what: impl FnOnce(&mut dyn Machine, &mut Cx<'_>) -> R,
    ) -> R {
        let (now, subject) = (end.clock.now(), end.subject());
        let mut trace = Tagged { sink: &mut end.out, subject };
        let mut cx = Cx { now, rng: &mut end.rng, trace: &mut trace };
        what(self.machine.as_mut(), &mut cx)
    }

    /// Takes everything that the machine wants to send and say.
    fn drain(&mut self, end: &mut End<'_>, delivery: &mut Delivery) -> io::Result<()> {
        let mut packet = std::mem::take(&mut self.packet);
        loop {
            packet.clear();
            let transmit = self.call(end, |machine, cx| machine.poll_transmit(cx, &mut packet));
            let Some(transmit) = transmit else { break };
            packet.resize(packet.len() + transmit.zeros as usize, 0);
            self.transmit(end, &packet, transmit)?;
        }
        self.packet = packet;
        while let Some(event) = self.machine.poll_event() {
            match event {
                AppEvent::Delivered { bytes, zeros } => delivery.take(&bytes, zeros),
                AppEvent::Lost { packets } => delivery.lost_packets += u64::from(packets),
                AppEvent::Completed => delivery.completed = Some(end.clock.now()),
                _ => {}
            }
        }
        Ok(())
    }

    fn transmit(&mut self, end: &mut End<'_>, packet: &[u8], transmit: Transmit) -> io::Result<()> {
        if self.time_to_live != Some(transmit.time_to_live) {
            let time_to_live = u32::from(transmit.time_to_live);
            self.socket.set_multicast_ttl_v4(time_to_live)?;
            self.socket.set_ttl(time_to_live.max(1))?;
            self.time_to_live = Some(transmit.time_to_live);
        }
        let to = match transmit.to {
            Destination::Group(group) => address::group(end.id, group),
            Destination::Node(node) => address::of_node(node),
        };
        match self.socket.send_to(packet, SocketAddrV4::new(to, UDP_PORT)) {
            // A full interface drops packets as a queue does.
            Err(error)
                if !matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::ConnectionRefused
                ) && error.raw_os_error() != Some(nix::libc::ENOBUFS) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }
}
