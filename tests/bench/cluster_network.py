"""Measures the network traffic of a job in a cluster, and the effect of a slow link. Uses a real
daemon and a real Slurm; each node is in its own network namespace behind a link with a given rate
(tbf). Run as root, with slurm-wlm, munge and iproute2.

    TRAINYARD_BIN=build/release/bin python3 tests/bench/cluster_network.py [--rates 0,1000,100] [--nodes 1,2,4]

For each rate (Mbit/s in each direction; 0: unlimited) it trains a network of 1.2 million parameters
on the digits, on one node and, data parallel, on several. It prints the bytes to and from the nodes
by the kernel's counters, and the sizes of the job's dataset, checkpoints and model; the time
between RUNNING and the end, and that of the same job on the daemon's own CPU; and the daemon's CPU
time during the job.
"""

import argparse
import datetime
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/e2e"))
sys.path.insert(0, str(SOURCE / "tests/support"))
import slurm  # noqa: E402
from harness import BIN, Daemon, digits_spec  # noqa: E402

SUBNET, BRIDGE = "10.99.73", "tybench0"
PORT = 27451
MODEL, RECIPE = "  mlp: {hidden: [1024, 1024]}", "  checkpoint_every_steps: 100\n"


def sh(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Hosts(slurm.Slurm):
    """A Slurm whose nodes have their own network stacks; the daemon and the controller are on the
    bridge's host."""

    def __enter__(self):
        self.remove_links()
        sh("ip", "link", "add", BRIDGE, "type", "bridge")
        sh("ip", "address", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
        sh("ip", "link", "set", BRIDGE, "up")
        for number, node in enumerate(self.node_names(), 11):
            space, here, there = f"ty-{node}", f"ty{node}a", f"ty{node}b"
            sh("ip", "netns", "add", space)
            sh("ip", "link", "add", here, "type", "veth", "peer", "name", there)
            sh("ip", "link", "set", there, "netns", space)
            sh("ip", "link", "set", here, "master", BRIDGE, "up")
            for words in (["address", "add", f"{SUBNET}.{number}/24", "dev", there], ["link", "set", there, "up"],
                          ["link", "set", "lo", "up"]):
                sh("ip", "-n", space, *words)
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.remove_links()

    def remove_links(self):
        for node in self.node_names():
            subprocess.run(["ip", "netns", "delete", f"ty-{node}"], capture_output=True)
            subprocess.run(["ip", "link", "delete", f"ty{node}a"], capture_output=True)
        subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True)

    def _start(self, name, program, *arguments):
        if name.startswith("slurmd-"):
            # `ip netns exec` is not used, because it hides /sys/fs/cgroup.
            arguments = (f"--net=/run/netns/ty-{name.removeprefix('slurmd-')}", shutil.which(program, path=slurm.SEARCHED),
                         *arguments)
            program = "nsenter"
        return super()._start(name, program, *arguments)

    def _write_configuration(self):
        super()._write_configuration()
        text = self.conf.read_text().replace("(127.0.0.1)", f"({SUBNET}.1)")
        last = 10 + self.count
        self.conf.write_text(text.replace("NodeAddr=127.0.0.1", f"NodeAddr={SUBNET}.[11-{last}]"))

    def set_rate(self, mbit):
        for node in self.node_names():
            for at, device in (([], f"ty{node}a"), (["-n", f"ty-{node}"], f"ty{node}b")):
                subprocess.run(["tc", *at, "qdisc", "delete", "dev", device, "root"], capture_output=True)
                if mbit:
                    sh("tc", *at, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb",
                       "latency", "400ms")

    def counted(self):
        """Returns the bytes sent to and received from all nodes so far."""
        def read(node, which):
            return int(pathlib.Path(f"/sys/class/net/ty{node}a/statistics/{which}_bytes").read_text())
        return (sum(read(n, "tx") for n in self.node_names()), sum(read(n, "rx") for n in self.node_names()))


def spec(folder, name, resources, epochs):
    path = digits_spec(folder, name, MODEL, RECIPE)
    text = path.read_text().replace("epochs: 3", f"epochs: {epochs}").replace("batch_size: 50", "batch_size: 48")
    path.write_text(f"{text}resources: {{{resources}}}\n")
    return path


def cpu_ms(pid):
    """Returns the CPU time of all threads of the process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def seconds(daemon, name, begin):
    times = {}
    for e in daemon.events(name):
        if "state" in e:
            times[e["state"]["state"]] = datetime.datetime.fromisoformat(e["time"])
    return (times["SUCCEEDED"] - times[begin]).total_seconds()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="0,1000,100")
    parser.add_argument("--nodes", default="1,2,4")
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    if why := slurm.missing():
        sys.exit(why)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    with Hosts(nodes=4) as cluster:
        described = cluster.folder / "cluster.yaml"
        described.write_text(f"name: slurm\nkind: slurm\nworker: {BIN / 'trainyard-worker'}\ncache: {cluster.folder}/cache\n"
                             "cpus: 1\npoll_seconds: 1\n")
        daemon = Daemon(folder / "state", "--cluster", str(described), "--workers-listen", f"{SUBNET}.1:{PORT}",
                        env=cluster.environment()).start()
        try:
            daemon.submit(spec(folder, "here", "threads: 1, device: cpu", arguments.epochs), "--wait")
            alone = seconds(daemon, "here", "RUNNING")
            job = daemon.job("here")
            steps = int(job["plan"]["steps_total"])
            saved = [e["checkpoint"] for e in daemon.events("here") if "checkpoint" in e]
            size = int(job["plan"]["checkpoints"]["size_bytes"]) / 1e6
            print(f"{steps} steps, {len(saved)} checkpoints of {size:.1f} MB; on the daemon's own CPU {alone:.1f} s")
            print("| Mbit/s | nodes | to the nodes, MB | from them, MB | RUNNING to the end, s | of here | from submit, s | "
                  "daemon's CPU, ms |")
            print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
            for rate in map(int, arguments.rates.split(",")):
                cluster.set_rate(rate)
                for nodes in map(int, arguments.nodes.split(",")):
                    shutil.rmtree(cluster.folder / "cache", ignore_errors=True)
                    name = f"r{rate}-n{nodes}"
                    before, cpu = cluster.counted(), cpu_ms(daemon.process.pid)
                    more = f", nodes: {nodes}" if nodes > 1 else ""
                    daemon.submit(spec(folder, name, f"threads: 1, cluster: slurm{more}", arguments.epochs), "--wait")
                    to, back = (after - b for after, b in zip(cluster.counted(), before))
                    took = seconds(daemon, name, "RUNNING")
                    print(f"| {rate or 'no limit'} | {nodes} | {to / 1e6:.1f} | {back / 1e6:.1f} | {took:.1f} | {took / alone:.2f} | "
                          f"{seconds(daemon, name, 'QUEUED'):.1f} | {cpu_ms(daemon.process.pid) - cpu:.0f} |", flush=True)
        finally:
            daemon.stop()
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
