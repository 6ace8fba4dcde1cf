#!/usr/bin/env python3
"""Compares faircast with other programs that send files by multicast, over real sockets."""

import contextlib
import math
import os
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import common
from common import Failure, Missing, Program, note

TITLE = "How fast are files on real sockets, beside other programs?"
GROUP, GROUP_2, PORT = "239.1.2.3", "239.1.2.4", 7500
UPLINK_MBIT_PER_S = 200
# Interface of the bridge that leads to the sender.
SENDER_PORT = "b1"
# Time between the starts of receivers and sender, in which receivers begin to listen, in seconds.
HEAD_START_S = 0.5
# Time that a sender has to end by itself when every receiver has all, in seconds.
FAREWELL_S = 10.0
# Time for packets that are on their way when the sender ends, in seconds.
LAST_PACKETS_S = 3.0
# Bytes of memory that stay free ahead of the copies.
SPARE = 256 << 20


@dataclass(frozen=True)
class Kind:
    """A network, by what limits a transfer there."""

    receivers: int
    # Mean rate below which a run is given up, in Mbit/s.
    slowest_mbit_per_s: float
    uplink_mbit_per_s: int = 0
    bytes_max: float = math.inf


KINDS = {
    "fast": Kind(4, 40.0),
    "group": Kind(20, 10.0),
    # The uplink carries a copy for each receiver, so less content is enough.
    "uplink": Kind(16, 5.0, UPLINK_MBIT_PER_S, 50e6),
}


@dataclass
class Transport:
    id: str
    title: str
    # limit: the machine's own; ours; controlled, flow, fixed: others by how they control their rate; copies: TCP.
    kind: str
    program: dict
    over: str = "fast"
    rate: str = ""
    sealed: bool = False
    # Bare limit: socket buffers as large as those of faircast; a file that is read and files that are written.
    forced: bool = False
    files: bool = False
    runs: list = field(default_factory=list)
    skipped: Exception | None = None

    def makes_files(self):
        return self.kind != "limit"

    def median(self, key):
        figures = common.spread(run[key] for run in self.runs if run["complete"])
        return figures and figures[1]


def load():
    import tomllib  # After the check of Python's version in `common`.

    tables = tomllib.loads((common.HERE / "transports.toml").read_text())
    transports = []
    for entry in tables["transport"]:
        entry = {**entry, "kind": entry["class"], "program": tables["program"][entry["program"]]}
        del entry["class"]
        transports.append(Transport(**entry))
    return transports, tables["goal"]


def prepare(transport, tools, faircast):
    """Makes ready what a transport needs, or notes why it cannot be measured here."""
    try:
        if "installed" in transport.program:
            common.need_installed(*transport.program["installed"])
        if "compile" in transport.program:
            common.compile_written(transport.program["compile"], tools)
        if transport.sealed and not (tools / "key").exists():
            common.run(faircast, "key", "new", tools / "key")
    except Failure as error:
        transport.skipped = error
        note(f"wire: {transport.id} is skipped: {error}")


class Network(common.Namespaces):
    """A sender, host 1, and receivers on one bridge in a namespace of its own."""

    def __init__(self, name, kind, no_offload):
        super().__init__(name)
        self.receivers, self.kind, self.no_offload = range(2, 2 + kind.receivers), kind, no_offload

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        self.bridge = self.add("br")
        common.ip(f"-n {self.bridge} link add br0 type bridge mcast_snooping 0")
        common.ip(f"-n {self.bridge} link set br0 up")
        for host in (1, *self.receivers):
            inside = self.add(f"h{host}")
            common.ip(f"-n {self.bridge} link add b{host} type veth peer name {common.INTERFACE} netns {inside}")
            common.ip(f"-n {self.bridge} link set b{host} master br0 up")
            common.ip(f"-n {inside} addr add {address(host)}/16 dev {common.INTERFACE}")
            common.ip(f"-n {inside} link set {common.INTERFACE} up")
            common.ip(f"-n {inside} route add 224.0.0.0/4 dev {common.INTERFACE}")
        if self.no_offload:
            common.ip(f"netns exec {self.host(1)} ethtool -K {common.INTERFACE} tx-udp-segmentation off")
        if self.kind.uplink_mbit_per_s:
            shape = f"root tbf rate {self.kind.uplink_mbit_per_s}mbit burst 64kb latency 50ms"
            common.run("tc", "-n", self.host(1), "qdisc", "add", "dev", common.INTERFACE, *shape.split())

    def host(self, number):
        return f"{self.prefix}h{number}"


def address(host):
    return f"10.77.0.{host}"


def free_memory():
    """Bytes of memory that programs can have."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return math.inf


class Ballast:
    """Memory that is held until copies take its place.

    A virtual machine gives unused memory back to its host, and to get a gigabyte of it again costs more time than to
    carry a gigabyte over the network.
    """

    def __init__(self, folder, length, copies):
        self.path, self.length, self.copies = folder / "ballast", length * copies + SPARE, copies
        with open(self.path, "wb") as file:
            for _ in range(-(-self.length // (1 << 20))):
                file.write(b"\x5a" * (1 << 20))

    def gone(self, length):
        """Frees the memory that copies have taken, `length` bytes each, and will take until the next call."""
        with contextlib.suppress(OSError):
            os.truncate(self.path, max(0, self.length - length * self.copies - SPARE))


class Counter(threading.Thread):
    """Bytes that the sender's interface has sent, and the moment at which content began to leave."""

    def __init__(self, bridge, content, ballast):
        super().__init__(daemon=True)
        self.bridge, self.ballast, self.over = bridge, ballast, threading.Event()
        # A fiftieth of the content, or a megabyte.
        self.begun = min(content // 50, 1_000_000)
        self.first_at, self.bytes = None, 0
        self.zero = threading.Event()

    def run(self):
        common.enter(self.bridge)
        zero = received_bytes(Path("/proc/thread-self/net/dev").read_text(), SENDER_PORT)
        self.zero.set()
        while True:
            over = self.over.is_set()
            self.bytes = received_bytes(Path("/proc/thread-self/net/dev").read_text(), SENDER_PORT) - zero
            if self.ballast:
                self.ballast.gone(self.bytes)
            if self.first_at is None and self.bytes >= self.begun:
                self.first_at = time.monotonic()
            if over:
                return
            self.over.wait(0.002 if self.first_at is None else 0.05)


def received_bytes(table, interface):
    """Bytes that an interface has received, by the text of /proc/net/dev."""
    for line in table.splitlines():
        name, _, numbers = line.strip().partition(":")
        if name == interface:
            return int(numbers.split()[0])
    raise Failure(f"{interface}: no such interface")


def words(line, transport, sitting, host):
    """Words of a command line on a host, which sends the file or receives into a copy."""
    receivers = sitting.network.receivers
    file = sitting.content if host == 1 else sitting.copy(host)
    key = ["--key", str(sitting.tools / "key")] if transport.sealed else []
    values = {
        "python": [sys.executable, "-I", "-S"],
        "ends": common.ENDS,
        "faircast": sitting.faircast,
        "tools": sitting.tools,
        "file": file,
        "copy": file,
        "folder": file.parent,
        "bytes": sitting.bytes,
        "forced": int(transport.forced),
        "limit_file": file if transport.files else "-",
        "key": key,
        "ours": sitting.ours,
        "rate": transport.rate.split(),
        "group": GROUP,
        "group2": GROUP_2,
        "port": PORT,
        "interface": common.INTERFACE,
        "here": address(host),
        "sender": address(1),
        "host": host,
        "number": f"0x{host:08x}",
        "hosts": ",".join(f"0x{one:08x}" for one in receivers),
        "receivers": len(receivers),
    }
    return common.command_words(line, values.__getitem__)


@dataclass
class Sitting:
    """Runs on one network with one file."""

    network: Network
    folder: Path
    bytes: int
    faircast: str
    ours: list

    @property
    def tools(self):
        return self.folder / "tools"

    @property
    def content(self):
        return self.folder / "content"

    def copy(self, host):
        return self.folder / "run" / str(host) / "content"

    def run(self, transport):
        """Runs a transport once; returns its figures."""
        for host in self.network.receivers:
            self.copy(host).parent.mkdir(parents=True)
        writes = transport.makes_files() or transport.files
        copies = len(self.network.receivers)
        ballast = Ballast(self.folder / "run", self.bytes, copies) if writes else None
        programs = []
        try:
            return self._figures(transport, programs, ballast)
        finally:
            for program in programs:
                program.end()
            common.shutil.rmtree(self.folder / "run")

    def _start(self, transport, host, programs):
        line = transport.program["send" if host == 1 else "receive"]
        # A receiver that does not end makes a file when it has all.
        done = Path(f"{self.copy(host)}.done") if transport.program.get("done") and host != 1 else None
        log = self.folder / "run" / f"{host}.log"
        programs.append(Program(self.network.host(host), words(line, transport, self, host), log, done))
        return programs[-1]

    def _figures(self, transport, programs, ballast):
        receivers = [self._start(transport, host, programs) for host in self.network.receivers]
        time.sleep(HEAD_START_S)
        counter = Counter(self.network.bridge, self.bytes, ballast)
        counter.start()
        counter.zero.wait(5)
        started = time.monotonic()
        sender = self._start(transport, 1, programs)
        limit_s = 20.0 + self.bytes * 8e-6 / KINDS[transport.over].slowest_mbit_per_s
        ended = wait_for_all(receivers, sender, started + limit_s)
        trouble = (
            None if ended else next((one.last_words() for one in programs if one.done_at is None), "out of time")
        )
        sender.end(FAREWELL_S if ended and not transport.program.get("stays") else 0.0)
        for receiver in receivers:
            receiver.end()
        counter.over.set()
        counter.join()
        whole = not transport.makes_files() or all(
            common.same_bytes(self.content, self.copy(host)) for host in self.network.receivers
        )
        if ended and not whole:
            trouble = "a copy differs"
        first = counter.first_at
        gigabytes = self.bytes / 1e9
        return {
            # True if every copy is equal to what was sent.
            "complete": ended is not None and whole,
            # Content, from the first of it on the wire until the last receiver had all of it.
            "mbit_per_s": self.bytes * 8e-6 / (ended - first) if ended and first and ended > first else 0.0,
            # From the start of the sender until then, with whatever a transport does before.
            "total_s": ended - started if ended else limit_s,
            "cpu_send_s_per_gb": sender.cpu_s / gigabytes,
            "cpu_receive_s_per_gb": statistics.mean(one.cpu_s for one in receivers) / gigabytes,
            "sent_per_useful": counter.bytes / self.bytes,
            "trouble": trouble,
        }


def wait_for_all(receivers, sender, deadline):
    """Returns when the last receiver had all; `None` if a program fails or time is up."""
    sender_gone = None
    while True:
        for one in (*receivers, sender):
            one.poll()
        if all(one.done_at for one in receivers):
            return max(one.done_at for one in receivers)
        now = time.monotonic()
        if sender_gone is None and sender.ended_well is not None:
            sender_gone = now
        failed = any(one.done_at is None and one.ended_well is not None for one in receivers)
        if failed or now > deadline or (sender_gone is not None and now > sender_gone + LAST_PACKETS_S):
            return None
        time.sleep(0.003)


# Verdicts.

VALUES = {
    "goodput": "mbit_per_s",
    "cpu_send": "cpu_send_s_per_gb",
    "cpu_receive": "cpu_receive_s_per_gb",
    "sent_bytes": "sent_per_useful",
}


def theirs(goal, transports):
    """Transports that ours may be compared with: one by its id, or all of some classes."""
    return [one for one in transports if one.id == goal.get("theirs") or one.kind in goal.get("best", ())]


def compare(goal, transports):
    """Returns the transport that ours was compared with, and the ratio of each round in which both were whole."""
    by_id = {one.id: one for one in transports}
    key = VALUES[goal["value"]]
    others = theirs(goal, transports)
    if "theirs" not in goal:
        others = sorted((one for one in others if one.median(key)), key=lambda one: one.median(key))
        others = others[-1:] if "at_least" in goal else others[:1]
        if not others:
            raise Failure("there is no whole run")
    if goal["ours"] not in by_id or not others:
        raise Failure(f"{goal['ours'] if others else goal.get('theirs')} was not chosen")
    ours, other = by_id[goal["ours"]], others[0]
    for one in (ours, other):
        if one.skipped:
            raise Failure(f"{one.id}: {one.skipped}")
    pairs = [(a[key], b[key]) for a, b in zip(ours.runs, other.runs) if a["complete"] and b["complete"]]
    ratios = [a / b for a, b in pairs if b]
    if not ratios:
        raise Failure(f"no round with whole copies of {ours.id} and {other.id}")
    return other, ratios


def judge(goal, transports):
    bounds = {"low": goal.get("at_least"), "below": goal.get("below"), "reason": goal["reason"]}
    more = {"question": goal["question"], **bounds}
    try:
        other, ratios = compare(goal, transports)
        title = goal["title"] if "theirs" in goal else f"{goal['title']}, {other.id}"
        return common.row(goal["id"], title, "ratio", ratios, **more)
    except Failure as error:
        made = common.row(goal["id"], goal["title"], "ratio", [], **more)
        # A program that is not installed says nothing of ours; one that does not work misses.
        missing = all(isinstance(one.skipped, Missing) for one in theirs(goal, transports))
        return {**made, "holds": missing, "measured_only": missing, "explained": f"not measured: {error}"}


def rows(goals, transports, some):
    """Rows for goals and one for copies. With `some` transports, only rows of which both sides were chosen."""
    chosen = {one.id for one in transports}
    made = [
        judge(goal, transports) for goal in goals if not some or (goal["ours"] in chosen and theirs(goal, transports))
    ]
    runs = [run for one in transports if one.kind == "ours" for run in one.runs]
    if runs or not some:
        share = statistics.mean(run["complete"] for run in runs) if runs else math.nan
        question = "Does everybody have everything?"
        trouble = next((run["trouble"] for run in runs if run["trouble"]), None)
        whole = common.row("whole", "our runs in which every copy is whole", "ratio", [share], 1.0, question=question)
        made.append({**whole, "holds": share >= 1.0, "explained": trouble})
    return made


# Output.


def transport_table(transports):
    limit = next((one.median("mbit_per_s") for one in transports if one.id == "limit"), None)
    text = [
        f"{'transport':<16} {'whole':>6} {'Mbit/s':>8} {'range':>13} {'of limit':>8} {'total s':>7} {'CPU send':>9} "
        f"{'CPU recv':>9} {'sent':>7}"
    ]
    remarks = []
    for one in transports:
        if one.skipped:
            text.append(f"{one.id:<16} skipped: {one.skipped}")
            continue
        whole = f"{sum(run['complete'] for run in one.runs)}/{len(one.runs)}"
        line = f"{one.id:<16} {whole:>6}"
        if speeds := common.spread(run["mbit_per_s"] for run in one.runs if run["complete"]):
            of_limit = f"{100 * speeds[1] / limit:.0f} %" if limit and one.over == "fast" else "-"
            line += (
                f" {speeds[1]:>8.0f} {f'{speeds[0]:.0f}-{speeds[2]:.0f}':>13} {of_limit:>8} "
                f"{one.median('total_s'):>7.1f} {one.median('cpu_send_s_per_gb'):>9.2f} "
                f"{one.median('cpu_receive_s_per_gb'):>9.2f} {one.median('sent_per_useful'):>7.3f}"
            )
        text.append(line)
        remarks += [f"  {one.id}: {run['trouble']}" for run in one.runs if run["trouble"]][:1]
    text.append(
        "Medians of whole runs. CPU in seconds for a gigabyte, of the sender and the mean of the receivers;\n"
        "sent: bytes that left the sender for each byte of content."
    )
    return "\n".join(text + remarks)


def to_json(made, transports):
    return common.document({
        "suite": "wire",
        "rows": made,
        "transports": [
            {"id": one.id, "title": one.title, "mbit_per_s": one.median("mbit_per_s"), "runs": one.runs,
             "skipped": one.skipped and str(one.skipped)}
            for one in transports
        ],
    })  # fmt: skip


def measure(name, transports, args, faircast):
    """Runs each transport once in every round, so that what disturbs the machine disturbs all."""
    kind = KINDS[name]
    length = int(min(args.size, kind.bytes_max, free_memory() / 2 / (kind.receivers + 1)))
    ours = [word for scheme in ([args.scheme] if args.scheme else []) for word in ("--scheme", scheme)]
    ours += [word for option in args.option for word in ("--option", option)]
    with common.folder_in_memory() as folder, Network(name, kind, args.no_offload) as network:
        sitting = Sitting(network, folder, length, faircast, ours)
        sitting.tools.mkdir()
        common.make_content(sitting.content, length)
        # UFTP calls this with `-I`, the session and the file that has come.
        script = sitting.tools / "uftp-done"
        script.write_text('#!/bin/sh\n: > "$3.done"\n')
        script.chmod(0o755)
        for one in transports:
            prepare(one, sitting.tools, faircast)
        for number in range(args.rounds):
            for one in (one for one in transports if not one.skipped):
                note(f"wire: {one.id}, round {number + 1} of {args.rounds}")
                one.runs.append(sitting.run(one))


def parse(arguments):
    parser = common.parser(
        f"{TITLE} One sender and receivers\nin network namespaces on one bridge; every installed program once in "
        "each round. Needs root.\nREADME.md says what is measured.",
        "sudo python3 compare/wire.py --size 256MB\nsudo python3 compare/wire.py --only uftp --rounds 1\n"
        "sudo python3 compare/wire.py --no-offload --json > wire.json",
    )
    parser.add_argument("--size", type=common.size, default="1GB", help="bytes to send, such as 256MB (default: 1GB)")
    parser.add_argument(
        "--rounds",
        type=common.from_one,
        default=3,
        metavar="N",
        help="rounds, each with every transport (default: 3)",
    )
    parser.add_argument("--scheme", metavar="NAME", help="congestion control of faircast send, such as tfmcc")
    parser.add_argument(
        "--option", metavar="KEY=VALUE", action="append", default=[], help="option of that scheme; may be repeated"
    )
    parser.add_argument(
        "--no-offload", action="store_true", help="cut batches into packets at the sender, as a network card does"
    )
    return parser.parse_args(arguments)


def work():
    args = parse(None)
    transports, goals = load()
    chosen = [one for one in transports if args.only in one.id]
    if not chosen:
        raise common.Usage(f"--only {args.only}: no such transport; there are {', '.join(t.id for t in transports)}")
    if args.list:
        print("\n".join(f"{one.id:<16} {one.title}" for one in chosen))
        return True
    common.need_root()
    faircast = common.find_faircast(args.faircast)
    common.remove_leftovers()
    for name in KINDS:
        if here := [one for one in chosen if one.over == name]:
            measure(name, here, args, faircast)
    made = rows(goals, chosen, bool(args.only))
    print(to_json(made, chosen) if args.json else f"{transport_table(chosen)}\n\n{common.verdict_table(made)}")
    return all(one["holds"] for one in made)


if __name__ == "__main__":
    sys.exit(common.main(work))
