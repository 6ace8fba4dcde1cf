"""Shared code of the comparisons: namespaces, programs in them, other programs, files, verdicts, command lines."""

import argparse
import contextlib
import ctypes
import json
import math
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import textwrap
import time
from pathlib import Path

if sys.version_info < (3, 11):
    sys.exit("the comparisons need Python 3.11 or later")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
INTEROP = ROOT / "tests/interop"
ENDS = HERE / "ends.py"
# Name of every namespace and folder of a comparison: this prefix, the number of the process, its part.
PREFIX = "fcc-"
NAMESPACES = Path("/run/netns")
INTERFACE = "e0"
# Time that a killed program has to go, in seconds.
LAST_WAIT_MAX_S = 5.0
COLUMNS = 118


class Failure(Exception):
    """Work that failed: exit status 1."""


class Usage(Exception):
    """Arguments or a machine that do not fit: exit status 2."""


class Missing(Failure):
    """A program, or what it is built with, is not installed. The text says what to install."""


# Other programs.

# Sources of ours, with their compiler, their library for pkg-config, flags and Debian's packages.
WRITTEN = {
    "limit": (HERE / "limit.c", "cc", None, [], "gcc"),
    "norm": (INTEROP / "norm.cpp", "c++", "norm", ["-lpthread"], "libnorm-dev pkg-config g++"),
    "libpgm": (INTEROP / "libpgm.c", "cc", "openpgm-5.3", [], "libpgm-dev pkg-config gcc"),
    "zeromq": (INTEROP / "zeromq.c", "cc", "libzmq", [], "libzmq3-dev pkg-config gcc"),
}


def need_installed(program, package, install="apt-get install"):
    if shutil.which(program) is None:
        raise Missing(f"{program} is not installed: {install} {package}")


def compile_written(name, folder):
    """Compiles a program of ours, most of them on the library of another, into a folder, once."""
    source, compiler, library, flags, packages = WRITTEN[name]
    if (folder / name).exists():
        return
    install = f"apt-get install {packages}"
    try:
        if library:
            found = subprocess.run(["pkg-config", "--cflags", "--libs", library], capture_output=True, text=True)
            if found.returncode != 0:
                raise Missing(f"{library} is not installed: {install}")
            flags = found.stdout.split() + flags
        words = [compiler, "-O2", "-w", "-o", folder / name, source, *flags]
        built = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Missing(f"{error.filename} is not installed: {install}") from error
    if built.returncode != 0:
        raise Failure(f"{name} does not compile: {(built.stderr.splitlines() or ['?'])[0]}")


def command_words(line, value):
    """Splits a command line at spaces. `value` gives the value of `{name}`, or a list of words for it.

    A word that is a name alone becomes all words of its value, of which there may be none.
    """
    words = []
    for word in line.split():
        name = re.fullmatch(r"\{(\w+)\}", word)
        got = value(name[1]) if name else re.sub(r"\{(\w+)\}", lambda found: str(value(found[1])), word)
        words += [str(one) for one in got] if isinstance(got, list) else [str(got)]
    return words


# Namespaces.


def run(*words):
    words = [str(word) for word in words]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Failure(f"{words[0]} is not installed: apt-get install iproute2 ethtool util-linux") from error
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def ip(line):
    return run("ip", *line.split())


def need_root():
    if os.geteuid() != 0:
        raise Usage("network namespaces need root: run the same command with sudo")


def is_leftover(name):
    """True if `name` belongs to a comparison whose process has ended."""
    found = re.match(PREFIX + r"(\d+)-", name)
    return found is not None and not Path("/proc", found[1]).exists()


def remove_leftovers():
    """Removes namespaces and files in memory of comparisons that were killed."""
    for entry in NAMESPACES.iterdir() if NAMESPACES.is_dir() else ():
        if is_leftover(entry.name):
            subprocess.run(["ip", "netns", "del", entry.name], stderr=subprocess.DEVNULL)
    for entry in memory_parent().iterdir():
        if is_leftover(entry.name):
            subprocess.run(["umount", entry], stderr=subprocess.DEVNULL)
            shutil.rmtree(entry, ignore_errors=True)


class Namespaces:
    """Named network namespaces that vanish with the context."""

    def __init__(self, name):
        self.prefix, self.names = f"{PREFIX}{os.getpid()}-{name}-", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    def add(self, part):
        name = self.prefix + part
        self.names.append(name)
        ip(f"netns add {name}")
        ip(f"-n {name} link set lo up")
        return name


def enter(namespace):
    """Moves this thread into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(NAMESPACES / namespace) as file:
        if libc.setns(file.fileno(), 0x4000_0000) != 0:
            raise Failure(f"{namespace}: {os.strerror(ctypes.get_errno())}")


# Programs in namespaces.


class Program:
    """A program on a host, its log, and the CPU time of this program alone.

    `done` is the file that appears when the program has done its work, if the program does not end then. A
    program dies with this process, so that nothing outlives a comparison.
    """

    def __init__(self, namespace, words, log, done=None):
        self.log, self.done_file = log, done
        self.done_at = self.ended_well = None
        self.cpu_s = 0.0
        # A session of its own: Ctrl-C is for the comparison, which then ends its programs in order.
        begin = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={NAMESPACES / namespace}"]
        # UFTP stands still while it looks up names of addresses, which no server here knows.
        environment = {**os.environ, "RES_OPTIONS": "timeout:1 attempts:1"}
        with open(log, "wb") as out:
            # Standard input stays open: the programs on libraries of others run until it ends.
            self.child = subprocess.Popen(
                begin + words, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, start_new_session=True
            )

    def poll(self):
        """Notes whether the program is done with its work, and whether it has ended."""
        if self.ended_well is None:
            if self.done_at is None and self.done_file is not None and self.done_file.exists():
                self.done_at = time.monotonic()
            self._reap(os.WNOHANG)

    def _reap(self, options):
        number, status, usage = os.wait4(self.child.pid, options)
        if number:
            self.child.returncode = os.waitstatus_to_exitcode(status)
            self.ended_well = self.child.returncode == 0
            self.cpu_s = usage.ru_utime + usage.ru_stime
            if self.ended_well and self.done_at is None:
                self.done_at = time.monotonic()

    def end(self, wait_s=0.0):
        """Ends the program, after it has had some time to end by itself."""
        deadline = time.monotonic() + wait_s
        self.poll()
        while self.ended_well is None and time.monotonic() < deadline:
            time.sleep(0.003)
            self.poll()
        if self.ended_well is None:
            self.child.kill()
            deadline = time.monotonic() + LAST_WAIT_MAX_S
            while self.ended_well is None and time.monotonic() < deadline:
                time.sleep(0.003)
                self._reap(os.WNOHANG)
        self.child.stdin.close()

    def last_words(self):
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "no word")


# Files.


def memory_parent():
    return Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")


@contextlib.contextmanager
def folder_in_memory():
    """A folder in memory, in pages of 2 MiB where the kernel has them."""
    folder = memory_parent() / f"{PREFIX}{os.getpid()}-files"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "huge=always,size=100%", "tmpfs", folder]
    mounted = subprocess.run(mount, stderr=subprocess.DEVNULL).returncode == 0
    try:
        yield folder
    finally:
        if mounted:
            # Lazily: a program that was just killed may use the folder for a moment.
            subprocess.run(["umount", "--lazy", folder], stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def make_content(path, length):
    """Writes a file that does not compress, always of the same bytes."""
    source = random.Random("faircast compare")
    with open(path, "wb") as file:
        for at in range(0, length, 1 << 20):
            file.write(source.randbytes(min(1 << 20, length - at)))


def same_bytes(one, other):
    try:
        with open(one, "rb") as first, open(other, "rb") as second:
            while (block := first.read(1 << 20)) == second.read(1 << 20):
                if not block:
                    return True
    except OSError:
        pass
    return False


# Figures and verdicts.


def spread(values):
    """Returns the least, the median and the greatest value; `None` without values."""
    values = list(values)
    return (min(values), statistics.median(values), max(values)) if values else None


def row(identity, title, unit, values, low=None, high=None, below=None, reason="", **more):
    """A verdict: the median of `values` must lie from `low` to `high`, or below `below`."""
    least, ours, most = spread(values) or (math.nan,) * 3
    holds = (low is None or ours >= low) and (high is None or ours <= high) and (below is None or ours < below)
    bounds = {"accept_low": low, "accept_high": high if below is None else below}
    return {
        "id": identity, "title": title, "unit": unit, "ours": ours, "low": least, "high": most, "per_round": values,
        **bounds, "holds": holds, "measured_only": False, "explained": None, "reason": reason, **more,
    }  # fmt: skip


def number(value):
    return "–" if value is None or math.isnan(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def accepted(one):
    low, high = one["accept_low"], one["accept_high"]
    if low is not None and high is not None:
        return f"{number(low)}–{number(high)}"
    return f"≥ {number(low)}" if low is not None else f"< {number(high)}" if high is not None else "–"


def verdict(one):
    return "not judged" if one["measured_only"] else "holds" if one["holds"] else "MISSES"


def verdict_table(rows):
    head = ("row", "title", "unit", "ours", "spread", "accepted", "verdict")
    if not rows:
        return ""
    lines = [head]
    for one in rows:
        span = f"{number(one['low'])}–{number(one['high'])}" if len(one["per_round"]) > 1 else "–"
        lines.append((one["id"], one["title"], one["unit"], number(one["ours"]), span, accepted(one), verdict(one)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = [" ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    remarks = [f"  {one['id']}: {one['explained']}" for one in rows if one["explained"]]
    return "\n".join(text + [line for remark in remarks for line in textwrap.wrap(remark, COLUMNS)])


def document(value):
    """One JSON document; a number that is none becomes null."""

    def plain(value):
        match value:
            case dict():
                return {key: plain(one) for key, one in value.items()}
            case list() | tuple():
                return [plain(one) for one in value]
            case float() if not math.isfinite(value):
                return None
        return value

    return json.dumps(plain(value), indent=2, ensure_ascii=False)


# Command lines.


def size(text):
    """Bytes of a size such as 256MB."""
    found = re.fullmatch(r"(\d+) ?(B|kB|MB|GB)?", text)
    length = int(found[1]) * {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}[found[2] or "B"] if found else 0
    if not 10**6 <= length <= 10**12:
        raise argparse.ArgumentTypeError(f"{text}: expected 1MB to 1000GB, such as 256MB")
    return length


def from_one(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1 on")
    return int(text)


def parser(description, examples, needs_root=True):
    made = argparse.ArgumentParser(
        description=description,
        epilog=f"examples:\n{textwrap.indent(examples, '  ')}\nexit status: 0 every judged row holds, 1 a row misses "
        f"or the work failed, 2 wrong\narguments or no {'root' if needs_root else 'faircast'}, 130 interrupted",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--faircast", metavar="PATH",
        help="faircast to compare (default: target/release/faircast of this repository, else faircast of PATH)",
    )  # fmt: skip
    if needs_root:
        made.add_argument("--only", metavar="TEXT", default="", help="only what has this text in its id")
        made.add_argument("--list", action="store_true", help="list what can be compared, and end")
    made.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    return made


def find_faircast(given):
    built = ROOT / "target/release/faircast"
    found = shutil.which(given) if given else str(built) if built.exists() else shutil.which("faircast")
    if found is None:
        what = f"{given}: no such program" if given else "no faircast found"
        raise Usage(f"{what}: cargo build --release -p faircast-cli, or --faircast PATH")
    return str(Path(found).resolve())


def note(text):
    print(text, file=sys.stderr, flush=True)


def main(work):
    """Calls `work`, which returns whether all rows hold; gives the exit status."""

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(*_):
        # Removing namespaces must not be interrupted.
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    for one in signals:
        signal.signal(one, stop)
    name = Path(sys.argv[0]).name
    try:
        return 0 if work() else 1
    except Usage as error:
        note(f"{name}: {error}")
        return 2
    except (Failure, OSError) as error:
        note(f"{name}: {error}")
        return 1
    except KeyboardInterrupt:
        note(f"{name}: interrupted; there is no verdict")
        return 130
