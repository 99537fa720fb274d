"""Tests of one job on four nodes of a real Slurm on this machine: whatever happens to its workers,
to a node or to the daemon, it must end with the same bits as an undisturbed run on four nodes.
tests/engine/nodes_test.cc and tests/server/remote_run_test.cc check that these bits equal those
of four ranks in one process."""

import os
import pathlib
import signal
import sys
import time
import unittest

from harness import SOURCE, is_running, wait_until
from test_slurm import SlurmTest

sys.path.insert(0, str(SOURCE / "tests/support"))
import slurm  # noqa: E402

NODES = 4


class SlurmNodesTest(SlurmTest):
    def spec(self, name):
        path = super().spec(name, resources="device: cpu, threads: 1")
        text = path.read_text().replace("batch_size: 50", "batch_size: 48").replace(", cluster: slurm", "")
        text = text.replace("optimizer: {type: sgd, learning_rate: 0.05, momentum: 0.9}",
                            "optimizer: {type: adamw, learning_rate: 0.001}")
        path.write_text(text.replace("threads: 1}", f"threads: 1, cluster: slurm, nodes: {NODES}, shard: optimizer}}"))
        return path

    def rank_of(self, pid):
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return int(next(w for w in words if w.startswith(b"SLURM_PROCID=")).split(b"=")[1])

    def worker_of(self, name, rank):
        return wait_until(lambda: next((p for p in self.workers(name) if self.rank_of(p) == rank), None),
                          f"the worker of rank {rank} runs")

    def assert_gone(self, name):
        wait_until(lambda: not self.workers(name), "no worker is left behind")


class Nodes(SlurmNodesTest):
    def test_a_job_has_a_worker_on_each_node(self):
        self.begin("spread")
        (_, _, state, nodes), = self.jobs_of("spread")
        self.assertEqual((state, nodes), ("RUNNING", "n[1-4]"))
        self.assertEqual(sorted(map(self.rank_of, self.workers("spread"))), list(range(NODES)))
        self.assertGreater(int(self.daemon.job("spread")["plan"]["shard_saved_bytes"]), 0, "the state is sharded")
        self.assert_whole("spread")
        self.assert_gone("spread")

    def test_a_killed_rank_and_a_killed_first_rank(self):
        for rank in (2, 0):
            name = f"killed-{rank}"
            self.begin(name)
            os.kill(self.worker_of(name, rank), signal.SIGKILL)
            self.assert_whole(name, attempts=2)
            self.assert_gone(name)

    def test_a_node_that_fails(self):
        self.begin("failing")
        # Slurm takes a while to notice. Until the node is back, Slurm would give it to the second
        # attempt too.
        self.cluster.lie("sbatch", "held")
        self.cluster.kill_node("n3")
        try:
            wait_until(lambda: self.daemon.job("failing")["state"] != "RUNNING", "the others have noticed")
        finally:
            self.cluster.start_node("n3")
        self.lie_nothing()
        self.assert_whole("failing", attempts=2)  # it needs all four nodes
        self.cluster.wait_for_nodes()

    def test_a_failed_node_that_slurm_still_allocates(self):
        self.begin("misplaced")
        self.cluster.kill_node("n3")
        try:  # srun tries to reach the node for ten seconds, unless Slurm has noticed its loss
            wait_until(lambda: self.daemon.job("misplaced")["attempt"] > 2 or self.cluster.node_state("n3").startswith("down"),
                       "the second attempt is lost, or waits for the node")
        finally:
            self.cluster.start_node("n3")
        self.finish("misplaced")
        reasons = {e["state"]["reason"] for e in self.daemon.events("misplaced")
                   if e.get("state", {}).get("state") == "QUEUED"} - {"WAITING_FOR_SCHEDULER"}
        self.assertLessEqual(reasons, {"RANK_LOST", "WORKER_START_FAILED", "CLUSTER_RECLAIMED"}, "none is the job's own fault")
        self.assertEqual(set(self.steps("misplaced")), set(range(1, max(self.steps("misplaced")) + 1)), "no step is missing")
        self.cluster.wait_for_nodes()

    def test_a_daemon_killed_while_they_train(self):
        self.begin("orphans")
        self.daemon.kill()
        time.sleep(1)
        self.daemon.start()
        self.assertEqual(self.daemon.job("orphans")["state"], "RUNNING")
        self.assert_whole("orphans")

    def test_a_cancel_ends_all_ranks(self):
        self.begin("cancelled")
        pids = self.workers("cancelled")
        self.assertEqual(len(pids), NODES)
        self.daemon.cli("cancel", "cancelled")
        self.wait_for_state("cancelled", "CANCELLED")
        wait_until(lambda: not any(map(is_running, pids)), "none is left")

    def test_wrong_input_names_the_field(self):
        path = self.spec("wrong")
        right = path.read_text()
        for change, words in {
            (f"nodes: {NODES}", "nodes: 7"): ("resources.nodes", "7 does not divide recipe.batch_size 48"),
            (f"nodes: {NODES}", "nodes: 65"): ("resources.nodes", "expected 1..64"),
            ("cluster: slurm, ", ""): ("resources.nodes", "needs resources.cluster"),
        }.items():
            path.write_text(right.replace(*change))
            self.assert_refused(self.daemon.cli("submit", path, check=False), 2, *words)


if __name__ == "__main__":
    reason = slurm.missing()
    if reason:
        print(reason)
        sys.exit(slurm.SKIPPED)
    unittest.main()
