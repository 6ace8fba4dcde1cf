"""Tests of the comparisons that need neither root nor other programs: python3 compare/test_compare.py."""

import argparse
import contextlib
import io
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
from pathlib import Path

import beside
import common
import ends
import groups
import speed
import wire


def quietly(call, *arguments):
    """Calls something; returns its result, and what went to standard error."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        return call(*arguments), said.getvalue()


class CommandLines(unittest.TestCase):
    def test_names_become_words_and_parts_of_words(self):
        values = {"many": ["a b", "c"], "none": [], "port": 7}
        words = common.command_words("run {many} --at x:{port} {none} end", values.__getitem__)
        self.assertEqual(words, ["run", "a b", "c", "--at", "x:7", "end"])

    def test_every_command_line_has_its_values(self):
        transports, _ = wire.load()
        network = types.SimpleNamespace(receivers=range(2, 6))
        sitting = wire.Sitting(network, Path("/m"), 10, "/bin/faircast", ["--scheme", "tfmcc"])
        for one in transports:
            for host in (1, 3):
                words = wire.words(one.program["send" if host == 1 else "receive"], one, sitting, host)
                self.assertFalse([word for word in words if "{" in word], one.id)
        of = {one.id: one for one in transports}
        send = wire.words(of["faircast-key"].program["send"], of["faircast-key"], sitting, 1)
        self.assertEqual(send[:3], ["/bin/faircast", "send", "/m/content"])
        self.assertEqual(send[-4:], ["--scheme", "tfmcc", "--key", "/m/tools/key"])
        receive = wire.words(of["uftp-600"].program["receive"], of["uftp-600"], sitting, 3)
        self.assertIn("0x00000003", receive)
        self.assertIn("600000", wire.words(of["uftp-600"].program["send"], of["uftp-600"], sitting, 1))

    def test_every_program_is_known(self):
        transports, goals = wire.load()
        known = {one.id for one in transports}
        self.assertEqual(len(known), len(transports))
        for one in transports:
            self.assertIn(one.over, wire.KINDS)
            self.assertIn(one.program.get("compile", "norm"), common.WRITTEN)
        for source, *_ in common.WRITTEN.values():
            self.assertTrue(source.exists(), source)
        for goal in goals:
            self.assertIn(goal["ours"], known)
            self.assertIn(goal.get("theirs", goal["ours"]), known)
            self.assertNotEqual("theirs" in goal, "best" in goal, goal["id"])
            self.assertNotEqual("at_least" in goal, "below" in goal, goal["id"])
            self.assertIn(goal["value"], wire.VALUES)

    def test_sizes_have_units_and_limits(self):
        self.assertEqual(
            [common.size(text) for text in ("256MB", "1 GB", "5000000")], [256 * 10**6, 10**9, 5 * 10**6]
        )
        for text in ("1TB", "10", "MB", "-5MB", "2000GB"):
            with self.assertRaises(argparse.ArgumentTypeError, msg=text):
                common.size(text)

    def test_mistakes_end_with_status_2_and_say_what_is_allowed(self):
        for arguments, want in (
            ("wire.py --only nosuch", "there are limit, "),
            ("wire.py --size 1TB", "expected 1MB to 1000GB"),
            ("wire.py --rounds 0", "whole number from 1"),
            ("speed.py --rounds x", "whole number from 1"),
            ("speed.py --faircast /nosuch", "/nosuch: no such program"),
            ("groups.py --only nosuch", "choose from 'one', 'chain'"),
            ("beside.py --only nosuch", "there are choice.faircast, "),
        ):
            script, *words = arguments.split()
            done = subprocess.run([sys.executable, common.HERE / script, *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(want, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_help_names_units_and_exit_statuses(self):
        for script in (wire, beside, groups, speed):
            with contextlib.redirect_stdout(io.StringIO()) as out, self.assertRaises(SystemExit):
                script.parse(["--help"])
            self.assertIn("exit status: 0 every judged row holds", out.getvalue())


class Machine(unittest.TestCase):
    def test_absent_programs_say_what_to_install(self):
        with self.assertRaisesRegex(common.Missing, "nosuch-program is not installed: apt-get install its-package"):
            common.need_installed("nosuch-program", "its-package")
        one = wire.Transport("x", "X", "flow", {"installed": ["nosuch-program", "its-package"]})
        _, said = quietly(wire.prepare, one, Path("/"), "faircast")
        self.assertIn("x is skipped: nosuch-program is not installed", said)
        self.assertIn("x                skipped: nosuch-program", wire.transport_table([one]))

    def test_programs_that_do_not_compile_are_a_failure_and_not_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "broken.c")
            source.write_text("int main(void) { return }\n")
            common.WRITTEN["broken"] = (source, "cc", None, [], "")
            self.addCleanup(common.WRITTEN.pop, "broken")
            with self.assertRaisesRegex(common.Failure, "broken does not compile") as caught:
                common.compile_written("broken", Path(folder))
            self.assertNotIsInstance(caught.exception, common.Missing)

    def test_without_root_the_message_says_what_to_do(self):
        with unittest.mock.patch("os.geteuid", return_value=1000):
            status, said = quietly(common.main, common.need_root)
        self.assertEqual(status, 2)
        self.assertIn("need root: run the same command with sudo", said)

    def test_leftovers_are_those_of_processes_that_have_ended(self):
        # No process has a number beyond 2^22 on Linux.
        self.assertTrue(common.is_leftover("fcc-4999999-fast-h1"))
        for name in (f"fcc-{os.getpid()}-fast-h1", "fcc-x-h1", "fcw-4999999-h1"):
            self.assertFalse(common.is_leftover(name), name)

    def test_bytes_of_an_interface_are_read(self):
        table = "Inter-| Receive\n face |bytes\n   b1: 123 4 0\n  b11:99 1 0\n"
        self.assertEqual(wire.received_bytes(table, "b1"), 123)
        self.assertEqual(wire.received_bytes(table, "b11"), 99)
        with self.assertRaises(common.Failure):
            wire.received_bytes(table, "b2")

    def test_content_repeats_and_a_changed_copy_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            one, other = Path(folder, "one"), Path(folder, "other")
            for file in (one, other):
                common.make_content(file, (1 << 20) + 5)
            self.assertEqual(one.stat().st_size, (1 << 20) + 5)
            self.assertTrue(common.same_bytes(one, other))
            with open(other, "r+b") as file:
                file.seek(1 << 20)
                file.write(b"?")
            self.assertFalse(common.same_bytes(one, other))
            self.assertFalse(common.same_bytes(one, Path(folder, "none")))

    def test_ballast_makes_room_as_copies_grow(self):
        with tempfile.TemporaryDirectory() as folder:
            ballast = wire.Ballast(Path(folder), 4 << 20, 2)
            for gone, held in ((0, 8), (3 << 20, 2), (9 << 20, 0)):
                ballast.gone(gone)
                self.assertEqual(ballast.path.stat().st_size, held << 20)

    def test_statuses(self):
        def fail(error):
            raise error

        for error, want in (
            (common.Usage("x"), 2),
            (common.Failure("x"), 1),
            (OSError("x"), 1),
            (KeyboardInterrupt(), 130),
        ):
            self.assertEqual(quietly(common.main, lambda error=error: fail(error))[0], want)
        self.assertEqual([common.main(lambda: True), common.main(lambda: False)], [0, 1])


class Groups(unittest.TestCase):
    def test_rates_and_latencies_are_read_from_what_nats_says(self):
        text = """
          [1] 116,335 msgs/sec ~ 114 MiB/sec (10,000 msgs)
         NATS Core NATS subscriber aggregated stats: 461,697 msgs/sec ~ 451 MiB/sec
         NATS Core NATS publisher stats: 560,399 msgs/sec ~ 547 MiB/sec ~ min: 0.06us ~ P50: 0.07us"""
        self.assertEqual(groups.per_second(text, "subscriber"), 461_697)
        self.assertEqual(groups.per_second(text, "publisher"), 560_399)
        self.assertEqual(groups.percentiles("10: 85µs\n 50:   138.5µs\n 99:   1.25ms\n 99.9: 2s\n"), [138.5, 1250])
        for call in (lambda: groups.per_second("refused\n", "publisher"), lambda: groups.percentiles("refused\n")):
            with self.assertRaisesRegex(common.Failure, "refused"):
                call()

    def test_a_publisher_is_slowed_until_nothing_is_lost(self):
        asked = []

        def run(pace):
            asked.append(pace)
            return 100.0, 55.0 if (pace or 100) < 60 else 0.0

        self.assertEqual(groups.greatest(run), 55.0)
        self.assertEqual([round(pace or 0) for pace in asked], [0, 70, 62, 54])
        with self.assertRaisesRegex(common.Failure, "every pace"):
            groups.greatest(lambda _: (100.0, 0.0))

    def test_a_chain_has_encrypted_links_from_each_server_to_the_one_before(self):
        one, *_ = groups.configurations(1, "/f", [(1, 2)])
        self.assertEqual(one, 'listen: "127.0.0.1:1"\n')
        first, second, third = groups.configurations(3, "/f", [(1, 2), (3, 4), (5, 6)])
        self.assertNotIn("remotes", first)
        for text, upstream in ((second, 2), (third, 4)):
            self.assertIn(f'url: "tls://127.0.0.1:{upstream}", compression: off, tls {{ ca_file: "/f/cert.pem"', text)

    def test_ratios_are_of_one_round_and_their_median_is_judged(self):
        def figures(rate, latency):
            cases = dict.fromkeys((case.id for case in groups.CASES), rate)
            return groups.Figures(cases, cases, {"low-p50": latency, "half-p99": latency})

        rows = groups.judge("one", [figures(3.0, 9.0)] * 3, [figures(rate, 8.0) for rate in (1.0, 2.0, 4.0)])
        of = {row["id"]: row for row in rows}
        self.assertEqual(of["one.16k.1.rate"]["per_round"], [3.0, 1.5, 0.75])
        self.assertEqual((of["one.16k.1.rate"]["ours"], of["one.16k.1.rate"]["holds"]), (1.5, True))
        self.assertFalse(of["one.1k.1.low-p50"]["holds"])
        self.assertTrue(of["one.1k.1.half-p99"]["measured_only"])
        self.assertTrue(of["one.1k.16.cpu"]["measured_only"])


class Copies(unittest.TestCase):
    def test_every_receiver_gets_its_copy_over_tcp(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "file")
            common.make_content(file, 300_000)
            with ends.socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            copies = [Path(folder, str(number)) for number in range(3)]
            words = [["copy-receive", "127.0.0.1", str(port), str(copy)] for copy in copies]
            words.append(["copy-send", "127.0.0.1", str(port), str(file), "3"])
            threads = [threading.Thread(target=ends.main, args=(line,)) for line in words]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            for copy in copies:
                self.assertTrue(common.same_bytes(file, copy))


def measured(identity, *speeds, skipped=None):
    one = next(one for one in wire.load()[0] if one.id == identity)
    one.skipped = skipped
    for goodput in speeds:
        cost = 1e3 / goodput if goodput else 0.0
        one.runs.append({
            "complete": goodput > 0, "mbit_per_s": float(goodput), "total_s": 1.0, "cpu_send_s_per_gb": cost,
            "cpu_receive_s_per_gb": cost, "sent_per_useful": 1.0, "trouble": None if goodput else "lost",
        })  # fmt: skip
    return one


def verdicts(*transports, some=False):
    return {row["id"]: row for row in wire.rows(wire.load()[1], transports, some)}


class Verdicts(unittest.TestCase):
    def test_ratios_are_of_rounds_in_which_both_were_whole(self):
        rows = verdicts(measured("faircast", 900, 1000, 0, 1200), measured("norm-cc", 300, 200, 100, 0))
        row = rows["norm-cc"]
        self.assertEqual((row["ours"], row["low"], row["high"], row["per_round"]), (4.0, 3.0, 5.0, [3.0, 5.0]))
        self.assertTrue(row["holds"])
        self.assertEqual(
            (rows["whole"]["ours"], rows["whole"]["holds"], rows["whole"]["explained"]), (0.75, False, "lost")
        )

    def test_the_best_other_program_is_the_fastest_or_the_cheapest_by_the_median(self):
        rows = verdicts(
            measured("faircast", 900), measured("uftp-600", 500), measured("norm-1000", 800), measured("norm-cc", 950)
        )
        self.assertTrue(rows["fixed"]["title"].endswith("norm-1000"))
        self.assertFalse(rows["fixed"]["holds"])
        self.assertTrue(rows["cpu-send"]["title"].endswith("norm-cc"))
        self.assertGreater(rows["cpu-send"]["ours"], 1)
        self.assertFalse(rows["cpu-send"]["holds"])

    def test_bounds_are_those_of_the_goals(self):
        for ours, holds in ((1500, True), (1499, False)):
            rows = verdicts(measured("faircast", ours), measured("uftp-600", 1000))
            self.assertEqual(rows["fixed"]["holds"], holds)
        # As much as another program costs is not less.
        self.assertFalse(verdicts(measured("faircast", 500), measured("udpcast", 500))["cpu-receive"]["holds"])

    def test_a_program_that_is_not_installed_is_no_miss_and_one_that_gave_no_whole_copy_is(self):
        for other, judged, want in (
            (measured("norm-cc", skipped=common.Missing("norm is not installed")), False, "norm is not installed"),
            (measured("norm-cc", skipped=common.Failure("norm does not compile")), True, "norm does not compile"),
            (measured("norm-cc", 0), True, "no round with whole copies"),
        ):
            row = verdicts(measured("faircast", 900), other)["norm-cc"]
            self.assertEqual((row["measured_only"], row["holds"]), (not judged, not judged), want)
            self.assertTrue(math.isnan(row["ours"]))
            self.assertIn(want, row["explained"])

    def test_a_choice_of_transports_has_only_the_rows_that_it_can_have(self):
        rows = verdicts(measured("faircast", 900), measured("limit", 1000), some=True)
        self.assertEqual(list(rows), ["limit", "whole"])
        self.assertEqual(verdicts(measured("udpcast", 400), some=True), {})
        self.assertEqual(common.verdict_table([]), "")

    def test_tables_and_documents_have_what_was_measured(self):
        both = [
            measured("faircast", 800),
            measured("limit", 1000),
            measured("norm-cc", skipped=common.Missing("gone")),
        ]
        rows = wire.rows(wire.load()[1], both, False)
        table = wire.transport_table(both)
        self.assertRegex(table, r"faircast +1/1 +800 +800-800 +80 % +1\.0 +1\.25 +1\.25 +1\.000")
        self.assertRegex(common.verdict_table(rows), r"limit +goodput / bare limit +ratio 0\.8 +– +≥ 0\.7 +holds")
        document = json.loads(wire.to_json(rows, both))
        self.assertEqual(document["transports"][0]["mbit_per_s"], 800)
        self.assertEqual(document["transports"][2]["skipped"], "gone")
        norm = next(row for row in document["rows"] if row["id"] == "norm-cc")
        self.assertEqual((norm["ours"], norm["measured_only"]), (None, True))


class Packets(unittest.TestCase):
    def test_packets_of_uftp_are_told_apart(self):
        def packet(function, rest):
            return bytes([0x50, function]) + bytes(14) + rest

        self.assertTrue(beside.said(beside.uftp_said, packet(9, bytes(30))).data)
        self.assertEqual(beside.said(beside.uftp_said, packet(21, bytes(24))).report, 0)
        entries = bytes([0, 0, 0, 2, 2, 9, 0, 0, 0, 0, 0, 3, 3, 9, 0, 0])
        self.assertEqual(beside.said(beside.uftp_said, packet(20, bytes(16) + entries)), beside.Said(limiting=3))
        self.assertEqual(beside.said(beside.uftp_said, packet(20, bytes(5))), beside.NOTHING)

    def test_packets_of_norm_are_told_apart(self):
        command = bytearray([0x13, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 4]) + bytes(15) + bytes([0, 0, 0, 2, 5, 9, 0, 0])
        self.assertEqual(beside.said(beside.norm_said, command).limiting, 2)
        command[12] = 1
        self.assertEqual(beside.said(beside.norm_said, command), beside.NOTHING)
        ack = bytearray([0x15, 6, 0, 0, 0, 0, 0, 3]) + bytes(16)
        ack[14] = 1
        self.assertEqual(beside.said(beside.norm_said, ack).report, 3)
        ack[14] = 2
        self.assertIsNone(beside.said(beside.norm_said, ack).report)

    def test_packets_of_faircast_are_told_apart(self):
        def packet(kind, body, *options):
            text = b""
            for place, (option, value) in enumerate(options):
                end = 0x80 if place == len(options) - 1 else 0
                text += bytes([option | end, 4 + len(value), 0, 0]) + value
            length = bytes([0, 4]) + struct.pack(">H", 4 + len(text))
            head = struct.pack(">HHBBH6sH", 1, 2, kind, 1 if options else 0, 0, bytes(6), 0)
            return head + bytes(body) + (length + text if options else b"")

        def announce(flags):
            return struct.pack(">B3xIIIIIf", flags, 1, 77, 0, 0, 500, 1e9)

        def report(flags):
            return struct.pack(">B3xIIfI", flags, 1, 2, 1e6, 77)

        for kind, body, option, want in (
            (0x04, 8, (0x15, announce(1)), beside.Said(data=True, limiting=77)),
            (0x05, 8, (0x15, announce(0)), beside.Said(data=True)),
            (0x00, 20, (0x15, announce(1)), beside.Said(limiting=77)),
            (0x0D, 8, (0x16, report(3)), beside.Said(report=77)),
            (0x08, 20, (0x16, report(8)), beside.NOTHING),
        ):
            self.assertEqual(beside.said(beside.faircast_said, packet(kind, body, (0x03, bytes(4)), option)), want)
        self.assertEqual(beside.said(beside.faircast_said, packet(0x04, 8)), beside.Said(data=True))

    def test_noise_says_nothing(self):
        for length in range(80):
            for read in (beside.faircast_said, beside.uftp_said, beside.norm_said):
                self.assertEqual(beside.said(read, b"\xff" * length), beside.NOTHING, (read, length))


class Links(unittest.TestCase):
    def test_a_link_serialises_queues_and_delays(self):
        link = beside.Link(8, 10, 2)
        # 1000 bytes take 1 ms at 8 Mbit/s; one is on the serialiser and two wait.
        times = [link.take(0.0, 1000) for _ in range(4)]
        self.assertEqual([time and round(time * 1e3, 6) for time in times], [11.0, 12.0, 13.0, None])
        self.assertAlmostEqual(link.take(0.0015, 1000), 0.014)

    def test_a_link_loses_its_share_and_the_rate_goes_to_lost_packets_too(self):
        link = beside.Link(8, 0, 10**6, loss=0.25, seed=1)
        out = [link.take(0.0, 1000) for _ in range(4000)]
        self.assertAlmostEqual(sum(time is None for time in out) / 4000, 0.25, delta=0.03)
        self.assertAlmostEqual(max(time for time in out if time), 4.0, delta=0.02)

    def test_packets_take_the_shortest_way_and_go_over_each_link_once(self):
        links, members = beside.unequal()
        field = beside.Field("x", links, members, beside.uftp_said)
        self.assertEqual(field.hosts, ["far", "near", "sender"])
        self.assertEqual(field.hops["near", "far"], "r")
        field._forward(0.0, "sender", "sender", bytes(1000), ["near", "far"])
        self.assertEqual(len(field.waiting), 1)
        at, _, _, node, packet, targets = field.waiting[0]
        field.waiting.clear()
        self.assertEqual((node, sorted(targets)), ("r", ["far", "near"]))
        field._forward(at, "sender", node, packet, targets)
        arrivals = {node: round(at * 1e3, 2) for at, _, _, node, _, _ in field.waiting}
        self.assertEqual(arrivals, {"near": 11.88, "far": 41.88})
        links, _ = beside.shared()
        self.assertEqual(beside.next_hops(links)["ts", "tr"], "r1")

    def test_figures_are_of_the_counted_time(self):
        links, members = beside.unequal()
        field = beside.Field("x", links, members, beside.uftp_said)
        now = beside.time.monotonic()
        for ago, host, number in ((50, "near", 2), (1, "far", 3), (1, "near", 2)):
            field._note(host, now - ago, beside.Said(report=number))
        for ago, number in ((60, 2), (2, 3), (1, 3), (1, 2), (1, 9)):
            field._note("sender", now - ago, beside.Said(limiting=number))
        field.arrived = [
            (now - 30, "sender", "far", 10**6),
            (now - 1, "sender", "far", 1000),
            (now - 1, "near", "far", 7),
        ]
        self.assertEqual((field.reports_of("near", 10), field.reports_of("far", 10)), (1, 1))
        self.assertEqual(field.named("far", 10), (2, 4))
        self.assertEqual(field.bits_per_s("sender", "far", 10), 800)

    def test_verdicts_have_their_bounds(self):
        peer = beside.PEERS[0]
        rows = beside.choice_rows(peer, (3, 4), (10, 20), 1e6)
        self.assertEqual([row["holds"] for row in rows], [False, True, True])
        self.assertEqual([row["ours"] for row in rows], [0.75, 0.5, 1000])
        for tcp, holds in ((1e6, True), (5e6, True), (6e6, False), (0.1e6, False)):
            self.assertEqual(beside.share_rows(peer, tcp, 1e6, 0)[0]["holds"], holds)
        # A sender that names nobody does not hold.
        self.assertFalse(beside.choice_rows(peer, (0, 0), (0, 0), 1e6)[0]["holds"])


class Speed(unittest.TestCase):
    def test_the_case_is_read_and_judged(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "faircast")
            program.write_text(
                """#!/bin/sh\n[ "$*" = "bench speed --speed-case a" ] && echo '{"case":"a","cpu_s":2.5}'\n"""
            )
            program.chmod(0o755)
            self.assertEqual(speed.own_cpu_s(program), 2.5)
        self.assertEqual([speed.judge([theirs], [2.5])["holds"] for theirs in (7.0, 6.9)], [True, False])

    def test_what_is_no_ns_2_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "ns")
            program.write_text("#!/bin/sh\necho simulated, perhaps\n")
            program.chmod(0o755)
            with unittest.mock.patch.dict(os.environ, {"PATH": folder + ":" + os.environ["PATH"]}):
                self.assertRaisesRegex(common.Failure, "it is no ns-2", speed.ns2_cpu_s)
                program.write_text("#!/bin/sh\necho simulated\n")
                self.assertGreater(speed.ns2_cpu_s(), 0)


if __name__ == "__main__":
    unittest.main()
