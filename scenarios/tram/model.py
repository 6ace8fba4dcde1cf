#!/usr/bin/env python3
"""Throughput of TRAM by the model of docs/schemes/tram.md, beside what sweeps of model.toml measured.

    python3 scenarios/tram/model.py out/FOLDER/flows.csv ...
"""

import csv
import math
import statistics
import sys
from collections import defaultdict

PACKET, WIRE = 1400, 1484  # bytes of payload, and of all on the wire
SHARE, STEP_MIN = 0.15, 2500 / PACKET  # increment: of the average; packets/s
T = 5.0  # averaging time, s
TIMER = 3.0  # of acknowledgements, s
REPEAT = 0.1  # least time between two repairs of a packet, s
NEAR = 0.0001  # delay of the source's link, s
MEMBERS = 5  # of a head
PARTS = 7  # into which the range of the rate is cut


def tree(n):
    """Receivers in each level, with all heads full; of 120 as they find each other."""
    if n == 120:
        return [5, 25, 55, 35]
    levels, room = [], MEMBERS
    while n > 0:
        levels.append(min(room, n))
        n, room = n - levels[-1], levels[-1] * MEMBERS
    return levels


class Model:
    """Rates are in packets/s, ages and waits in packets."""

    def __init__(self, n, p, ack_window, multiple, delay):
        self.n, self.p, self.a, self.c = n, p, ack_window, multiple * ack_window
        self.levels = []
        for k, count in enumerate(tree(n), 1):
            # To the receiver, and back by way of its heads; then to its own head and back.
            self.way = 2 * (NEAR + delay) + (k - 1) * 2 * delay
            to_head = NEAR + delay if k == 1 else 2 * delay
            passes = (1 - p) ** (1 if k == 1 else 2)
            unasked = 1 - passes * (1 if k == 1 else 1 - p)  # A head other than the source may lack it itself.
            unrepaired = (1 - unasked) * (1 - passes)
            untold = 1 - (1 - p) ** (2 * k - 1)
            self.levels.append((count, self.way + 2 * to_head, unasked, unrepaired, untold))

    def gaps(self, r):
        """Of each level: gaps per packet, the time part of their wait, and X with its chances."""
        again = self.a * (math.floor(REPEAT * r / self.a) + 1)
        for count, seconds, unasked, unrepaired, untold in self.levels:
            waits = []
            for tries in range(10):
                for lost in range(tries + 1):
                    chance = math.comb(tries, lost) * unasked ** (tries - lost) * unrepaired**lost
                    chance *= 1 - unasked - unrepaired
                    x = (tries - lost) * self.a + lost * again
                    if chance > 1e-9:
                        waits += [(chance * (1 - untold), x), (chance * untold, x + self.a / 2)]
            yield count * self.p, seconds, waits

    def balance(self, r, stall):
        """Time lost and time won, in acknowledgement windows at the open rate."""
        a, c = self.a, self.c
        levels = list(self.gaps(r)) if self.p else []

        def sent(age):
            """Packets that have left in a time in which at the open rate so many would."""
            z = (age - c) / a
            if z <= 0:
                return age
            return c + a * (1 - math.exp(-z) if z < stall else z - stall + 1)

        def excess(y, waits):
            """E[(A + X - y)+], A being uniform between 0 and W_a."""
            total = 0.0
            for chance, x in waits:
                d = x - y
                if d >= 0:
                    total += chance * (d + a / 2)
                elif d > -a:
                    total += chance * (a + d) ** 2 / (2 * a)
            return total

        def told(age, shift):
            """F: the chance that a window's end is told of when it is so old, less `shift`."""
            if sent(age - r * self.way) < shift:
                return 0.0
            blocked = (gap * excess(sent(age - r * s) - shift, waits) for gap, s, waits in levels)
            return math.exp(-sum(blocked))

        won = max(SHARE, STEP_MIN / r) * (1 + told(1.5 * a, 0)) / 2
        z, dz, lost = 0.0, 0.05, 0.0
        while z < 1000:
            middle = z + dz / 2
            age = c + (middle - won) * a
            without_last = told(age, a)
            lost += (1 - math.exp(-middle)) * (told(age, 0) - without_last) * dz
            z += dz
            dz = 0.05 if z < 3 else dz * 1.1
            if z > 1 and without_last > 1 - 1e-6:
                break
        return lost, won

    def rises(self, r):
        """Whether the rate rises where so many packets/s are sent."""
        # The share that the average still has after a stall, and what that is worth in time.
        left = max(1 - TIMER / T, r**-0.5)
        failing = max(level[2] + level[3] for level in self.levels)
        seconds = -T * math.log(left) + failing * T * max(0.0, math.log(r) / 2 + math.log(left))
        seconds *= 1 - 1 / r
        lost, won = self.balance(r, r * seconds / self.a)
        if not self.p or lost == 0:
            return lost < won
        # The rate saws over this range of its logarithm.
        depth = -2 * math.log(left) * max(0.0, 1 - self.balance(r, 1e-9)[0] / lost)
        if depth < 0.05:
            return lost < won
        top = r * depth / (1 - math.exp(-depth))
        lost = won = 0.0
        for part in range(PARTS):
            x = top * math.exp(-depth * (part + 0.5) / PARTS)
            one = self.balance(x, x * seconds / self.a)
            lost, won = lost + one[0], won + one[1]
        return lost < won

    def throughput(self, capacity):
        """In bit/s."""
        pipe = capacity / 8 / WIRE / (1 + min(self.n, MEMBERS) * self.p)
        low, high = 1.01, 1.05 * self.c / self.way
        while high / low > 1.005:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.rises(middle) else (low, middle)
        return min(low, pipe) * PACKET * 8


def main():
    runs = defaultdict(list)
    for file in sys.argv[1:]:
        for row in csv.DictReader(open(file)):
            key = (
                int(row["flow.tram.to"].split("..")[1].split("}")[0]),
                float(row["link.2.loss"]),
                int(row.get("flow.tram.options.ack_window") or 64),
                int(row["flow.tram.options.window_multiple"]),
                float(row["link.2.delay_s"]),
                float(row.get("link.0.rate_bps") or 1e9),
                int(row.get("link.0.queue.packets") or 1000),
            )
            runs[key].append(float(row["throughput_bps"]) / 1e6)
    errors = []
    print("receivers  loss  W_a  M  round trip  capacity  queue  measured (from, to)  predicted  error")
    for key in sorted(runs):
        n, p, a, m, delay, capacity, queue = key
        got = statistics.mean(runs[key])
        want = Model(n, p, a, m, delay).throughput(capacity) / 1e6
        errors.append(abs(want / got - 1))
        print(
            f"{n:9} {p:5.1%} {a:4} {m:2} {delay * 2e3:8.0f} ms {capacity / 1e6:9.1f} {queue:6}"
            f" {got:9.2f} ({min(runs[key]):.2f}, {max(runs[key]):.2f}) {want:9.2f} {want / got - 1:+7.0%}"
        )
    print(f"{len(errors)} points: median error {statistics.median(errors):.0%}, worst {max(errors):.0%}")


if __name__ == "__main__":
    main()
