"""Tests of freeing disk space: deletions are shown first, and everything that is needed stays."""

import os
import pty
import sqlite3
import subprocess
import time
import unittest

from harness import BIN, PATIENCE_S, DaemonTest, digits_spec, wait_until

RECIPE = """  checkpoint_every_steps: 10
"""


class Gc(DaemonTest):
    arguments = ["--cancel-grace-seconds", "3"]

    def run_job(self, name, recipe=RECIPE):
        job = self.daemon.submit(digits_spec(self.folder, name, recipe=recipe))
        self.daemon.cli("wait", job)
        return job

    def steps_of(self, name):
        return [int(c["step"]) for c in self.daemon.json("checkpoint", "list", name).get("checkpoints", [])]

    def folder_of(self, name):
        return self.daemon.state / "jobs" / self.daemon.job(name)["uid"] / "checkpoints"

    def names(self, *arguments):
        items = self.daemon.json("server", "gc", *arguments).get("items", [])
        return {i["name"].rsplit("/", 1)[-1] if i["kind"] == "CHECKPOINTS" else i["name"]: i for i in items}

    def test_a_dry_run_lists_what_a_run_frees(self):
        name = self.run_job("done")
        self.assertEqual(self.daemon.cli("server", "gc", "--dry-run").stdout, "nothing to remove\n", "it ended just now")
        size = sum(f.stat().st_size for f in self.folder_of(name).rglob("*") if f.is_file())
        planned = self.names("--dry-run", "--older-than", "0")
        self.assertEqual(int(planned[name]["freed_bytes"]), size)
        self.assertEqual(len(self.steps_of(name)), 2)
        table = self.daemon.cli("server", "gc", "--dry-run", "--older-than", "0").stdout
        self.assertIn("would be freed", table)
        self.assertIn(name, table)
        done = self.names("--older-than", "0", "--yes")
        self.assertEqual(done[name], planned[name])
        self.assertEqual(self.steps_of(name), [])
        self.assertFalse(self.folder_of(name).exists())
        self.assertEqual(int(self.daemon.job(name).get("checkpoint_step", 0)), 0)
        self.daemon.json("model", "get", name)
        self.daemon.cli("model", "export", name, "--out", self.folder / "exported")
        self.assertIn("SUCCEEDED", self.daemon.cli("explain", name).stdout)
        self.assert_refused(self.daemon.cli("fork", name, "--set", "recipe.epochs=5", check=False), 4, "no checkpoint")
        self.assertNotIn(name, self.names("--dry-run", "--older-than", "0"))

    def test_a_fork_keeps_what_its_parent_loses(self):
        parent = self.run_job("parent")
        fork = self.daemon.cli("fork", parent, "--name", "forked", "--set", "recipe.epochs=2000").stdout.split()[0]
        wait_until(lambda: self.daemon.job(fork)["state"] == "RUNNING", "the fork runs")
        gone = self.names("--older-than", "0", "--yes")
        self.assertIn(parent, gone)
        self.assertNotIn(fork, gone)
        self.daemon.cli("cancel", fork)
        wait_until(lambda: self.daemon.job(fork)["state"] == "CANCELLED", "the fork is cancelled")
        self.assertTrue(self.steps_of(fork), "its own stay")
        self.assertNotIn(fork, self.names("--older-than", "0", "--yes"))
        again = self.daemon.cli("retry", fork).stdout.split()[0]
        wait_until(lambda: self.daemon.job(again)["state"] == "RUNNING", "the retry runs")
        self.daemon.cli("cancel", again)
        wait_until(lambda: self.daemon.job(again)["state"] == "CANCELLED", "the retry is cancelled")
        self.assertIn(fork, self.names("--older-than", "0", "--unsuccessful-jobs", "--yes"))
        self.assertEqual(self.steps_of(fork), [])

    def test_leftovers_are_removed_after_an_hour(self):
        for name in ("jobs/0123456789abcdef", "models/left"):
            (self.daemon.state / name).mkdir()
            (self.daemon.state / name / "file").write_text("x" * 1000)
        then = time.time() - 7200
        old = self.daemon.state / "models/left"
        for path in (old / "file", old):
            os.utime(path, (then, then))
        gone = self.names("--yes")
        self.assertEqual(set(gone), {"models/left"})
        self.assertEqual(int(gone["models/left"]["freed_bytes"]), 1000)
        self.assertFalse(old.exists())
        self.assertTrue((self.daemon.state / "jobs/0123456789abcdef/file").exists(), "it may be a fork's")

    def age(self, name, seconds):
        """Sets the job's end `seconds` back and restarts the daemon."""
        self.daemon.stop()
        with sqlite3.connect(self.daemon.state / "trainyard.db") as store:
            store.execute("UPDATE jobs SET end_time_us = end_time_us - ? WHERE id = ?", (seconds * 1_000_000, name))
        store.close()
        self.daemon.start()

    def test_thinned_events_are_mentioned_wherever_events_are_shown(self):
        name = self.run_job("thinned")
        before = self.daemon.events(name)
        values = self.daemon.job(name)["progress"]["metrics"]
        self.assertNotIn("note:", self.daemon.cli("logs", name).stderr)
        [item] = [i for i in self.daemon.json("server", "gc", "--keep-events", "0", "--dry-run")["items"]
                  if i["kind"] == "EVENTS" and i["name"].endswith("/" + name)]
        self.assertIn("checkpoints and the newest value of each metric are kept", item["reason"])
        self.assertEqual(self.daemon.events(name), before)
        self.daemon.cli("server", "gc", "--keep-events", "0", "--yes")
        after = self.daemon.events(name)
        self.assertEqual([e for e in after if "metrics" not in e],
                         [e for e in before if "state" in e or "checkpoint" in e])
        [metrics] = [e["metrics"]["series"] for e in after if "metrics" in e]
        self.assertTrue(metrics)
        for series in metrics:
            self.assertEqual(series["values"], [values[series["key"]]])
        for command in (["logs", name], ["watch", name], ["explain", name], ["plot", name]):
            shown = self.daemon.cli(*command)
            self.assertIn("note: of the events of thinned, old ones were removed", shown.stderr, command)
        self.assertIn("old ones were removed by the server's rule keep_events", self.daemon.cli("get", name).stdout)
        self.assertTrue(self.daemon.job(name)["events_thinned"])
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.daemon.events(name), after, "after a kill too")
        fork = self.daemon.cli("fork", name, "--name", "of-thinned", "--set", "recipe.epochs=4").stdout.split()[0]
        self.daemon.cli("wait", fork)

    def test_jobs_are_removed_by_rule_and_a_fork_of_one_continues(self):
        parent = self.run_job("ruled")
        fork = self.daemon.cli("fork", parent, "--name", "ruled-fork", "--set", "recipe.epochs=2000").stdout.split()[0]
        wait_until(lambda: self.daemon.job(fork)["state"] == "RUNNING", "the fork runs")
        uid = self.daemon.job(parent)["uid"]
        table = self.daemon.cli("server", "gc", "--keep-jobs", "0", "--dry-run").stdout
        self.assertRegex(table, r"job +ruled .*its model is kept; it cannot be forked afterwards from step \d+")
        self.assertNotIn("ruled-fork", table)
        self.assertEqual(self.daemon.job(parent)["uid"], uid)
        self.age(parent, 7200)
        self.assertEqual(self.daemon.job(parent)["uid"], uid, "by default nothing goes by itself")
        self.daemon.arguments += ["--keep-jobs", "1h"]
        try:
            self.daemon.stop()
            self.daemon.start()
            wait_until(lambda: self.daemon.cli("get", parent, check=False).returncode != 0, "the rule is applied")
        finally:
            del self.daemon.arguments[-2:]
        self.assert_refused(self.daemon.cli("logs", parent, check=False), 4, "there is no job")
        self.assertRegex(self.daemon.log(), rf'event=job_removed job=\S*ruled uid={uid} reason="SUCCEEDED 2 hours ago, its '
                                            r'model is kept; it cannot be forked afterwards from step \d+"')
        self.assertFalse((self.daemon.state / "jobs" / uid).exists())
        self.daemon.json("model", "get", parent)
        self.assertEqual(self.daemon.job(fork)["origin"]["job_uid"], uid)
        wait_until(lambda: self.daemon.job(fork)["state"] == "RUNNING", "the fork goes on from its own checkpoint")
        self.daemon.cli("cancel", fork)
        self.daemon.cli("wait", fork, check=False)

    def test_a_bad_rule_is_refused(self):
        self.assert_refused(self.daemon.cli("server", "gc", "--keep-jobs", "many", check=False), 2, "--keep-jobs",
                            "is not a duration")
        self.assert_refused(self.daemon.cli("server", "gc", "--keep-jobs", "5,6", check=False), 2, "two numbers or two durations")
        self.assert_refused(self.daemon.cli("server", "gc", "--keep-events", "9999d", "--yes", check=False), 2,
                            "keep_events_seconds")

    def asked(self, answer):
        """Runs `server gc --older-than 0` in a pseudoterminal and gives it this answer."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer.encode())
            return subprocess.run([BIN / "trainyard", "server", "gc", "--older-than", "0"], stdin=theirs,
                                  capture_output=True, text=True, timeout=PATIENCE_S,
                                  env=dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}", NO_COLOR="1"))
        finally:
            os.close(ours)
            os.close(theirs)

    def test_it_asks_and_accepts_a_no(self):
        name = self.run_job("asked")
        self.assert_refused(self.daemon.cli("server", "gc", "--older-than", "0", check=False), 2, "--yes")
        no = self.asked("n\n")
        self.assert_refused(no, 2, name, "would be freed", "Remove this permanently? [y/N]", "nothing was removed")
        self.assertTrue(self.steps_of(name))
        yes = self.asked("y\n")
        self.assertEqual(yes.returncode, 0, yes.stderr)
        self.assertIn(" freed\n", yes.stdout)
        self.assertEqual(self.steps_of(name), [])

    def test_jobs_that_end_while_it_asks_are_kept(self):
        named = self.run_job("named")
        ours, theirs = pty.openpty()
        try:
            with subprocess.Popen([BIN / "trainyard", "server", "gc", "--older-than", "0"], stdin=theirs,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}")) as asks:
                shown = b""
                while b"[y/N]" not in shown:
                    part = os.read(asks.stderr.fileno(), 4096)
                    self.assertTrue(part, shown)
                    shown += part
                self.assertIn(named.encode(), shown)
                later = self.run_job("later")
                os.write(ours, b"y\n")
                asks.communicate(timeout=PATIENCE_S)
                self.assertEqual(asks.returncode, 0)
        finally:
            os.close(ours)
            os.close(theirs)
        self.assertEqual(self.steps_of(named), [])
        self.assertTrue(self.steps_of(later), "nobody was asked about it")

    def test_a_job_keeps_every_nth_and_the_best_checkpoint(self):
        name = self.run_job("keeps", recipe="""  validation_split: 0.2
  evaluate_every_steps: 7
  checkpoint_every_steps: 10
  keep_checkpoints: 1
  keep_checkpoints_every_steps: 20
  keep_best: {metric: val/loss, mode: max}
  keep_best_checkpoint: true
""")
        job = self.daemon.job(name)
        last = int(job["plan"]["steps_total"])
        best = 7  # the first evaluation, since the loss falls and "best" is the highest here
        self.assertEqual(sorted(self.steps_of(name)), sorted({best, last} | set(range(20, last + 1, 20))))
        spec = digits_spec(self.folder, "none", recipe=RECIPE + "  keep_checkpoints_every_steps: 25\n")
        self.assert_refused(self.daemon.cli("submit", spec, check=False), 2, "recipe.keep_checkpoints_every_steps",
                            "25 is not a multiple of the 10 steps")


if __name__ == "__main__":
    unittest.main()
