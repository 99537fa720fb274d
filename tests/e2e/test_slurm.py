"""Tests of jobs in a cluster: a real Slurm of four nodes on this machine runs the daemon's jobs
over TLS. Whatever is killed, cut off or answered falsely, a job must end with the same bits as one
that the daemon trained itself."""

import hashlib
import hmac
import math
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from harness import (BIN, FREQUENT_CHECKPOINTS, SOURCE, STATEFUL_MODEL, DisturbedTest, digits_spec, is_running, promised_s,
                     wait_until)

sys.path.insert(0, str(SOURCE / "tests/support"))
import relay  # noqa: E402
import slurm  # noqa: E402


def cpu_s(pid):
    """Returns the seconds that the process has computed; infinity once it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return math.inf
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class SlurmTest(DisturbedTest):
    """A daemon with the cluster `slurm`, which is a Slurm of this class. The daemon itself trained
    `undisturbed`."""

    network, recipe, epochs = STATEFUL_MODEL, FREQUENT_CHECKPOINTS, 60
    slurm_options, described = {}, ""

    @classmethod
    def setUpClass(cls):
        cls.cluster = slurm.Slurm(**cls.slurm_options)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.cache = cls.cluster.folder / "cache"
        cls.worker = cls.worker_of_nodes()
        path = cls.cluster.folder / "cluster.yaml"
        path.write_text(f"""name: slurm
kind: slurm
worker: {cls.worker}
cache: {cls.cache}
commands: {cls.cluster.bin}
cpus: 1
waiting_max: 2
poll_seconds: 1
lease_seconds: 60
output: {cls.cluster.folder}/log/job-%j.log
{cls.described}""")
        port = slurm.free_ports(1)[0]
        cls.arguments = ["--cluster", str(path), "--workers-listen", f"127.0.0.1:{port}", "--cancel-grace-seconds", "5",
                         *cls.arguments_of_link(port)]
        # The daemon's commands find this Slurm by these variables.
        for name, value in cls.cluster.environment().items():
            os.environ[name] = value
        super().setUpClass()

    @classmethod
    def worker_of_nodes(cls):
        """Returns the worker program that nodes start."""
        return BIN / "trainyard-worker"

    @classmethod
    def arguments_of_link(cls, port):
        """Returns options with the address at which workers reach the port, if it differs."""
        return []

    def setUp(self):
        if self.daemon.process.poll() is not None:  # an earlier test failed halfway
            self.daemon.start()
        self.lie_nothing()
        self.addCleanup(self.lie_nothing)

    def wait_until_run(self, command, times=1, since=None):
        """Waits until the daemon has started the cluster's `command` `times` times, counted from
        now or from the number `since`."""
        before = self.cluster.runs(command) if since is None else since
        wait_until(lambda: self.cluster.runs(command) >= before + times, f"{command} is run")

    def lie_nothing(self):
        for command in slurm.WRAPPED:
            self.cluster.lie(command)

    def spec(self, name, resources="threads: 1", more=""):
        path = super().spec(name)
        cluster = "" if name == "undisturbed" else ", cluster: slurm"
        path.write_text(path.read_text() + f"resources: {{{resources}{cluster}}}\n{more}")
        return path

    def slurm_jobs(self, states="all"):
        """Returns Slurm's jobs, newest first: number, name, state, nodes."""
        shown = self.cluster.run("squeue", "--noheader", f"--states={states}", "-o", "%A %j %T %N", "--sort=-i").stdout
        return [line.split() for line in shown.splitlines()]

    def jobs_of(self, name, states="all"):
        uid = self.daemon.job(name)["uid"]
        return [job for job in self.slurm_jobs(states) if f"-{uid}-" in job[1]]

    def workers(self, name):
        """Returns the PIDs of the job's workers in the cluster."""
        uid = self.daemon.job(name)["uid"]
        pids = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            if words and words[0].endswith(b"trainyard-worker") and any(w.startswith(uid.encode()) for w in words):
                if is_running(int(entry.name)):
                    pids.append(int(entry.name))
        return pids

    def begin(self, name, step=30, **more):
        self.daemon.submit(self.spec(name, **more))
        self.wait_for_step(name, step)

    def assert_whole(self, name, attempts=1):
        """Checks that the job ended with the same bits as an undisturbed run and reported each step of its last
        attempts once."""
        self.finish(name)
        self.assertEqual(self.daemon.job(name)["attempt"], attempts)
        seqs = [int(e["seq"]) for e in self.daemon.events(name)]
        self.assertEqual(seqs, list(range(1, len(seqs) + 1)))
        steps = self.steps(name)
        self.assertEqual(sorted(set(steps)), list(range(1, max(steps) + 1)), "no step is missing")
        if attempts == 1:
            self.assertEqual(len(steps), len(set(steps)), "no step is told twice")

    def logs(self, name):
        return [e["log"]["text"] for e in self.daemon.events(name) if "log" in e]


class Handed(SlurmTest):
    def test_a_job_in_the_cluster_has_the_bits_of_a_local_one(self):
        self.begin("handed")
        (number, name, state, node), = self.jobs_of("handed")
        self.assertEqual(state, "RUNNING")

        def listed():
            text = self.daemon.cli("device", "list").stdout
            return "CLUSTER" in text and f"handed (job {number}, on {node})" in text
        wait_until(listed, "the list of devices has where it runs")
        self.assertEqual(self.daemon.job("handed")["devices"], ["clusters/slurm"])
        self.assertEqual(self.daemon.worker_pids(), [], "this host runs none of it")
        self.assert_whole("handed")
        self.assertIn(f"submitted to the cluster slurm as {number}", self.logs("handed"))
        wait_until(lambda: self.jobs_of("handed")[0][2] == "COMPLETED", "Slurm's job has ended")
        self.assertEqual(list((self.cache / "work").glob("*")), [], "the node keeps data alone")
        self.assertEqual(len([p for p in (self.cache / "datasets").iterdir() if p.is_dir()]), 1)

    def test_secrets_are_visible_nowhere(self):
        self.begin("secretive")
        job = self.daemon.job("secretive")
        task = f"{job['uid']}-{job['attempt']}"
        key = (self.daemon.state / "workers/enrolment.key").read_bytes()
        secret = hmac.new(key, task.encode(), hashlib.sha256).hexdigest()
        number = self.jobs_of("secretive")[0][0]
        shown = self.cluster.run("scontrol", "show", "job", "-dd", number).stdout
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            for file in ("cmdline", "environ"):
                try:
                    shown += (entry / file).read_bytes().decode(errors="replace")
                except OSError:
                    continue
        for log in [self.daemon.log_path, *(self.cluster.folder / "log").iterdir()]:
            shown += log.read_text(errors="replace")
        self.assertIn(task, shown, "the search reads what it should")
        self.assertNotIn(secret, shown)
        script = self.cluster.run("scontrol", "write", "batch_script", number, "-", check=False).stdout
        self.assertIn(secret, script, "the secret is what the script says, or this test finds nothing")
        self.assert_whole("secretive")

    def test_jobs_without_a_free_node_wait_and_say_why(self):
        blocker = self.cluster.run("sbatch", "--parsable", "-N4", "--exclusive", "--output=/dev/null",
                                   input="#!/bin/sh\nsleep 600\n").stdout.strip()
        try:
            for name in ("wait-1", "wait-2", "wait-3"):
                self.daemon.submit(self.spec(name))
            wait_until(lambda: len(self.slurm_jobs("PENDING")) == 2, "two are handed over")

            def told():
                rows = {j["name"].split("/")[-1]: j for j in self.daemon.json("queue")["jobs"]}
                return rows if "Resources" in rows["wait-1"]["message"] + rows["wait-2"]["message"] else None
            rows = wait_until(told, "Slurm's reason shows")
            self.assertEqual(rows["wait-1"]["reason"], "WAITING_IN_CLUSTER")
            self.assertEqual(rows["wait-3"]["reason"], "WAITING_FOR_CLUSTER")
            self.assertIn("2 of at most 2 jobs of this server", rows["wait-3"]["message"])
            explained = self.daemon.cli("explain", "wait-1").stdout
            self.assertIn("In the queue of the cluster slurm as ", explained)
            self.wait_until_run("squeue", times=2)
            self.assertEqual(len(self.slurm_jobs("PENDING")), 2, "the third waits here")
            # A job that waits in the cluster is cancelled there.
            self.daemon.cli("cancel", "wait-1")
            self.wait_for_state("wait-1", "CANCELLED")
            wait_until(lambda: self.jobs_of("wait-1")[0][2] == "CANCELLED", "Slurm's too")
            wait_until(lambda: len(self.jobs_of("wait-3", "PENDING")) == 1, "its place is the third's")
        finally:
            self.cluster.run("scancel", blocker)
        self.assert_whole("wait-2")
        self.assert_whole("wait-3")

    def test_pause_and_cancel(self):
        self.begin("paused")
        self.daemon.cli("pause", "paused")
        self.wait_for_state("paused", "PAUSED")
        wait_until(lambda: self.jobs_of("paused")[0][2] == "COMPLETED", "its place is free")
        self.daemon.cli("resume", "paused")
        self.assert_whole("paused", attempts=2)
        self.begin("cancelled")
        self.daemon.cli("cancel", "cancelled")
        self.wait_for_state("cancelled", "CANCELLED")
        wait_until(lambda: not self.workers("cancelled"), "its worker is gone")

    def test_wrong_input_names_the_field(self):
        path = digits_spec(self.folder, "wrong")
        path.write_text(path.read_text() + "resources: {cluster: slrum}\n")
        self.assert_refused(self.daemon.cli("submit", path, check=False), 2, "resources.cluster", "'slrum'",
                            "expected slurm")
        path.write_text(path.read_text().replace("cluster: slrum", "cluster: slurm, device: gpu"))
        self.assert_refused(self.daemon.cli("submit", path, check=False), 2, "resources.device", "expected auto or cpu")
        path.write_text(path.read_text().replace("device: gpu", "exclusive: true"))
        self.assert_refused(self.daemon.cli("submit", path, check=False), 2, "resources.exclusive")
        path.write_text(path.read_text().replace(", exclusive: true", ""))
        self.assertIn("A node of the cluster slurm", self.daemon.cli("plan", "--upload", path).stdout)


class Forecasts(SlurmTest):
    epochs = 3
    described = "time_limit: 2m\nprice_per_hour: 3.6\n"

    def forecast(self, *more):
        (forecast,) = self.daemon.json("plan", "--upload", self.spec("planned"), *more)["run"]["forecasts"]
        self.assertEqual(forecast["device"], "clusters/slurm")
        return forecast

    def test_the_first_job_measures_its_node_and_the_next_is_forecast(self):
        self.assertIn("no node of slurm has been measured with 1 thread yet; the first job that succeeds there measures",
                      self.forecast()["basis"])
        self.assertNotIn("measured:", self.daemon.cli("device", "list").stdout)
        self.daemon.submit(self.spec("first"), "--wait")
        wait_until(lambda: "slurm: measured: " in self.daemon.cli("device", "list").stdout, "its node is measured")
        self.assertEqual(self.digest("first"), self.expected)
        self.assertEqual(self.daemon.job("first")["state"], "SUCCEEDED")
        wait_until(lambda: self.jobs_of("first")[0][2] == "COMPLETED", "Slurm sees it end well, and nobody ends it")

        forecast = self.forecast()
        self.assertIn("speed measured with 1 thread on ", forecast["basis"])
        self.assertGreater(forecast["step_seconds"], 0)
        self.assertLess(forecast["total_seconds_low"], forecast["total_seconds"])
        self.assertEqual((int(forecast["time_limit_seconds"]), forecast["starts"]), (120, 1))
        self.assertAlmostEqual(forecast["cost"], forecast["total_seconds"] / 1000, delta=1e-6)
        self.assertIn("the network between its nodes is not measured: 0.3 GB/s are assumed",
                      self.forecast("--set", "resources.nodes=2")["basis"])
        # A number of epochs whose steps take 100 minutes.
        epochs = int(6000 / (36 * forecast["step_seconds"])) + 1
        long = self.forecast("--set", f"recipe.epochs={epochs}")
        self.assertGreater(long["starts"], 30)
        text = self.daemon.cli("plan", "--upload", self.spec("planned"), "--set", f"recipe.epochs={epochs}").stdout
        self.assertIn("its time limit of 2 min splits it into ", text)

        # A later job keeps the forecast made at its submission, and its outcome corrects the next
        # forecast.
        self.daemon.submit(self.spec("second"), "--wait")
        (of_second,) = self.daemon.job("second")["plan"]["forecasts"]
        self.assertGreater(of_second["total_seconds"], 0)
        wait_until(lambda: "1 finished job of this graph on " in self.forecast()["basis"], "what it took counts")
        listed = self.daemon.cli("device", "list", "--forecasts").stdout
        self.assertIn("slurm: 1 job, off by ", listed)
        self.assertIn("second", listed)


class Disturbed(SlurmTest):
    def test_a_killed_worker(self):
        self.begin("killed")
        (pid,) = self.workers("killed")
        os.kill(pid, signal.SIGKILL)
        self.assert_whole("killed", attempts=2)

    def test_a_daemon_killed_while_it_trains(self):
        self.begin("orphan")
        self.daemon.kill()
        time.sleep(1)
        self.daemon.start()
        self.assertEqual(self.daemon.job("orphan")["state"], "RUNNING")
        self.assert_whole("orphan")
        self.assertEqual(len(self.jobs_of("orphan")), 1)

    def test_a_daemon_killed_before_sbatch_answers(self):
        # The daemon is killed before and after Slurm has accepted the job.
        for lie in ("once:slow=4", "once:late=4"):
            name = "early-" + lie[5:9]
            self.cluster.lie("sbatch", lie)
            since = self.cluster.runs("sbatch")
            self.daemon.submit(self.spec(name))
            self.wait_until_run("sbatch", since=since)
            if "late" in lie:
                wait_until(lambda: self.jobs_of(name), "Slurm has it")
            self.daemon.kill()
            self.daemon.start()
            self.assert_whole(name)
            wait_until(lambda: not self.jobs_of(name, "RUNNING,PENDING"), "a second copy is taken back")

    def test_a_daemon_stopped_while_slurm_does_not_answer(self):
        def stop_and_go_on(name, command, since):
            self.wait_until_run(command, since=since)
            # The commands may take 30 s.
            self.assertEqual(self.daemon.stop(timeout_s=promised_s(5)), 0)
            self.lie_nothing()
            self.daemon.start()
            self.assert_whole(name)

        self.begin("unseen", step=5)
        self.cluster.lie("squeue", "slow=3600")
        stop_and_go_on("unseen", "squeue", self.cluster.runs("squeue"))
        self.cluster.lie("sbatch", "slow=3600")
        since = self.cluster.runs("sbatch")
        self.daemon.submit(self.spec("unplaced"))
        stop_and_go_on("unplaced", "sbatch", since)

    def test_a_lost_answer_of_sbatch(self):
        self.cluster.lie("sbatch", "once:lost")
        self.daemon.submit(self.spec("lost"))
        self.assert_whole("lost")
        self.assertEqual(len(self.jobs_of("lost")), 1, "no second copy")
        self.cluster.lie("sbatch", "once:twice")
        self.daemon.submit(self.spec("twice"))
        self.assert_whole("twice")

    def test_inconclusive_answers(self):
        self.begin("doubted", step=5)
        for lie in ("empty", "garbage", "fail", "slow=2"):
            (pid,) = self.workers("doubted")
            os.kill(pid, signal.SIGSTOP)  # otherwise it could end before all lies are used
            self.cluster.lie("squeue", lie)
            # When squeue runs for the second time, the daemon has read the output of the first run. After a slow
            # answer the daemon pauses for ten times as long, so the worker goes on before that answer.
            self.wait_until_run("squeue", times=1 if lie.startswith("slow") else 2)
            computed = cpu_s(pid)
            os.kill(pid, signal.SIGCONT)
            # The lease of 60 s begins anew with each message of the worker, whose next one is due.
            wait_until(lambda: cpu_s(pid) > computed + 0.05, "the worker goes on")
        self.lie_nothing()
        self.assert_whole("doubted")

    def test_an_unreachable_controller(self):
        self.begin("headless", step=5)
        silent = self.daemon.log().count("event=cluster_not_responding")
        self.cluster.kill_controller()
        wait_until(lambda: self.daemon.log().count("event=cluster_not_responding") > silent, "the daemon has noticed")
        self.cluster.start_controller()
        self.assert_whole("headless")

    def test_a_node_that_fails(self):
        self.begin("moved")
        node = self.jobs_of("moved")[0][3]
        self.cluster.kill_node(node)
        try:
            self.assert_whole("moved", attempts=2)
        finally:
            self.cluster.start_node(node)
            # Slurm may take minutes to clean up the node; the other tests' jobs use other nodes.
            wait_until(lambda: not self.cluster.node_state(node).startswith("down"), "the node is back")

    def test_jobs_cancelled_or_requeued_by_an_administrator(self):
        self.begin("requeued")
        number = self.jobs_of("requeued")[0][0]
        # Slurm refuses a requeue of jobs submitted without this flag.
        self.cluster.run("scontrol", "update", f"JobId={number}", "Requeue=1")
        self.cluster.run("scontrol", "requeue", number)
        self.assert_whole("requeued", attempts=2)
        self.begin("ended")
        self.cluster.run("scancel", self.jobs_of("ended")[0][0])
        self.assert_whole("ended", attempts=2)
        self.assertIn("the job resumes from its last checkpoint", self.daemon.cli("explain", "ended").stdout)

    def test_scancel_that_does_nothing(self):
        self.cluster.lie("scancel", "empty")
        self.begin("stubborn", step=5)
        (pid,) = self.workers("stubborn")
        os.kill(pid, signal.SIGSTOP)  # it receives no signal
        since = self.cluster.runs("scancel")
        self.daemon.cli("cancel", "stubborn")
        self.wait_until_run("scancel", times=2, since=since)
        self.assertNotEqual(self.daemon.job("stubborn")["state"], "CANCELLED", "nobody has seen it end")
        self.lie_nothing()
        wait_until(lambda: self.daemon.job("stubborn")["state"] == "CANCELLED", "asked again, it ends")
        os.kill(pid, signal.SIGCONT) if is_running(pid) else None


class StormyTest(SlurmTest):
    """A bad network connects the daemon and the nodes."""

    storm = {"seed": 5, "delay_s": 0.2, "jitter_s": 0.1, "bytes_to_reset": 150_000, "bytes_to_stall": 60_000, "stall_s": 0.7}

    @classmethod
    def arguments_of_link(cls, port):
        cls.link = relay.Relay(port, **cls.storm)
        cls.link.__enter__()
        cls.addClassCleanup(cls.link.__exit__)
        return ["--workers-advertise", f"127.0.0.1:{cls.link.port}"]


class Stormy(StormyTest):
    def test_network_faults_and_silence_change_nothing(self):
        self.begin("stormy", step=5)
        self.link.silence("back")  # the worker receives nothing more and reconnects
        self.assert_whole("stormy")
        self.assertGreater(self.link.stalls + self.link.resets, 0, "or it was calm")
        self.assertGreater(self.link.connections, 1)
        self.assertEqual(len(self.jobs_of("stormy")), 1)


class TimeLimit(SlurmTest):
    epochs = 600

    def test_a_job_longer_than_its_time_limit_continues_in_several_starts(self):
        # Slurm's limits are minutes, so this squeue reports an end in six seconds.
        honest = self.cluster.bin / "squeue"
        honest.rename(self.cluster.bin / "honest_squeue")
        honest.write_text(f"""#!/bin/sh
case "$*" in *--format=%e*) exec date -d '+6 seconds' +%Y-%m-%dT%H:%M:%S ;; esac
exec {self.cluster.bin}/honest_squeue "$@"
""")
        honest.chmod(0o755)
        self.daemon.submit(self.spec("links"))
        self.daemon.cli("wait", "links")
        self.assertEqual(self.digest("links"), self.expected)
        self.assertGreater(self.daemon.job("links")["attempt"], 1)
        self.assertIn("TIME_LIMIT_CONTINUED", [e["state"]["reason"] for e in self.daemon.events("links") if "state" in e])


class Refused(SlurmTest):
    epochs = 3
    described = "partition: absent\n"

    def test_a_job_that_slurm_refuses_waits_and_says_so(self):
        names = [f"refused-{i}" for i in range(5)]
        for name in names:
            self.daemon.submit(self.spec(name))

        def told():
            text = self.daemon.cli("explain", names[-1]).stdout
            return text if "accepts no jobs at the moment" in text else None
        said = wait_until(told, "why it waits")
        self.assertIn("nvalid partition", said)
        self.assertIn("A problem of the cluster, not of the job", said)
        wait_until(lambda: "The cluster accepts no jobs at the moment" in self.daemon.cli("device", "list").stdout, "the operator sees it too")
        time.sleep(3)
        for name in names:
            job = self.daemon.job(name)
            self.assertEqual(job["state"], "QUEUED")
            self.assertLessEqual(job["attempt"], 1, "none is tried again and again")
        # The operator repairs the cluster, and the jobs continue automatically.
        self.cluster.run("scontrol", "create", "PartitionName=absent", "Nodes=n[1-4]", "State=UP")
        for name in names:
            self.daemon.cli("wait", name)
            self.assertEqual(self.daemon.job(name)["state"], "SUCCEEDED")


if __name__ == "__main__":
    reason = slurm.missing()
    if reason:
        print(reason)
        sys.exit(slurm.SKIPPED)
    unittest.main()
