#!/usr/bin/env python3
"""Compares groups of faircast with NATS: throughput and latency, each system with its own client library."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import common
from common import Failure, note

TITLE = "How fast are groups of faircast beside NATS?"
SERVER, TOOL = "github.com/nats-io/nats-server/v2@latest", "github.com/nats-io/natscli/nats@latest"
SUBJECT = "bench"
# Servers of a setup.
SETUPS = {"one": 1, "chain": 3}


@dataclass(frozen=True)
class Case:
    """Messages of a size to a number of subscribers: as many as one server delivers in about 1.5 s."""

    size: str
    bytes: int
    subscribers: int
    messages: int

    @property
    def id(self):
        return f"{self.size}.{self.subscribers}"


CASES = (Case("1k", 1024, 1, 800_000), Case("1k", 1024, 16, 80_000), Case("16k", 16384, 1, 60_000),
         Case("16k", 16384, 16, 8_000))  # fmt: skip
# The latency of messages of this case is measured, at this rate and at half the greatest.
TIMED, LOW_RATE, TIMED_S = CASES[0], 1000, 2
# A chain of NATS has no back pressure: its publisher is slowed until nothing is lost, for a time in seconds in which
# a queue that grows passes the limit of 64 MB.
FIRST_PACE, SLOWER, PACES_MAX, PACED_S = 0.7, 0.88, 16, 2
# Times in seconds: until a server listens, from the first subscriber to the first message, for one run of `nats`,
# and from the publisher's end until a subscriber that is not done has lost something.
LISTEN_MAX_S, SETTLE_S, RUN_MAX_S, SILENCE_S = 10, 1.0, 60, 4


@dataclass
class Figures:
    """Deliveries of a second to all subscribers by case, CPU of the servers in seconds for a million of them, and
    latencies in microseconds by row."""

    rate: dict = field(default_factory=dict)
    cpu_s: dict = field(default_factory=dict)
    latency_us: dict = field(default_factory=dict)


# NATS.


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def configurations(count, folder, ports):
    """Texts of the configurations of servers. A cluster of NATS is a mesh, so the chain is made of leaf nodes with TLS
    and without compression. `ports` has the ports for clients and for leaf nodes of each server."""
    texts = []
    for at, (clients, leaves) in enumerate(ports):
        text = f'listen: "127.0.0.1:{clients}"\n'
        if count > 1:
            tls = f'tls {{ cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem" }}'
            remotes = ""
            if at > 0:
                remotes = f""", remotes: [{{ url: "tls://127.0.0.1:{ports[at - 1][1]}", compression: off, \
tls {{ ca_file: "{folder}/cert.pem" }} }}]"""
            text += f'leafnodes {{ listen: "127.0.0.1:{leaves}", compression: off, {tls}{remotes} }}\n'
        texts.append(text)
    return texts


class Servers:
    """Running nats-servers, alone or three in a chain, which end with the context."""

    def __init__(self, count):
        self.count, self.children = count, []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix=common.PREFIX)
        try:
            self.start(Path(self.folder.name))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()
        self.folder.cleanup()

    def start(self, folder):
        if self.count > 1:
            common.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                       "-days", "2", "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1",
                       "-keyout", folder / "key.pem", "-out", folder / "cert.pem")  # fmt: skip
        self.ports = [(free_port(), free_port()) for _ in range(self.count)]
        for at, text in enumerate(configurations(self.count, folder, self.ports)):
            (folder / f"{at}.conf").write_text(text)
            with open(folder / f"{at}.log", "wb") as log:
                words = ["setpriv", "--pdeathsig", "KILL", "nats-server", "-c", folder / f"{at}.conf"]
                self.children.append(
                    subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
                )
            deadline = time.monotonic() + LISTEN_MAX_S
            while not self.listens(at):
                if self.children[at].poll() is not None or time.monotonic() > deadline:
                    words = (folder / f"{at}.log").read_text(errors="replace").splitlines() or ["no word"]
                    raise Failure(f"nats-server does not start: {words[-1]}")
                time.sleep(0.02)
        # Leaf nodes connect to each other.
        time.sleep(SETTLE_S)

    def listens(self, at):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[at][0]), timeout=1):
            return True
        return False

    def address(self, at):
        return f"nats://127.0.0.1:{self.ports[at][0]}"

    def cpu_s(self):
        ticks = 0
        for child in self.children:
            fields = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def per_second(text, end):
    """Messages of a second that `nats bench pub` or `sub` has counted, all clients together."""
    found = re.search(rf"NATS Core NATS {end}(?: aggregated)? stats: ([\d,]+) msgs/sec", text)
    if found is None:
        raise Failure(f"nats bench {end} gives no rate: {(text.strip().splitlines() or ['no word'])[-1]}")
    return float(found[1].replace(",", ""))


def bench(servers, case, pace):
    """One run of `nats bench`. Returns the rates of the publisher and of all subscribers, 0 for the second if messages
    are lost, and the number of deliveries."""
    messages = min(case.messages, round(pace * PACED_S)) if pace else case.messages
    common_words = ["--msgs", str(messages), "--size", str(case.bytes), "--no-progress"]
    words = ["nats", "bench", "sub", SUBJECT, "-s", servers.address(-1), "--clients", str(case.subscribers)]
    with subprocess.Popen(words + common_words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as subscribers:  # fmt: skip
        try:
            time.sleep(SETTLE_S)
            words = ["nats", "bench", "pub", SUBJECT, "-s", servers.address(0)] + common_words
            words += ["--throughput", str(round(pace))] if pace else []
            said = nats(words)
            try:
                took = subscribers.communicate(timeout=SILENCE_S)[0]
            except subprocess.TimeoutExpired:
                return per_second(said, "publisher"), 0.0, 0
        finally:
            subscribers.kill()
    return per_second(said, "publisher"), per_second(took, "subscriber"), messages * case.subscribers


def nats(words):
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_MAX_S)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{' '.join(words[:3])} takes more than {RUN_MAX_S} s") from error
    if done.returncode != 0:
        raise Failure(f"{' '.join(words[:3])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout + done.stderr


def greatest(run):
    """Greatest rate of all subscribers at which nothing is lost. `run` takes the pace of the publisher, or `None`."""
    published, delivered = run(None)
    pace = FIRST_PACE * published
    for _ in range(PACES_MAX):
        if delivered:
            return delivered
        _, delivered = run(pace)
        pace *= SLOWER
    raise Failure("NATS loses messages at every pace")


DURATION = re.compile(r"([\d.]+)(ns|µs|us|ms|s)")
UNITS_US = {"ns": 1e-3, "µs": 1, "us": 1, "ms": 1e3, "s": 1e6}


def percentiles(text):
    """Median and 99th percentile in microseconds of what `nats latency` says."""
    values = []
    for name in ("50", "99"):
        found = re.search(rf"\s{name}:\s+{DURATION.pattern}", text)
        if found is None:
            raise Failure(f"nats latency gives no percentiles: {(text.strip().splitlines() or ['no word'])[-1]}")
        values.append(float(found[1]) * UNITS_US[found[2]])
    return values


def theirs(setup, figures):
    with Servers(SETUPS[setup]) as servers:
        for case in CASES:

            def run(pace, case=case):
                before = servers.cpu_s()
                published, delivered, deliveries = bench(servers, case, pace)
                if delivered:
                    figures.cpu_s[case.id] = (servers.cpu_s() - before) / (deliveries / 1e6)
                return published, delivered

            figures.rate[case.id] = greatest(run)
        half = figures.rate[TIMED.id] / 2
        for name, rate in (("low", LOW_RATE), ("half", half)):
            said = nats(["nats", "latency", "-s", servers.address(0), "--server-b", servers.address(-1), "--size",
                         str(TIMED.bytes), "--rate", str(round(rate)), "--duration", f"{TIMED_S}s"])  # fmt: skip
            figures.latency_us[f"{name}-p50"], figures.latency_us[f"{name}-p99"] = percentiles(said)


# faircast.


def ours(faircast, setup, figures):
    for size in dict.fromkeys(case.size for case in CASES):
        # A row that misses its own bounds is judged by that command, not here.
        words = [faircast, "bench", "overlay", "--live", "--only", f"{setup}.{size}", "--json"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        try:
            rows = {row["id"]: row["ours"] for row in json.loads(done.stdout)["rows"]}
        except (ValueError, KeyError) as error:
            raise Failure(f"faircast bench overlay: {done.stderr.strip() or 'no figures'}") from error
        for case in (one for one in CASES if one.size == size):
            row = f"{setup}.{case.id}"
            if rows[f"{row}.whole"] < 1:
                raise Failure(f"faircast bench overlay: {row}: messages are lost")
            figures.rate[case.id], figures.cpu_s[case.id] = rows[f"{row}.rate"], rows[f"{row}.cpu"]
            if case is TIMED:
                for name in ("low-p50", "low-p99", "half-p50", "half-p99"):
                    figures.latency_us[name] = rows[f"{row}.{name}"]


# Verdicts.


def judge(setup, own, others):
    """Rows of a setup: `own` and `others` have figures of each round."""
    rows = []

    def add(identity, title, value, **bounds):
        ratios = [value(a) / value(b) for a, b in zip(own, others)]
        rows.append(common.row(f"{setup}.{identity}", title, "ratio", ratios, **bounds))

    for case in CASES:
        add(f"{case.id}.rate", "deliveries of a second / NATS", lambda it, case=case: it.rate[case.id], low=1)
        add(f"{case.id}.cpu", "CPU of the servers for a delivery / NATS", lambda it, case=case: it.cpu_s[case.id],
            measured_only=True)  # fmt: skip
    titles = {"low": f"at {LOW_RATE} messages a second", "half": "at half the own greatest rate"}
    for name in others[0].latency_us:
        load, part = name.split("-")
        title = f"{'median' if part == 'p50' else '99th percentile'} of latency {titles[load]} / NATS"
        # At high rates `nats latency` sends bursts: it sleeps after each message, ever less, until the rate is reached.
        bounds = {"high": 1} if load == "low" else {"measured_only": True}
        add(f"{TIMED.id}.{name}", title, lambda it, name=name: it.latency_us[name], **bounds)
    return rows


def figures_table(setup, own, others):
    lines = [f"{setup}: deliveries/s of faircast, of NATS, by round"]
    for case in CASES:
        pairs = (f"{common.number(a.rate[case.id])} {common.number(b.rate[case.id])}" for a, b in zip(own, others))
        lines.append(f"  {case.id:8}{', '.join(pairs)}")
    return "\n".join(lines)


def parse(arguments):
    examples = "python3 compare/groups.py --rounds 1 --only one"
    parser = common.parser(f"{TITLE} About two minutes a round; needs no root.", examples, needs_root=False)
    parser.add_argument("--only", choices=SETUPS, help="only one server, or only the chain of three")
    parser.add_argument("--rounds", type=common.from_one, default=3, metavar="N", help="rounds (default: 3)")
    return parser.parse_args(arguments)


def work():
    args = parse(None)
    faircast = common.find_faircast(args.faircast)
    for program, source in (("nats-server", SERVER), ("nats", TOOL)):
        common.need_installed(program, source, "go install")
    rows, figures = [], {}
    for setup in [args.only] if args.only else SETUPS:
        own, others = [], []
        for number in range(args.rounds):
            note(f"{setup}: round {number + 1} of {args.rounds}")
            own.append(Figures())
            others.append(Figures())
            ours(faircast, setup, own[-1])
            theirs(setup, others[-1])
        rows += judge(setup, own, others)
        figures[setup] = {"faircast": [vars(it) for it in own], "nats": [vars(it) for it in others]}
        if not args.json:
            print(figures_table(setup, own, others))
    if args.json:
        print(common.document({"suite": "groups", "rows": rows, "figures": figures}))
    else:
        print(common.verdict_table(rows))
    return all(row["holds"] for row in rows)


if __name__ == "__main__":
    sys.exit(common.main(work))
