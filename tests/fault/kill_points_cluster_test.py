"""Kills the daemon or a worker at every commit point while jobs run in a cluster.

Works like kill_points_test.py, with a real Slurm of two nodes on this machine
(tests/support/slurm.py). The daemon is killed at each operation on a file of its state folder and
whenever it passes a secret. A worker is killed at each operation on a file of its node's cache.
Examples are points before sbatch, between sbatch and the row in the store, during a worker's
enrolment, between the parts of a checkpoint, and between an outcome and its row. All promises must
hold, and Slurm must have no job left.

The points of the store and of uploads belong to kill_points_test.py. POINTS has no text for
them here, so they are killed only if --more chooses them.

    python3 tests/fault/kill_points_cluster_test.py --all
    python3 tests/fault/kill_points_cluster_test.py --nodes 2
"""

import os
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import kill_points_test as local  # noqa: E402
import slurm  # noqa: E402
from harness import BIN, wait_until  # noqa: E402
from kill_points_test import DAEMON, LIBRARY, WORKER, Crowd, KilledDaemon, Place, Work  # noqa: E402

NAME = "slurm"
GOING_ON = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")


def without_text(points):
    return {point: "" for point in points}


POINTS = {
    DAEMON: {
        **without_text(point for point in local.POINTS[DAEMON]
                       if not point.startswith(("write jobs/", "remove jobs/*/reports", "sync jobs", "rename jobs/*/model"))),
        "write trainyard.db-wal": "change: in the log", "sync trainyard.db-wal": "change: committed",
        "write trainyard.db.commit": "change: counted, not yet told to the cluster",
        "write clock.tmp": "the clocks are compared", "sync clock.tmp": "", "rename clock.tmp": "",
        # The certificate by which workers recognize the daemon.
        "write workers/identity.pem.tmp": "door: a certificate, not yet there", "sync workers/identity.pem.tmp": "",
        "rename workers/identity.pem.tmp": "", "remove workers/identity.pem.tmp": "",
        "write workers/enrolment.key.tmp": "door: a key of secrets, not yet there", "sync workers/enrolment.key.tmp": "",
        "rename workers/enrolment.key.tmp": "door: both are there", "remove workers/enrolment.key.tmp": "",
        "sync workers": "",
        "write pipe": "sbatch runs: its script is not with Slurm yet, or is and has no row",
        # A checkpoint that a node pushes, and a model.
        "write jobs/*/checkpoints/step-*.tmp/weights.safetensors": "checkpoint: a part has come",
        "sync jobs/*/checkpoints/step-*.tmp/weights.safetensors": "",
        "write jobs/*/checkpoints/step-*.tmp/optimizer.safetensors": "",
        "sync jobs/*/checkpoints/step-*.tmp/optimizer.safetensors": "",
        "write jobs/*/checkpoints/step-*.tmp/state.json": "checkpoint: all parts but one",
        "sync jobs/*/checkpoints/step-*.tmp/state.json": "", "sync jobs/*/checkpoints/step-*.tmp": "",
        "rename jobs/*/checkpoints/step-*.tmp": "checkpoint: durable, the worker does not know", "sync jobs/*/checkpoints": "",
        "rename jobs/*/checkpoints/step-*": "checkpoint: an old one is about to go",
        "remove jobs/*/checkpoints/step-*.removed.tmp/state.json": "",
        "remove jobs/*/checkpoints/step-*.removed.tmp/optimizer.safetensors": "",
        "remove jobs/*/checkpoints/step-*.removed.tmp/weights.safetensors": "",
        "remove jobs/*/checkpoints/step-*.removed.tmp": "",
        "write models/*.tmp/model.safetensors": "model: a part has come", "sync models/*.tmp/model.safetensors": "",
        "write models/*.tmp/model.json": "", "sync models/*.tmp/model.json": "", "sync models/*.tmp": "",
        "rename models/*.tmp": "model: durable, the outcome has not come", "sync models": "",
    },
    WORKER: {
        "write datasets/*.tmp/data.safetensors": "dataset: pulled in part", "sync datasets/*.tmp/data.safetensors": "",
        "write datasets/*.tmp/schema.json": "", "sync datasets/*.tmp/schema.json": "",
        "write datasets/*.tmp/digest": "", "sync datasets/*.tmp/digest": "", "sync datasets/*.tmp": "",
        "rename datasets/*.tmp": "dataset: whole", "sync datasets": "",
        "write work/*-*/reports": "a report: on the node, not yet sent", "remove work/*-*/reports": "the end: all was heard",
        "write work/*-*/reports.new": "reports that were heard go", "rename work/*-*/reports.new": "",
        "write work/*-*/checkpoints/step-*.tmp/weights.safetensors": "checkpoint: written on the node",
        "sync work/*-*/checkpoints/step-*.tmp/weights.safetensors": "",
        "write work/*-*/checkpoints/step-*.tmp/optimizer.safetensors": "",
        "sync work/*-*/checkpoints/step-*.tmp/optimizer.safetensors": "",
        "write work/*-*/checkpoints/step-*.tmp/state.json": "", "sync work/*-*/checkpoints/step-*.tmp/state.json": "",
        "sync work/*-*/checkpoints/step-*.tmp": "",
        "rename work/*-*/checkpoints/step-*.tmp": "checkpoint: there, not yet pushed", "sync work/*-*/checkpoints": "",
        "rename work/*-*/checkpoints/step-*": "checkpoint: an old one is about to go",
        "remove work/*-*/checkpoints/step-*.removed.tmp/state.json": "",
        "remove work/*-*/checkpoints/step-*.removed.tmp/optimizer.safetensors": "",
        "remove work/*-*/checkpoints/step-*.removed.tmp/weights.safetensors": "",
        "remove work/*-*/checkpoints/step-*.removed.tmp": "",
        "remove work/*-*/checkpoints/step-*/state.json": "", "remove work/*-*/checkpoints/step-*/optimizer.safetensors": "",
        "remove work/*-*/checkpoints/step-*/weights.safetensors": "", "remove work/*-*/checkpoints/step-*": "",
        "remove work/*-*/checkpoints": "",
        "write work/*-*/model.tmp/model.safetensors.tmp": "model: written on the node",
        "sync work/*-*/model.tmp/model.safetensors.tmp": "", "rename work/*-*/model.tmp/model.safetensors.tmp": "",
        "write work/*-*/model.tmp/model.json.tmp": "", "sync work/*-*/model.tmp/model.json.tmp": "",
        "rename work/*-*/model.tmp/model.json.tmp": "", "sync work/*-*/model.tmp": "",
        "rename work/*-*/model.tmp": "model: there, not yet pushed", "sync work/*-*": "",
        "remove work/*-*/model/model.json": "", "remove work/*-*/model/model.safetensors": "", "remove work/*-*/model": "",
        "remove work/*-*": "", "remove work/*-*.lock": "",
    },
}


class ClusterWork(Work):
    """A job that succeeds and a job that is cancelled, both on nodes."""

    ends = {"kept": "SUCCEEDED", "other": "CANCELLED"}
    nodes = 1

    @property
    def resources(self):
        return f"resources: {{threads: 1, cluster: {NAME}, nodes: {self.nodes}}}\n"

    def steps(self):
        return (self.submit, self.submit_other, self.wait, self.cancel_other, self.look, self.delete)


class ClusterPlace(Place):
    points, work = POINTS, ClusterWork
    # The spool is rewritten only when much of it was acknowledged, when it is full, or after a
    # failed write. The daemon removes an old checkpoint only if the job is slow enough to push a
    # second one.
    sometimes = frozenset({"write work/*-*/reports.new", "rename work/*-*/reports.new",
                           "rename jobs/*/checkpoints/step-*",
                           *(f"remove jobs/*/checkpoints/step-*.removed.tmp{file}"
                             for file in ("", "/state.json", "/optimizer.safetensors", "/weights.safetensors"))})

    def __init__(self, cluster, nodes):
        self.cluster = cluster
        self.work = type("WorkOnNodes", (ClusterWork,), {"nodes": nodes})
        self.ports_lock = threading.Lock()

    def daemon(self, folder, program, kill, log):
        folder.chmod(0o755)
        environment = self.environment(folder, program, kill, log)
        if program == WORKER:  # a node's processes lack the daemon's environment
            environment["TRAINYARD_POINTS_UNDER"] = str(folder / "cache")
        worker = folder / "worker"
        lines = [f"export {name}='{value}'" for name, value in environment.items()] if program == WORKER else []
        worker.write_text("\n".join(["#!/bin/sh", *lines, f'exec {BIN / "trainyard-worker"} "$@"', ""]))
        worker.chmod(0o755)
        described = folder / "cluster.yaml"
        described.write_text(f"""name: {NAME}
kind: slurm
worker: {worker}
cache: {folder / "cache"}
commands: {self.cluster.bin}
cpus: 1
waiting_max: 2
poll_seconds: 1
lease_seconds: 30
measure_nodes: false
output: {folder}/job-%j.log
""")
        with self.ports_lock:
            port = slurm.free_ports(1)[0]
        return KilledDaemon(folder / "state", *self.arguments, "--cluster", described, "--workers-listen", f"127.0.0.1:{port}",
                            "--cancel-grace-seconds", "5",
                            env={**self.cluster.environment(), **(environment if program == DAEMON else {})})

    @staticmethod
    def name_of(point):
        return point.replace("-rank-*", "")  # ranks other than the first

    def left_behind(self, folder):
        """Slurm's jobs are identified by the path of their output."""
        def left():
            lines = self.cluster.run("scontrol", "show", "job", "-o").stdout.splitlines()
            ours = [line for line in lines if f"StdOut={folder}/" in line]
            assert ours, "scontrol shows none of our jobs, which the check looks for"
            return [line[:200] for line in ours if any(f"JobState={state} " in line for state in GOING_ON)]

        found = super().left_behind(folder)
        try:
            wait_until(lambda: not left(), "Slurm's jobs have ended")
        except AssertionError:
            found += [f"Slurm still has {line}" for line in left()]
        return found


def main():
    parser = local.make_parser(__doc__)
    parser.add_argument("--nodes", type=int, default=1, help="of each job: a rank on each, and workers killed are of any")
    arguments = parser.parse_args()
    if missing := slurm.missing():
        print(f"no Slurm here: {missing}")
        return 77
    if not pathlib.Path(LIBRARY).is_file():
        print("TRAINYARD_KILL_POINTS does not name the library")
        return 77
    with slurm.Slurm(nodes=2 * arguments.nodes) as cluster:
        # The daemon's commands find this Slurm by these variables.
        for name, value in cluster.environment().items():
            os.environ[name] = value
        return local.kill_everywhere(ClusterPlace(cluster, arguments.nodes), Crowd(pathlib.Path(cluster.folder), 0, 0), arguments)


if __name__ == "__main__":
    sys.exit(main())
