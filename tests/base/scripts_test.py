"""Tests of scripts/lib.sh: failed tests run a second time alone, and busy loops end with the
command that they accompany."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/e2e"))
from harness import is_running, wait_until  # noqa: E402

# This ctest removes the first line of the file `script`, fails the tests named there, and records its arguments.
FAKE_CTEST = """#!/bin/bash
cd {folder}
echo "$*" >>arguments
read -r failing <script; sed -i 1d script
number=0
for name in $failing; do echo "$((++number)):$name"; done >build/Testing/Temporary/failing
if [[ $failing == "no tests" ]]; then echo "ctest is broken" >&2; exit 5; fi
[[ -z $failing ]] || {{ mv build/Testing/Temporary/failing build/Testing/Temporary/LastTestsFailed.log; exit 8; }}
"""


class RunTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "build/Testing/Temporary").mkdir(parents=True)
        (self.folder / "bin").mkdir()
        ctest = self.folder / "bin/ctest"
        ctest.write_text(FAKE_CTEST.format(folder=self.folder))
        ctest.chmod(0o755)

    def run_tests(self, *runs):
        """Runs run_tests. Each of `runs` names the tests that fail in that call of ctest. Returns
        the exit status and the output."""
        (self.folder / "script").write_text("".join(run + "\n" for run in runs))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", '. scripts/lib.sh; run_tests "$1" --preset p -j 9; echo "went on"; report_flaky_tests',
             "test", self.folder / "build"], cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=dict(os.environ, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}"))
        self.calls = (self.folder / "arguments").read_text().splitlines()
        return done.returncode, done.stdout

    def test_passed_tests_are_not_repeated(self):
        # CTest left a list of failures of an earlier run, which must not count for this one.
        (self.folder / "build/Testing/Temporary/LastTestsFailed.log").write_text("1:of_before\n")
        self.assertEqual(self.run_tests(""), (0, "went on\n"))
        self.assertEqual(self.calls, ["--preset p -j 9"])

    def test_a_test_that_passes_the_second_time_is_listed_and_does_not_fail(self):
        status, said = self.run_tests("b_test", "")
        self.assertEqual(status, 0, said)
        self.assertEqual(self.calls[1:], [f"--test-dir {self.folder}/build --output-on-failure --rerun-failed -j 1"])
        self.assertIn("went on", said)
        self.assertEqual(said.count("  b_test\n"), 2, "where it happened, and at the end")
        self.assertTrue(said.endswith("  b_test\n"), said)

    def test_a_test_that_fails_twice_fails_the_run(self):
        status, said = self.run_tests("a_test b_test c_test", "b_test")
        self.assertEqual(status, 1, said)
        self.assertNotIn("went on", said)
        self.assertIn("failed twice: b_test\n", said)
        self.assertIn("2 passed only when run again", said)
        self.assertIn("  a_test\n  c_test\n", said)

    def test_more_than_three_flaky_tests_fail_the_run(self):
        status, said = self.run_tests("a b c", "")
        self.assertEqual(status, 0, said)
        status, said = self.run_tests("a b c d", "")
        self.assertEqual(status, 1, said)
        self.assertNotIn("went on", said)
        self.assertIn("  a\n  b\n  c\n  d\n", said)

    def test_a_ctest_that_runs_nothing_fails_with_its_own_status(self):
        status, said = self.run_tests("no tests")
        self.assertEqual(status, 5, said)
        self.assertEqual(len(self.calls), 1)


class BusyLoops(unittest.TestCase):
    def start(self, command):
        """Starts a script that runs `command` next to three busy loops. Returns the script and the
        PIDs of the loops."""
        script = subprocess.Popen(
            ["bash", "-c", f'. scripts/lib.sh; with_busy_loops 3 {command}'], cwd=SOURCE, stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(script.stdin.close)
        loops = wait_until(lambda: (pids := self.busy(script.pid)) and len(pids) == 3 and pids, "three loops run")
        return script, loops

    @staticmethod
    def busy(session):
        """Returns the PIDs in a session that have used the processor for at least 0.1 s."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split() if entry.name.isdigit() else None
            except OSError:
                continue
            if fields and int(fields[3]) == session and int(fields[11]) + int(fields[12]) >= os.sysconf("SC_CLK_TCK") / 10:
                found.append(int(entry.name))
        return found

    def assert_ended(self, loops):
        wait_until(lambda: not any(map(is_running, loops)), "the loops have ended")

    def test_busy_loops_end_with_the_command_and_return_its_status(self):
        script, loops = self.start("bash -c 'read -r line; exit 3'")
        script.stdin.write(b"go on\n")
        script.stdin.flush()
        self.assertEqual(script.wait(60), 3)
        self.assert_ended(loops)

    def test_busy_loops_end_with_an_interrupted_or_killed_script(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            script, loops = self.start("sleep 1000")
            os.killpg(script.pid, number)
            script.wait(60)
            self.assert_ended(loops)
        script, loops = self.start("sleep 1000")
        script.kill()
        script.wait(60)
        self.assert_ended(loops)
        os.killpg(script.pid, signal.SIGTERM)  # ends the command, which outlives the script


if __name__ == "__main__":
    unittest.main()
