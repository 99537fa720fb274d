"""Tests of pause, resume, retry and fork: steering a job must not lose a step or a bit."""

import json
import os
import pwd
import signal
import subprocess
import time
import unittest

from harness import BIN, PATIENCE_S, DisturbedTest, digits_spec, is_running, wait_until

MODEL = """  layers:
    - conv: {out_channels: 16, kernel_shape: [3], pads: [1]}
    - batch_normalization: {}
    - relu: {}
    - max_pool: {kernel_shape: [2]}
    - dropout: {ratio: 0.2}
    - gemm: {}"""
RECIPE = """  validation_split: 0.2
  checkpoint_every_steps: 40
  keep_checkpoints: 3
resources: {threads: 1}
"""
EPOCHS = 60


class Steer(DisturbedTest):
    arguments = ["--cancel-grace-seconds", "6", "--heartbeat-timeout-seconds", "3600"]
    network, recipe, epochs = MODEL, RECIPE, EPOCHS

    def test_a_paused_job_frees_its_device_and_loses_no_step(self):
        self.daemon.submit(self.spec("paused"))
        self.wait_for_step("paused", 50)
        self.daemon.submit(self.spec("next-one"))  # waits for the only slot
        self.daemon.cli("pause", "paused")
        paused = self.wait_for_state("paused", "PAUSED")
        self.assertEqual(paused["checkpoint_step"], paused["progress"]["step"])
        self.wait_for_step("next-one", 1)
        self.assertEqual(self.daemon.job("paused")["state"], "PAUSED")
        explained = self.daemon.cli("explain", "paused").stdout
        self.assertIn("It is paused at step", explained)
        self.assertIn("'trainyard resume paused'", explained)
        self.daemon.cli("pause", "next-one")
        self.wait_for_state("next-one", "PAUSED")
        self.daemon.cli("resume", "paused")
        self.finish("paused")
        steps = self.steps("paused")
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "each step once, in order")
        self.daemon.cli("cancel", "next-one")

    def test_a_pause_outlives_the_daemon(self):
        self.daemon.submit(self.spec("outlives"))
        self.wait_for_step("outlives", 50)
        self.daemon.cli("pause", "outlives")
        self.daemon.kill()
        self.daemon.start()
        self.wait_for_state("outlives", "PAUSED")
        time.sleep(0.5)
        self.assertEqual(self.daemon.job("outlives")["state"], "PAUSED", "it does not start by itself")
        waits = self.daemon.cli("wait", "outlives", "--timeout", "0.2", check=False)
        self.assertIn("outlives is paused: 'trainyard resume outlives' continues it", waits.stderr)
        self.daemon.cli("resume", "outlives")
        self.finish("outlives")

    def test_a_worker_killed_while_it_pauses_costs_steps_and_no_bit(self):
        self.daemon.submit(self.spec("killed"))
        self.wait_for_step("killed", 50)
        pid = self.daemon.worker_pids()[0]
        os.kill(pid, signal.SIGSTOP)
        self.daemon.cli("pause", "killed")
        self.assertTrue(self.daemon.job("killed")["pause_requested"])
        os.kill(pid, signal.SIGKILL)
        job = self.wait_for_state("killed", "PAUSED")
        self.assertFalse(job["pause_requested"])
        wait_until(lambda: not is_running(pid), "the worker is gone")
        self.daemon.cli("resume", "killed")
        self.finish("killed")

    def test_a_worker_that_does_not_respond_is_killed_within_the_grace(self):
        self.daemon.submit(self.spec("deaf-one"))
        self.wait_for_step("deaf-one", 50)
        pid = self.daemon.worker_pids()[0]
        os.kill(pid, signal.SIGSTOP)
        self.daemon.cli("pause", "deaf-one")
        # Only the grace period ends it; the silence limit is an hour.
        self.wait_for_state("deaf-one", "PAUSED")
        self.daemon.cli("cancel", "deaf-one")

    def test_a_cancelled_job_is_retried_to_the_same_bits(self):
        self.daemon.submit(self.spec("to-cancel"))
        self.wait_for_step("to-cancel", 90)
        running = self.daemon.cli("retry", "to-cancel", check=False)
        self.assertIn("JOB_STATE_CONFLICT", running.stderr)
        self.daemon.cli("cancel", "to-cancel")
        cancelled = self.wait_for_state("to-cancel", "CANCELLED")
        self.daemon.cli("retry", "to-cancel", "--name", "retried", "--wait")
        self.assertEqual(self.digest("retried"), self.expected)
        job = self.daemon.job("retried")
        self.assertEqual(job["origin"]["step"], cancelled["checkpoint_step"])
        self.assertEqual(self.steps("retried")[0], int(cancelled["checkpoint_step"]) + 1)
        again = self.daemon.cli("retry", "to-cancel", "--from-start", "--wait").stdout.strip()
        self.assertEqual(again, "to-cancel-r1", "named after the job")
        self.assertEqual(self.digest(again), self.expected)
        self.assertEqual(self.daemon.job("to-cancel")["state"], "CANCELLED", "terminal states are written once")

    def test_a_failed_job_is_forked_with_a_lower_rate(self):
        # At this learning rate, least squares diverges until the loss is NaN.
        text = digits_spec(self.folder, "too-fast", "  layers:\n    - gemm: {}",
                           "  checkpoint_every_steps: 1\n  keep_checkpoints: 100\n").read_text()
        spec = self.write("too-fast.yaml", text.replace("learning_rate: 0.05, momentum: 0.9", "learning_rate: 1")
                          .replace("target_kind: class", "target_kind: numeric"))
        done = self.daemon.cli("submit", spec, "--wait", check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        failed = self.daemon.job("too-fast")
        self.assertEqual(failed["reason"], "LOSS_NOT_FINITE", failed)
        self.assertIn("trainyard fork too-fast", self.daemon.cli("explain", "too-fast").stdout)
        oldest = self.daemon.json("checkpoint", "list", "too-fast")["checkpoints"][-1]["step"]
        self.daemon.cli("fork", f"too-fast@{oldest}", "--set", "recipe.optimizer.learning_rate=0.001", "--name",
                        "slower", "--wait")
        slower = self.daemon.job("slower")
        self.assertEqual((slower["state"], slower["origin"]["step"]), ("SUCCEEDED", oldest))

    def test_a_fork_needs_nothing_of_its_parent(self):
        self.daemon.submit(self.spec("parent"))
        self.wait_for_step("parent", 130)
        self.daemon.cli("cancel", "parent")
        self.wait_for_state("parent", "CANCELLED")
        listed = self.daemon.json("checkpoint", "list", "parent")["checkpoints"]
        steps = [int(c["step"]) for c in listed]
        self.assertEqual(len(steps), 3)
        # The fork is later in the queue, and waits while its parent is deleted.
        self.daemon.submit(self.spec("blocker"))
        self.daemon.cli("fork", f"parent@{steps[1]}", "--set", f"recipe.epochs={EPOCHS + 1}", "--name", "forked")
        self.daemon.cli("retry", "parent", "--name", "retry-2")
        self.daemon.cli("delete", "parent", "--yes")
        self.daemon.kill()
        self.daemon.start()
        self.daemon.cli("cancel", "blocker")
        for name in ("forked", "retry-2"):
            self.assertEqual(self.daemon.cli("wait", name).returncode, 0)
        self.assertEqual(self.digest("retry-2"), self.expected)
        self.assertEqual(self.steps("forked")[0], steps[1] + 1)

    def test_forbidden_changes_of_a_fork_are_refused_by_name(self):
        self.daemon.submit(self.spec("strict"))
        self.wait_for_step("strict", 50)
        self.daemon.cli("pause", "strict")
        self.wait_for_state("strict", "PAUSED")
        done = self.daemon.cli("fork", "strict", "--set", "recipe.seed=77", "--set", "recipe.batch_size=10", check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("\n  recipe.seed: 77 is not the checkpoint's", done.stderr)
        self.assertIn("\n  recipe.batch_size: 10 is not", done.stderr)
        gone = self.daemon.cli("fork", "strict@3", check=False)
        self.assertIn("CHECKPOINT_NOT_FOUND", gone.stderr)
        self.assertIn("expected one of", gone.stderr)
        short = self.daemon.cli("fork", "strict", "--set", "recipe.epochs=1", check=False)
        self.assertIn("trainyard: recipe.epochs: the job has", short.stderr)
        before = len(list((self.daemon.state / "jobs").iterdir()))
        taken = self.daemon.cli("fork", "strict", "--set", "recipe.epochs=99", "--name", "strict", check=False)
        self.assertIn("JOB_EXISTS", taken.stderr)
        self.assertEqual(len(list((self.daemon.state / "jobs").iterdir())), before, "its files are gone again")
        self.daemon.cli("cancel", "strict")

    def test_a_job_printed_as_yaml_can_be_submitted_again(self):
        text = self.daemon.cli("get", "undisturbed", "-o", "yaml").stdout
        self.daemon.cli("submit", self.write("again.yaml", text + "\nname: the-same\n"), "--wait")
        self.assertEqual(self.digest("the-same"), self.expected)
        self.assertEqual(json.dumps(self.daemon.job("the-same")["spec"], sort_keys=True),
                         json.dumps(self.daemon.job("undisturbed")["spec"], sort_keys=True))

    def test_a_job_at_its_time_limit_is_forked_with_a_longer_one_to_the_same_bits(self):
        # The job would run for hours, so the limit ends it on any machine.
        self.daemon.submit(self.spec("hurried"), "--set", "recipe.epochs=1000000", "--set", "resources.time_limit_seconds=1")
        hurried = self.wait_for_state("hurried", "FAILED")
        self.assertEqual(hurried["reason"], "TIME_LIMIT_REACHED", hurried)
        self.assertEqual(hurried["checkpoint_step"], hurried["progress"]["step"], "no step is lost")
        self.assertIn("trainyard fork hurried", self.daemon.cli("explain", "hurried").stdout)
        self.assertIn("time limit", self.daemon.cli("get", "hurried").stdout)
        epochs = int(hurried["progress"]["step"]) // int(hurried["plan"]["steps_per_epoch"]) + EPOCHS
        more = ("--set", f"recipe.epochs={epochs}", "--set", "resources.time_limit_seconds=3600")
        self.daemon.cli("fork", "hurried", *more, "--name", "unhurried", "--wait")
        self.daemon.submit(self.spec("in-time"), *more, "--wait")
        self.assertEqual(self.digest("unhurried"), self.digest("in-time"))

    def test_a_drained_device_gets_no_jobs_until_it_is_resumed(self):
        self.daemon.submit(self.spec("leaves"))
        self.wait_for_step("leaves", 50)
        drained = self.daemon.cli("device", "drain", "cpu", "--reason", "new memory", "--pause")
        self.assertIn("cpu is drained; 1 job there will save a checkpoint and return to the queue", drained.stderr)
        self.wait_for_state("leaves", "QUEUED")
        self.daemon.kill()
        self.daemon.start()
        listed = self.daemon.cli("device", "list").stdout
        self.assertRegex(listed, r"QUARANTINED \(Drained by .*: new memory\.\)")
        wait_until(lambda: "new memory" in self.daemon.job("leaves")["message"], "the job says why it waits")
        unknown = self.daemon.cli("device", "drain", "gpu-77", check=False)
        self.assertIn("there is no device devices/gpu-77, expected", unknown.stderr)
        self.daemon.cli("device", "resume", "cpu")
        self.finish("leaves")

    @unittest.skipUnless(os.geteuid() == 0, "only root can be another user")
    def test_each_user_of_the_socket_owns_their_jobs(self):
        nobody = pwd.getpwnam("nobody")
        opened = {path: path.stat().st_mode for path in (self.daemon.state, *self.daemon.state.parents)
                  if not path.stat().st_mode & 0o001}

        def as_nobody(*arguments):
            done = subprocess.run([BIN / "trainyard", *arguments], capture_output=True, text=True, timeout=PATIENCE_S,
                                  user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], cwd="/",
                                  env={"TRAINYARD_SERVER": f"unix:{self.daemon.socket}", "HOME": "/nonexistent"})
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.split()
        try:
            for path, mode in opened.items():
                path.chmod(mode | 0o001)
            self.daemon.socket.chmod(0o666)
            as_nobody("retry", "undisturbed", "--from-start", "--name", "theirs")
            self.assertEqual(as_nobody("list", "--owner", "me", "-o", "name"), ["theirs"])
            mine = self.daemon.cli("list", "--owner", "me", "-o", "name").stdout.split()
            self.assertIn("undisturbed", mine)
            self.assertNotIn("theirs", mine)
        finally:
            self.daemon.socket.chmod(0o600)
            for path, mode in opened.items():
                path.chmod(mode)
        self.assertEqual(self.daemon.job("theirs")["owner"], "nobody")
        self.finish("theirs")

    def test_jobs_start_after_each_other(self):
        self.daemon.submit(self.spec("base-job"))
        self.daemon.submit(self.spec("tuned"), "--set", "after=base-job", "--set",
                           "recipe.initial_weights={job: base-job}")
        self.daemon.submit(self.spec("tidy-up"), "--set", "after=[{job: tuned, on: any}]")
        self.assertEqual(self.daemon.job("tuned")["reason"], "WAITING_FOR_JOB")
        self.wait_for_step("base-job", 50)
        self.daemon.kill()
        self.daemon.start()
        listed = self.daemon.cli("list", "--owner", "me", "--state", "queued").stdout
        self.assertIn("Waits for the job base-job to succeed.", listed)
        self.finish("base-job")
        wait_until(lambda: self.daemon.job("tuned")["attempt"] > 0, "its turn has come")
        self.daemon.cli("cancel", "tuned")
        self.finish("tidy-up")
        late = self.daemon.cli("submit", self.spec("too-late"), "--set", "after=tuned", check=False)
        self.assertNotEqual(late.returncode, 0)
        self.assertIn("after[0].job: tuned is CANCELLED (CANCELLED), so this job would never start", late.stderr)


if __name__ == "__main__":
    unittest.main()
