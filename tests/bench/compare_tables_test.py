"""Tests the tables that compare_pytorch.py creates, and how its processes wait, without PyTorch and
without measuring speed."""

import copy
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from bench_process import StoppedProcess, ask_in_turn
from compare_tables import (BEGIN, END, describe_processor, faults_of, make_readme_table, make_report, replace_readme_table,
                            summarize, three_digits)

CPUINFO = """processor\t: 0
model name\t: AMD EPYC
cpu family\t: 25
model\t\t: 17
stepping\t: 1
flags\t\t: fpu hypervisor avx2

processor\t: 1
model name\t: AMD EPYC
"""


def turn(rate, **more):
    return {"samples_per_second": rate, "steps": 10, "loss": 2.3, "clock_s": 1.0, "own_cpu_s": 2.0, "waiting_cpu_s": 0.0,
            "others_cpu_s": 0.01, "steal_s": 0.0, **more}


def row(isa, rates, precision="fp32"):
    return {"model": "resnet18", "batch": 32, "precision": precision, "isa": isa, "threads": 2, "setting": "2 threads",
            "gflop_per_sample": 0.5, "planned_minus_used_bytes": 0,
            "pairs": [{"ours": turn(a), "theirs": turn(b)} for a, b in rates],
            "trials": {"ours": {"1": 60.0, "2": 100.0},
                       "theirs": [{"setting": "2 threads", "rate": 50.0}, {"setting": "compiled", "error": "no compiler"}]},
            "memory": {"our_bytes": 10 << 20, "arena_bytes": 5 << 20, "their_bytes": 700 << 20, "their_base_bytes": 500 << 20}}


def result():
    return {"run": {"processor": describe_processor(CPUINFO), "cores": 2, "date": "2026-01-02", "torch": "9.9.0+cpu",
                    "seconds": 1.0, "load_before": 0.1, "load_after": 1.9, "facts": {"avx512": {"ours": "A", "theirs": "B"}}},
            "peaks": {"avx512": {"1": 100.0, "2": 200.0}, "avx2": {"1": 50.0, "2": 100.0}},
            "rows": [row("avx512", [(100, 50), (120, 40), (90, 60)]), row("avx2", [(80, 40)]),
                     row("avx512", [(300, 100)], precision="bf16")]}


class Tables(unittest.TestCase):
    def test_a_ratio_is_the_median_of_pairs_and_not_a_ratio_of_medians(self):
        s = summarize(row("avx512", [(100, 50), (120, 40), (90, 60)]), result()["peaks"])
        self.assertEqual((s["ratio"], s["least"], s["most"]), (2.0, 1.5, 3.0))
        self.assertEqual((s["ours"], s["theirs"]), (100, 50))
        self.assertEqual((s["our_share"], s["their_share"]), (100 * 0.5 / 200, 50 * 0.5 / 200))
        self.assertEqual(summarize(row("avx2", [(80, 40)]), result()["peaks"])["our_share"], 80 * 0.5 / 100)

    def test_rates_have_three_digits(self):
        self.assertEqual([three_digits(r) for r in (49321.7, 999.6, 165.4, 37.04, 8.387)],
                         ["49,300", "1,000", "165", "37.0", "8.39"])

    def test_the_processor_has_its_family_and_says_that_it_is_virtual(self):
        self.assertEqual(describe_processor(CPUINFO), "AMD EPYC (family 25 model 17 stepping 1), 2 virtual cores")

    def test_the_readme_has_one_line_per_model_and_precision(self):
        table = make_readme_table(result(), "results/run.md")
        self.assertIn("AMD EPYC (family 25 model 17 stepping 1), 2 virtual cores, AVX-512, PyTorch 9.9.0, 2026-01-02 "
                      "([the run](results/run.md))", table.replace("\n", " "))
        lines = [line for line in table.splitlines() if line.startswith("|")]
        self.assertEqual(len(lines), 2 + 2)
        self.assertEqual(lines[2], "| ResNet-18 at 32 px, 32 | 100 | 50.0 | 2.00 (1.50 to 3.00) | 25 %, 12 % | 10 | 700 "
                                   "| 2.00 (2.00 to 2.00) | 40 %, 20 % |")
        self.assertEqual(lines[3], "| ResNet-18 at 32 px, 32, bf16 | 300 | 100 | 3.00 (3.00 to 3.00) | 75 %, 25 % | 10 | 700 |  |  |")
        self.assertEqual({line.count("|") for line in lines}, {10})

    def test_the_table_in_the_readme_is_replaced_and_nothing_else(self):
        readme = f"# A\n\n{BEGIN}\nold\n{END}\n\nB\n"
        once = replace_readme_table(readme, "| new |")
        self.assertEqual(once, f"# A\n\n{BEGIN}\n| new |\n{END}\n\nB\n")
        self.assertEqual(replace_readme_table(once, "| new |"), once)
        for broken in ("# A\n", readme + BEGIN, f"{END}\n{BEGIN}\n"):
            with self.assertRaisesRegex(ValueError, "once each"):
                replace_readme_table(broken, "| new |")

    def test_every_pair_and_every_trial_is_in_the_report(self):
        report = make_report(result())
        for ratio in ("2.000", "3.000", "1.500"):
            self.assertIn(f"| {ratio} |", report)
        self.assertIn("compiled: does not work (no compiler)", report)
        self.assertIn("0 of 5 have doubts", report)

    def test_a_disturbed_pair_is_named_and_counts(self):
        calm = {"ours": turn(100), "theirs": turn(50)}
        self.assertEqual(faults_of(calm, 2), [])
        for side, change, fault in (("ours", {"waiting_cpu_s": 0.02}, "PyTorch used the CPU while it waited"),
                                    ("theirs", {"waiting_cpu_s": 0.02}, "ours used the CPU while it waited"),
                                    ("ours", {"others_cpu_s": 0.2}, "others used the CPU beside ours"),
                                    ("theirs", {"steal_s": 0.2}, "others used the CPU beside PyTorch"),
                                    ("theirs", {"loss": None}, "the loss of PyTorch was not finite")):
            pair = copy.deepcopy(calm)
            pair[side] |= change
            self.assertEqual(faults_of(pair, 2), [fault])
            disturbed = result()
            disturbed["rows"][0]["pairs"][1] = pair
            self.assertIn("1 of 5 have doubts", make_report(disturbed))
            self.assertIn(fault, make_report(disturbed))
            self.assertEqual(summarize(disturbed["rows"][0], disturbed["peaks"])["ratio"], 2.0)


BUSY = """
import sys, threading, time
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
for line in sys.stdin:
    time.sleep(float(line))
    print('{"answer": 1}', flush=True)
"""


class Waiting(unittest.TestCase):
    def setUp(self):
        self.processes = [StoppedProcess([sys.executable, "-c", BUSY]) for _ in range(2)]
        for process in self.processes:
            self.addCleanup(process.close)
            process.ask("0")

    def test_a_process_that_spins_uses_no_cpu_while_another_has_its_turn(self):
        first, second = self.processes
        facts = ask_in_turn(first, "0.5", second)
        self.assertEqual(facts["answer"], 1)
        self.assertGreaterEqual(facts["clock_s"], 0.5)
        self.assertGreater(facts["own_cpu_s"], 0)
        self.assertLessEqual(facts["waiting_cpu_s"], 0.02)

    def test_cpu_accounting_reports_when_the_waiting_side_ran(self):
        first, second = self.processes
        os.kill(second.process.pid, signal.SIGCONT)
        deadline, used = time.monotonic() + 30, 0
        while used <= 0.02 and time.monotonic() < deadline:
            used = ask_in_turn(first, "0.5", second)["waiting_cpu_s"]
        self.assertGreater(used, 0.02)

    def test_a_stopped_process_ends_with_the_benchmark_that_is_killed(self):
        benchmark = subprocess.Popen(
            [sys.executable, "-c", "import sys, time, bench_process as b\n"
             "p = b.StoppedProcess([sys.executable, '-c', sys.argv[1]]); p.ask('0')\n"
             "print(p.process.pid, flush=True); time.sleep(1000)", BUSY],
            stdout=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parent)
        stopped = pathlib.Path("/proc") / benchmark.stdout.readline().strip()
        self.assertTrue((stopped / "stat").exists())
        benchmark.kill()
        benchmark.communicate()
        deadline = time.monotonic() + 30
        while self.runs(stopped) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(self.runs(stopped))

    @staticmethod
    def runs(process):
        """Returns whether the process exists, stopped or not; a zombie does not count."""
        try:
            return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False


if __name__ == "__main__":
    unittest.main()
