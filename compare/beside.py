#!/usr/bin/env python3
"""Compares the congestion control of faircast's TFMCC, UFTP and NORM: whom it follows, and what it leaves to TCP."""

import collections
import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import common
from common import Failure, Program, note

TITLE = "Do UFTP's and NORM's running control choose and share as ours does?"
GROUP, PORT, TCP_PORT = "239.1.2.3", 7500, 5001
# Content that no run comes to the end of: 20 Mbit/s for 45 s. Written out, since holes are not sent.
FILE_BYTES = 120_000_000
# Time after which a session that has not begun to send does not work, in seconds.
START_MAX_S = 20.0
# Choice: time that data flows before anything counts, and time that counts, in seconds.
CHOICE_BEFORE_S, CHOICE_S = 8.0, 16.0
# Share: time that a session has the link to itself, so that no slow start meets a link that TCP has filled; time
# that both flow before anything counts; time that counts; in seconds.
ALONE_S, SHARE_BEFORE_S, SHARE_S = 5.0, 5.0, 14.0
MTU = 1500
SENDER, TCP_SENDER, TCP_RECEIVER = "sender", "ts", "tr"


# Networks.


class Link:
    """One direction of a link: a drop-tail queue, a serialiser, then a wire with delay and loss."""

    def __init__(self, mbit_per_s, delay_ms, packets, loss=0.0, seed=0):
        self.bits_per_s, self.delay_s, self.packets_max, self.loss = mbit_per_s * 1e6, delay_ms / 1e3, packets, loss
        self.random = random.Random(seed)
        # Moments at which the packets that wait, and the one on the serialiser, begin to leave.
        self.begins, self.free_at = collections.deque(), 0.0

    def take(self, now, length):
        """Returns when a packet of `length` bytes comes out; `None` if the link drops it."""
        while self.begins and self.begins[0] <= now:
            self.begins.popleft()
        if len(self.begins) >= self.packets_max:
            return None
        begin = max(now, self.free_at)
        if begin > now:
            self.begins.append(begin)
        self.free_at = begin + length * 8 / self.bits_per_s
        return None if self.random.random() < self.loss else self.free_at + self.delay_s


def both(a, b, *link):
    return {(a, b): Link(*link), (b, a): Link(*link)}


def unequal():
    """One receiver is near and loses little, the other is far and loses much.

    TCP's equation gives 13 and 1 Mbit/s (1428 bytes; 22 ms and 0.2 %, 82 ms and 2 %).
    """
    links = both(SENDER, "r", 100, 1, 500)
    links |= {("r", "near"): Link(10, 10, 50, 0.002, 1), ("near", "r"): Link(10, 10, 50)}
    links |= {("r", "far"): Link(10, 40, 50, 0.02, 2), ("far", "r"): Link(10, 40, 50)}
    return links, (SENDER, "near", "far")


def shared():
    """The bottleneck that the suite tfmcc has for its own rows beside TCP."""
    links = both("r1", "r2", 20, 8, 50)
    for leaf, router in ((SENDER, "r1"), (TCP_SENDER, "r1"), ("mr", "r2"), (TCP_RECEIVER, "r2")):
        links |= both(router, leaf, 100, 1, 500)
    return links, (SENDER, "mr")


def next_hops(links):
    """The next node on the shortest way from each node to each other."""
    hops = {}
    for target in {node for link in links for node in link}:
        found = collections.deque([target])
        while found:
            node = found.popleft()
            for a, b in links:
                if b == node and a != target and (a, target) not in hops:
                    hops[a, target] = node
                    found.append(a)
    return hops


# Congestion control in the packets of each program.


@dataclass(frozen=True)
class Said:
    """Meaning of a packet to congestion control. Receivers have the numbers that their program gives them."""

    data: bool = False
    # Receiver whose rate the packet is there to report.
    report: int | None = None
    # Receiver that limits the sender, as the sender names it.
    limiting: int | None = None


NOTHING = Said()
# Mark of the limiting receiver in lists of UFTP and NORM, whose entries have 8 bytes: receiver, flags, round trip.
CLR = 0x01


def marked(entries):
    for at in range(0, len(entries) - 7, 8):
        if entries[at + 4] & CLR:
            return word(entries, at)
    return None


def word(packet, at):
    return struct.unpack_from(">I", packet, at)[0]


def faircast_said(packet):
    """Reads PGM with the options of docs/schemes/tfmcc.md."""
    # Bytes of the bodies of SPM, ODATA, RDATA, NAK, NNAK, NCF and ACK, which may have options.
    bodies = {0x00: 20, 0x04: 8, 0x05: 8, 0x08: 20, 0x09: 20, 0x0A: 20, 0x0B: 8, 0x0D: 8}
    kind = packet[4] & 0x0F
    if packet[4] & 0xF0 or kind not in bodies:
        return NOTHING
    report = limiting = None
    at = 16 + bodies[kind]
    if packet[5] & 0x01 and packet[at] & 0x7F == 0:
        end = min(len(packet), at + struct.unpack_from(">H", packet, at + 2)[0])
        while at + 4 <= end and packet[at + 1] >= 4:
            option, value = packet[at] & 0x7F, packet[at + 4 : min(end, at + packet[at + 1])]
            # Flags first; those of an announcement mark the limiting receiver, those of a report one that rides.
            if option == 0x15 and value[0] & 0x01:
                limiting = word(value, 8) or None
            elif option == 0x16 and not value[0] & 0x08:
                report = word(value, 16) or None
            at += packet[at + 1]
    return Said(kind in (0x04, 0x05), report, limiting)


def uftp_said(packet):
    """Reads FILESEG, CONG_CTRL and CC_ACK of UFTP (protocol.txt, uftp.h)."""
    match packet[1]:
        case 9:
            return Said(data=True)
        case 20:
            return Said(limiting=marked(packet[32:]))
        case 21:
            return Said(report=word(packet, 4))
    return NOTHING


def norm_said(packet):
    """Reads NORM_DATA, NORM_CMD(CC) and NORM_ACK(CC) (RFC 5740, normMessage.h)."""
    kind, header = packet[0] & 0x0F, packet[1] * 4
    if kind == 2:
        return Said(data=True)
    if kind == 3 and packet[12] == 4:
        return Said(limiting=marked(packet[header:]))
    if kind == 5 and packet[14] == 1:
        return Said(report=word(packet, 4))
    return NOTHING


def said(read, packet):
    """Reads a datagram. What is no packet of this program means nothing."""
    try:
        return read(packet)
    except (IndexError, struct.error):
        return NOTHING


# Programs.


@dataclass(frozen=True)
class Peer:
    id: str
    title: str
    read: object
    send: str
    receive: str
    installed: tuple = ()
    compile: str = ""


PEERS = (
    Peer(
        "faircast", "faircast", faircast_said,
        "{faircast} send {path} --group {group}:{port} --wait-for {receivers} --scheme tfmcc --json",
        "{faircast} recv --into {path} --name {name} --group {group}:{port} --once",
    ),
    Peer(
        "uftp", "UFTP", uftp_said,
        "uftp -M {group} -P {group} -I {interface} -H {hosts} -b 1400 -r 0.1 -C tfmcc {path}",
        "uftpd -d -D {path} -I {interface} -M {group} -U {hex}",
        installed=("uftpd", "uftp"),
    ),
    # With the library's own start.
    Peer(
        "norm", "NORM", norm_said,
        "{tools}/norm send {interface} {group} {port} -1 {path} {receivers}",
        "{tools}/norm recv {interface} {group} {port} {number} {path}/copy {path}",
        compile="norm",
    ),
)  # fmt: skip


class Field(common.Namespaces):
    """Hosts in namespaces with the links of a network between them, in real time, and what their packets said."""

    def __init__(self, name, links, members, read):
        super().__init__(name)
        self.links, self.hops, self.members, self.read = links, next_hops(links), members, read
        self.hosts = [node for node in sorted({a for a, _ in links}) if not node.startswith("r")]
        self.tuns, self.waiting, self.count = {}, [], 0
        self.began, self.reports, self.numbers, self.limiting, self.arrived = None, [], {}, [], []

    def __enter__(self):
        try:
            for host in self.hosts:
                self._plug(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        for tun in self.tuns:
            os.close(tun)
        super().__exit__(*error)

    def _plug(self, host):
        """Gives a host an interface whose other side is a file of this process."""
        inside = self.add(host)
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self.tuns[tun] = host
        name = f"fcc{os.getpid() % 10**6}{self.hosts.index(host)}"
        # TUNSETIFF with IFF_TUN and IFF_NO_PI.
        fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x0001 | 0x1000))
        common.ip(f"link set {name} netns {inside}")
        common.ip(f"-n {inside} link set {name} name {common.INTERFACE} mtu {MTU} multicast on")
        common.ip(f"-n {inside} addr add {self.address(host)}/24 dev {common.INTERFACE}")
        common.ip(f"-n {inside} link set {common.INTERFACE} up")
        common.ip(f"-n {inside} route add 224.0.0.0/4 dev {common.INTERFACE}")

    def address(self, host):
        return f"10.78.0.{1 + self.hosts.index(host)}"

    def namespace(self, host):
        return self.prefix + host

    def run(self, seconds, until=lambda: False):
        """Carries packets for some time, or until something is so. Returns whether it became so."""
        deadline = time.monotonic() + seconds
        while (now := time.monotonic()) < deadline:
            if until():
                return True
            self._step(now)
            following = min(self.waiting[0][0] if self.waiting else deadline, deadline, now + 0.05)
            # Not poll(), which counts milliseconds.
            for tun in select.select(self.tuns, [], [], max(0.0, following - time.monotonic()))[0]:
                self._read(tun)
        return False

    def _read(self, tun):
        for _ in range(64):
            try:
                packet = os.read(tun, 1 << 16)
            except BlockingIOError:
                return
            host, now = self.tuns[tun], time.monotonic()
            # UDP and TCP over IPv4 alone: IGMP and IPv6 are of no concern to the network.
            if packet[0] >> 4 != 4 or packet[9] not in (6, 17):
                continue
            if packet[9] == 17:
                self._note(host, now, said(self.read, packet[(packet[0] & 0x0F) * 4 + 8 :]))
            to = ".".join(str(one) for one in packet[16:20])
            if packet[16] >= 224:
                targets = [one for one in self.members if one != host]
            else:
                targets = [one for one in self.hosts if self.address(one) == to and one != host]
            self._forward(now, host, host, packet, targets)

    def _note(self, host, now, heard):
        if heard.data and self.began is None:
            self.began = now
        if heard.report is not None:
            self.reports.append((now, host))
            self.numbers[heard.report] = host
        if heard.limiting is not None:
            self.limiting.append((now, heard.limiting))

    def _forward(self, at, source, node, packet, targets):
        """Puts a packet on the links that lead from a node to its targets, once on each."""
        ways = collections.defaultdict(list)
        for target in targets:
            ways[self.hops[node, target]].append(target)
        for hop, beyond in ways.items():
            arrival = self.links[node, hop].take(at, len(packet))
            if arrival is not None:
                self.count += 1
                heapq.heappush(self.waiting, (arrival, self.count, source, hop, packet, beyond))

    def _step(self, now):
        """Lets everything happen that is due. Packets move by the links' time, not by that of a late call."""
        while self.waiting and self.waiting[0][0] <= now:
            at, _, source, node, packet, targets = heapq.heappop(self.waiting)
            if targets != [node]:
                self._forward(at, source, node, packet, targets)
                continue
            self.arrived.append((at, source, node, len(packet)))
            tun = next(tun for tun, host in self.tuns.items() if host == node)
            try:
                os.write(tun, packet)
            except BlockingIOError:
                pass  # A host that takes no more loses the packet.

    # Figures of the last `span` seconds.

    def reports_of(self, host, span):
        since = time.monotonic() - span
        return sum(at >= since and who == host for at, who in self.reports)

    def named(self, host, span):
        """Returns how often the sender named this receiver as the one that limits it, and how often any."""
        since = time.monotonic() - span
        named = [number for at, number in self.limiting if at >= since]
        return sum(self.numbers.get(number) == host for number in named), len(named)

    def bits_per_s(self, source, target, span):
        """Bits a second that reached `target` from `source`, headers counted."""
        since = time.monotonic() - span
        return 8 * sum(n for at, by, to, n in self.arrived if at >= since and by == source and to == target) / span


class Session:
    """A field with the programs of one implementation on its hosts."""

    def __init__(self, field, peer, tools, folder, faircast):
        self.field, self.peer, self.folder, self.programs = field, peer, folder, []
        self.receivers = [one for one in field.members if one != SENDER]
        self.values = {
            "python": [sys.executable, "-I", "-S"],
            "ends": common.ENDS,
            "faircast": faircast,
            "tools": tools,
            "group": GROUP,
            "port": PORT,
            "interface": common.INTERFACE,
            "receivers": len(self.receivers),
            "hosts": ",".join(map(self._hex, self.receivers)),
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.end()

    def _number(self, host):
        """The number that a program is to give a receiver; NORM's counts from 2."""
        return 2 + self.receivers.index(host)

    def _hex(self, host):
        return f"0x{self._number(host):08x}"

    def start_on(self, host, line, path=None):
        receiver = {"number": self._number(host), "hex": self._hex(host)} if host in self.receivers else {}
        values = {**self.values, **receiver, "name": host, "path": path}
        words = common.command_words(line, values.__getitem__)
        log = self.folder / f"{host}.log"
        self.programs.append(Program(self.field.namespace(host), words, log))
        return self.programs[-1]

    def start(self):
        """Starts receivers and the sender, and returns when data flows."""
        content = self.folder / "content"
        common.make_content(content, FILE_BYTES)
        for host in self.receivers:
            into = self.folder / host
            into.mkdir()
            self.start_on(host, self.peer.receive, into)
        # Daemons must have joined before the sender asks for them.
        self.field.run(0.3)
        sender = self.start_on(SENDER, self.peer.send, content)
        if not self.field.run(START_MAX_S, lambda: self.field.began is not None or self._has_ended()):
            raise Failure(f"{self.peer.title} does not send: {sender.last_words()}")
        if self._has_ended():
            ended = next(one for one in self.programs if one.ended_well is not None)
            raise Failure(f"{self.peer.title} does not run: {ended.last_words()}")

    def _has_ended(self):
        for one in self.programs:
            one.poll()
        return any(one.ended_well is not None for one in self.programs)

    def start_tcp(self):
        """Starts a TCP connection with Reno's congestion control that sends without end."""
        self.start_on(TCP_RECEIVER, f"{{python}} {{ends}} tcp-sink {TCP_PORT}")
        self.field.run(0.3)
        sink = self.field.address(TCP_RECEIVER)
        self.start_on(TCP_SENDER, f"{{python}} {{ends}} tcp-source {sink} {TCP_PORT}")


# Questions.


def choice(peer, session):
    """Whom the sender follows, and who reports how much."""
    field = session.field
    field.run(CHOICE_BEFORE_S + CHOICE_S)
    named, times = field.named("far", CHOICE_S)
    near, far = field.reports_of("near", CHOICE_S), field.reports_of("far", CHOICE_S)
    return choice_rows(peer, (named, times), (near, far), field.bits_per_s(SENDER, "far", CHOICE_S))


def choice_rows(peer, named, reports, bits_per_s):
    identity, title = f"choice.{peer.id}", peer.title
    return [
        common.row(
            f"{identity}.worse",
            f"{title}: the worse receiver's share of {named[1]} times that one is named",
            "share",
            [named[0] / named[1]] if named[1] else [],
            0.8,
            1.0,
            reason="the other could take ten times as much, but its first loss starts its history at the present "
            "rate (RFC 4654 s5.6), so that it may be named for a second or two of 16",
        ),
        common.row(
            f"{identity}.quiet",
            f"{title}: reports of the better / the worse ({reports[0]} / {reports[1]})",
            "ratio",
            [reports[0] / reports[1]] if reports[1] else [],
            0.0,
            0.5,
            reason="the worse reports once a round trip of 82 ms, the better once a feedback round of six, and while "
            "it is taken for the worse",
        ),
        common.row(
            f"{identity}.rate",
            f"{title}: arriving at the worse",
            "kbit/s",
            [bits_per_s / 1e3],
            250.0,
            4000.0,
            reason="TCP's equation gives 1000 kbit/s, and a quarter and four times it are the bounds",
        ),
    ]


def share(peer, session):
    """What TCP gets beside a session."""
    field = session.field
    field.run(ALONE_S)
    alone = field.bits_per_s(SENDER, "mr", ALONE_S / 2)
    session.start_tcp()
    field.run(SHARE_BEFORE_S + SHARE_S)
    tcp, own = field.bits_per_s(TCP_SENDER, TCP_RECEIVER, SHARE_S), field.bits_per_s(SENDER, "mr", SHARE_S)
    return share_rows(peer, tcp, own, alone)


def share_rows(peer, tcp, own, alone):
    title = f"TCP Reno / {peer.title} ({tcp / 1e6:.1f} / {own / 1e6:.1f} Mbit/s; before TCP {alone / 1e6:.1f})"
    reason = "one run of 14 s, in real time: neither is starved"
    return [common.row(f"share.{peer.id}", title, "ratio", [tcp / own] if own else [], 0.2, 5.0, reason=reason)]


QUESTIONS = {"choice": (unequal, choice), "share": (shared, share)}


def ask(question, peer, tools, faircast):
    network, answer = QUESTIONS[question]
    links, members = network()
    with tempfile.TemporaryDirectory(prefix=common.PREFIX) as folder:
        with Field(peer.id, links, members, peer.read) as field:
            with Session(field, peer, tools, Path(folder), faircast) as session:
                session.start()
                return answer(peer, session)


def parse(arguments):
    parser = common.parser(
        f"{TITLE} Whom does a sender follow of\ntwo unequal receivers, and what does TCP Reno get beside it? Takes "
        "three minutes. Needs root.\nREADME.md says more.",
        "sudo python3 compare/beside.py\nsudo python3 compare/beside.py --only share.norm --json",
    )
    return parser.parse_args(arguments)


def work():
    args = parse(None)
    chosen = [(question, peer) for question in QUESTIONS for peer in PEERS if args.only in f"{question}.{peer.id}"]
    if not chosen:
        known = ", ".join(f"{question}.{peer.id}" for question in QUESTIONS for peer in PEERS)
        raise common.Usage(f"--only {args.only}: no such row; there are {known}")
    if args.list:
        print(
            "\n".join(f"{f'{question}.{peer.id}':<16} {QUESTIONS[question][1].__doc__}" for question, peer in chosen)
        )
        return True
    common.need_root()
    faircast = common.find_faircast(args.faircast)
    common.remove_leftovers()
    # The network keeps its times on a busy machine too. Programs do not inherit that.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    rows, skipped = [], {}
    with tempfile.TemporaryDirectory(prefix=common.PREFIX) as folder:
        for question, peer in chosen:
            identity = f"{question}.{peer.id}"
            note(f"beside: {identity}")
            try:
                if peer.installed:
                    common.need_installed(*peer.installed)
                if peer.compile:
                    common.compile_written(peer.compile, Path(folder))
                rows += ask(question, peer, Path(folder), faircast)
            except Failure as error:
                # Another program that does not work here is no fault of ours.
                if peer.id == "faircast":
                    raise
                skipped[identity] = str(error)
                note(f"beside: {identity} is skipped: {error}")
    if args.json:
        print(common.document({"suite": "beside", "rows": rows, "skipped": skipped}))
    else:
        print(
            "\n".join(filter(None, [common.verdict_table(rows), *(f"{a} skipped: {b}" for a, b in skipped.items())]))
        )
    return all(row["holds"] for row in rows)


if __name__ == "__main__":
    sys.exit(common.main(work))
