"""Writes tcp_random_losses.txt: what ns-2.35 does with random losses and settings.

usage: ns2_random_losses.py 200 12 > tcp_random_losses.txt
"""

import pathlib
import random
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
RTX_MAX = 60  # cases with more retransmissions than this are left out, for the size of the file

# Our setting, ns-2's, and how often it is tried.
SETTINGS = {
    "precision_reduce=false": ("$tcp set precisionReduce_ false", 0.1),
    "initial_window=4": ("$tcp set windowInit_ 4", 0.1),
    "limited_transmit=false": ("$tcp set singledup_ 0", 0.3),
}


def losses(packets):
    drops = set()
    for _ in range(random.choice([0, 1, 2, 3, 4, 6])):
        at = random.randint(1, packets + 10)
        step = random.choice([1, 1, 2, 3])
        drops |= {at + i * step for i in range(random.choice([1, 1, 2, 3, 5, 8]))}
    if random.random() < 0.03:
        drops.add(0)
    p = random.choice([0, 0, 0.005, 0.02])
    return drops | {i for i in range(1, packets + 20) if random.random() < p}


def ack_losses(packets):
    if random.random() < 0.7:
        return set()
    p = random.choice([0.01, 0.1, 0.3])
    return {i for i in range(1, packets + 20) if random.random() < p}


def case(trace):
    flavour = random.choice(["Reno", "Newreno", "Sack1"])
    delack = random.random() < 0.2
    packets = random.choice([50, 200, 400, 1000])
    window = random.choice([4, 8, 20, 50, 120, 300])
    ssthresh = min(window, random.choice([2, 8, 20, 64, window]))
    # Large enough that the phase of the clock, which ns-2 draws at random, does not matter.
    minrto = 2 if window > 100 else 1
    settings = [key for key, (_, often) in SETTINGS.items() if random.random() < often]
    drops, ackdrops = sorted(losses(packets)), sorted(ack_losses(packets))
    sink = ("/Sack1" if flavour == "Sack1" else "") + ("/DelAck" if delack else "")
    words = [flavour, sink, " ".join(map(str, drops)) or "-", packets, window, ssthresh, minrto]
    words += ["; ".join(SETTINGS[key][0] for key in settings), " ".join(map(str, ackdrops)) or "-"]
    command = ["ns", HERE / "ns2_transfer.tcl", *map(str, words), trace]
    run = subprocess.run(command, capture_output=True, text=True)
    done = re.search(r"DONE (\S+) (\d+) (\d+)", run.stdout)
    if not done:
        return None
    sent, top, rtx, arrivals, acks = 0, -1, [], set(), set()
    for line in open(trace):
        fields = line.split()
        if fields[0] == "r" and fields[3] == "3":
            arrivals.add(round(float(fields[1]) * 1e6))
        if fields[0] == "+" and fields[2] == "3":
            acks.add(round(float(fields[1]) * 1e6))
        if fields[0] == "+" and fields[2] == "0":
            sent += 1
            seq = int(fields[10])
            if seq <= top:
                rtx.append(f"{seq}@{float(fields[1]):.6f}#{sent}")
            top = max(top, seq)
    if len(rtx) > RTX_MAX:
        return None
    # Where a packet comes just when a delayed acknowledgement is due, rounding decides.
    if delack and any(t + 98_700 + d in arrivals for t in arrivals - acks for d in (-1, 0, 1)):
        return None
    return (
        f"flavour={flavour} packets={packets} window={window} ssthresh={ssthresh}"
        f" minrto={minrto} delack={int(delack)} options={','.join(settings)}"
        f" drops={','.join(map(str, drops))} ackdrops={','.join(map(str, ackdrops))}"
        f" finish={float(done[1]):.6f} sent={sent} rexmit={len(rtx)}"
        f" timeouts={done[2]} cuts={done[3]} rtx={','.join(rtx)}"
    )


def main():
    count, seed = map(int, sys.argv[1:])
    random.seed(seed)
    written = 0
    with tempfile.NamedTemporaryFile() as trace:
        while written < count:
            line = case(trace.name)
            if line:
                print(line)
                written += 1


main()
