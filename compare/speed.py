#!/usr/bin/env python3
"""Compares the simulator of faircast with ns-2: processor time for the same scenario."""

import json
import os
import subprocess
import sys
import time

import common
from common import Failure, note

TITLE = "How fast is the simulator beside ns-2?"
SCRIPT = common.HERE / "heavy_tcp.tcl"
# Case of `faircast bench speed` that the script describes: 100 TCP SACK flows over 1 Gbit/s, 20 s.
CASE = "a"
# Three fifths of 4.7, which were 26.8 s of ns-2 beside 5.4 to 5.9 s of faircast on one machine.
AT_LEAST = 2.8
# Time after which what is called `ns` is no ns-2, in seconds.
NS2_MAX_S = 120


def ns2_cpu_s():
    """Processor time of ns-2 in seconds. Other programs are called `ns` too: ns-2 says what the script says."""
    common.need_installed("ns", "ns2")
    with subprocess.Popen(["ns", SCRIPT], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as ns:
        deadline = time.monotonic() + NS2_MAX_S
        while (ended := os.wait4(ns.pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        if ended[0]:
            ns.returncode = os.waitstatus_to_exitcode(ended[1])
        else:
            ns.kill()
        said = ns.stdout.read()
    if ns.returncode != 0 or not said.endswith(b"simulated\n"):
        raise Failure(f"ns does not run {SCRIPT.name} to its end in {NS2_MAX_S} s: it is no ns-2, or a broken one")
    return ended[2].ru_utime + ended[2].ru_stime


def own_cpu_s(faircast):
    """Processor time of the case in seconds."""
    return json.loads(common.run(faircast, "bench", "speed", "--speed-case", CASE))["cpu_s"]


def judge(theirs, own):
    title = "processor time of ns-2 / of faircast, 100 TCP flows over 1 Gbit/s for 20 s"
    ratios = [a / b for a, b in zip(theirs, own)]
    return common.row("ns-2", title, "ratio", ratios, AT_LEAST, reason="three fifths of what was measured")


def parse(arguments):
    examples = "python3 compare/speed.py --rounds 3"
    parser = common.parser(f"{TITLE} Half a minute a round; needs no root.", examples, needs_root=False)
    parser.add_argument("--rounds", type=common.from_one, default=1, metavar="N", help="rounds (default: 1)")
    return parser.parse_args(arguments)


def work():
    args = parse(None)
    faircast = common.find_faircast(args.faircast)
    theirs, own = [], []
    for number in range(args.rounds):
        note(f"speed: round {number + 1} of {args.rounds}")
        theirs.append(ns2_cpu_s())
        own.append(own_cpu_s(faircast))
    row = judge(theirs, own)
    if args.json:
        print(common.document({"suite": "speed", "rows": [row], "ns2_cpu_s": theirs, "faircast_cpu_s": own}))
    else:
        print(common.verdict_table([row]))
    return row["holds"]


if __name__ == "__main__":
    sys.exit(common.main(work))
