"""Tests of one job on the GPUs of two nodes of a real Slurm on this machine: whichever of its
workers dies, it must end with the same bits as a job on as many GPUs of one node. GPUs and NCCL are
emulated (tests/cuda/fake_nccl.cc): each worker is a process with two GPUs, and everything except
the hardware and NCCL's own network is as in production."""

import os
import signal
import sys
import unittest

from harness import BIN, SOURCE, wait_until
from test_slurm_nodes import SlurmNodesTest

sys.path.insert(0, str(SOURCE / "tests/support"))
import slurm  # noqa: E402

NVML = os.environ.get("TRAINYARD_FAKE_NVML")
MODULE = os.environ.get("TRAINYARD_EMULATED_CUDA")


class GpuNodes(SlurmNodesTest):
    network, epochs, described = "  mlp: {hidden: [64]}", 12, "gpus_per_node: 4\n"

    @classmethod
    def worker_of_nodes(cls):
        library = cls.cluster.folder / "lib"
        library.mkdir()
        (library / "libnvidia-ml.so.1").symlink_to(NVML)
        cls.lacks_gpus = cls.cluster.folder / "the second node has one GPU"
        cls.broken_link = cls.cluster.folder / "the next worker's link breaks"
        worker = cls.cluster.folder / "worker-with-gpus"
        worker.write_text(f"""#!/bin/sh
gpus=4
[ -e "{cls.lacks_gpus}" ] && [ "$SLURM_PROCID" = 1 ] && gpus=1
mv "{cls.broken_link}" "{cls.broken_link}, once" 2>/dev/null && export TRAINYARD_FAKE_CUDA_FAULT=link=400
export TRAINYARD_CUDA_MODULE='{MODULE}' LD_LIBRARY_PATH='{library}'
export TRAINYARD_FAKE_CUDA_DEVICES=$gpus TRAINYARD_NVML_SCRIPT=devices=$gpus
exec '{BIN / "trainyard-worker"}' "$@"
""")
        worker.chmod(0o755)
        return worker

    def resources(self, name):
        return "nodes: 1, gpus: 4" if name in ("undisturbed", "broken-link") else "nodes: 2, gpus: 2"

    def spec(self, name, shard="optimizer"):
        path = super().spec(name)
        head, _ = path.read_text().split("resources:")
        path.write_text(f"{head}resources: {{device: gpu, threads: 1, cluster: slurm, {self.resources(name)}, shard: {shard}}}\n")
        return path

    def test_two_nodes_have_the_bits_of_one(self):
        self.begin("spread")
        (number, _, state, nodes), = self.jobs_of("spread")
        self.assertEqual(state, "RUNNING")
        self.assertEqual(len(self.cluster.run("scontrol", "show", "hostnames", nodes).stdout.split()), 2)
        self.assertIn("gpu:2", self.cluster.run("scontrol", "show", "job", number).stdout)
        self.assertEqual(sorted(map(self.rank_of, self.workers("spread"))), [0, 1])
        self.assert_whole("spread")
        said = next(line for line in self.logs("spread") if line.startswith("connected by "))
        self.assertRegex(said, r"^connected by ranks 0 to 1: NCCL \S+ through lo \(127.0.0.1\); ranks 2 to 3: NCCL ")

    def test_a_killed_worker_and_a_killed_first_rank(self):
        for rank in (1, 0):
            name = f"killed-{rank}"
            self.begin(name)
            os.kill(self.worker_of(name, rank), signal.SIGKILL)
            self.assert_whole(name, attempts=2)
            self.assert_gone(name)
        reasons = [e["state"].get("reason") for e in self.daemon.events("killed-1") if "state" in e]
        self.assertIn("RANK_LOST", reasons)

    def test_a_link_that_breaks_is_a_fault_of_the_device(self):
        self.broken_link.touch()
        self.daemon.submit(self.spec("broken-link"))
        self.assert_whole("broken-link", attempts=2)
        states = [e["state"] for e in self.daemon.events("broken-link") if "state" in e]
        (message,) = [s["message"] for s in states if s.get("reason") == "DEVICE_FAULT"]
        self.assertIn("exchanging gradients on GPU 0: an error of NCCL", message)

    def test_a_node_without_its_gpus_is_reported_and_waited_for(self):
        self.lacks_gpus.touch()
        try:
            self.daemon.submit(self.spec("lacking"))
            message = wait_until(lambda: (m := self.daemon.job("lacking").get("message", "")).startswith("A problem") and m,
                                 "it says what is wrong")
        finally:
            self.lacks_gpus.unlink()
        self.assertIn("ranks 2 to 3: ", message)
        self.finish("lacking")

    def test_wrong_input_names_the_field(self):
        path = self.spec("wrong")
        right = path.read_text()
        for change, words in {
            ("nodes: 2", "nodes: 5"): ("resources.nodes", "5 nodes of 2 GPUs, 10 in all, does not divide recipe.batch_size 48"),
            ("nodes: 2", "nodes: 33"): ("resources.nodes", "33 nodes of 2 GPUs are 66 in all, expected at most 64"),
            ("gpus: 2", "gpus: 6"): ("resources.gpus", "6 is more than a node of the cluster slurm has, expected 1..4"),
            ("device: gpu", "device: cpu"): ("resources.gpus", "2 needs device: gpu"),
            ("shard: optimizer", "shard: head"): ("resources.shard", "head is for the GPUs of one node"),
        }.items():
            path.write_text(right.replace(*change))
            self.assert_refused(self.daemon.cli("submit", path, check=False), 2, *words)


if __name__ == "__main__":
    reason = slurm.missing() or ("" if NVML and MODULE else "this build has no emulated GPU")
    if reason:
        print(reason)
        sys.exit(slurm.SKIPPED)
    unittest.main()
