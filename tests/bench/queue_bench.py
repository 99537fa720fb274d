"""Measures the cost of a long queue by the number of waiting jobs. Several builds take turns, so
that they can be compared.

    python3 tests/bench/queue_bench.py [--waiting 1000,10000,100000] [--rounds N] [--alike] [--json FILE] BIN [BIN ...]

BIN is a folder with trainyardd, trainyard-worker and trainyard; the measuring clients are those of
the last one. The queue consists of copies of waiting jobs, written into a stopped daemon's store:
twelve kinds, of four networks and three batch sizes, of 20 owners, with seven priorities; with
--alike all are copies of one job. FILE gets the numbers, from which queue_chart.py draws a chart.

- short jobs: how many end in a second, one after another, with 1,000 in the queue; for each, the
  CPU time of the daemon and of the workers, the files that remain, and the calls of fsync and
  fdatasync including the workers' (if strace is installed)
- restart: from the start of the program to `serving`, and to the first job that starts; its memory
  then
- job: the daemon's CPU time from one job's start to the next one's
- list: the time of the first page for its caller and in the daemon's CPU time; the same for a state
  that no job has, and for all pages
- submit: by 1, 8 and 64 callers; the CPU time of the daemon and of the clients for each
"""

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import crowd  # noqa: E402
import harness  # noqa: E402

JOBS_RUN = 8
SHORT_JOBS = 50
NETWORKS = ("[8]", "[64]", "[256]", "[256, 256]")
BATCH_SIZES = (20, 50, 200)
OWNERS = tuple(f"user-{i:02d}" for i in range(20))
PRIORITIES = (0, 0, 0, 5, -5, 20, -20)
SUBMIT_SECONDS = 4
CALLERS = (1, 8, 64)


class Measured:
    """A running daemon of one build."""

    def __init__(self, programs, state, prefix=()):
        self.state, self.traced = state, bool(prefix)
        self.log_path = state.parent / (state.name + ".log")
        self.socket = state / "trainyard.sock"
        with open(self.log_path, "wb") as log:
            self.begin = time.monotonic()
            self.process = subprocess.Popen(
                [*prefix, programs / "trainyardd", "--state-dir", state, "--queued-jobs-max", "1000000", "--threads-per-job", "1"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_for(self, event, count=1):
        """Waits until the log has `count` of these events. Returns the seconds since the start of
        the program."""
        pattern = f"event={event} ".encode()
        for _ in range(120_000):
            if self.log_path.read_bytes().count(pattern) >= count:
                return time.monotonic() - self.begin
            if self.process.poll() is not None:
                break
            time.sleep(0.001)
        raise SystemExit(f"no {event}:\n{self.log_path.read_text()[-2000:]}")

    def count(self, event):
        return self.log_path.read_bytes().count(f"event={event} ".encode())

    def cpu_seconds(self):
        """Returns the CPU seconds of all its threads, without its children (clock_getcpuclockid)."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def children_cpu_seconds(self):
        """Returns the CPU seconds of the children that have ended."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self, field="VmRSS"):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+)", status)[1]) / 1024

    def kill(self):
        """Kills the daemon and its workers; under strace, the traced process."""
        own = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split() if self.traced else ()
        for pid in own or (self.process.pid,):
            os.kill(int(pid), signal.SIGKILL)
        workers = harness.Daemon(self.state)
        workers.kill_workers()
        self.process.wait()
        harness.wait_until(lambda: not workers.worker_pids(), "its workers are gone")


def template(programs, folder):
    """Returns a stopped daemon's state with one waiting job of each kind, the smallest as the newest."""
    harness.BIN = programs
    daemon = harness.Daemon(folder / "template", "--threads-per-job", "1").start()
    try:
        data = folder / "digits.yaml"
        data.write_text(f"name: digits\npath: {harness.EXAMPLES / 'digits.csv.gz'}\n"
                        "csv: {header: false, target: c64, target_kind: class, image: [1, 8, 8]}\n")
        daemon.cli("dataset", "upload", data)
        holder = harness.digits_spec(folder, "holder")  # occupies the device in measure()
        holder.write_text(holder.read_text().replace("epochs: 3", "epochs: 1000000") + "priority: 100\n")
        daemon.cli("device", "drain", "cpu")
        for hidden in reversed(NETWORKS):
            for rows in BATCH_SIZES:
                spec = harness.digits_spec(folder, f"short-{NETWORKS.index(hidden)}-{rows}", f"  mlp: {{hidden: {hidden}}}",
                                           "  checkpoint_every_steps: 1000000\n")
                spec.write_text(spec.read_text().replace("epochs: 3", "epochs: 1").replace("batch_size: 50", f"batch_size: {rows}"))
                daemon.submit(spec)
    finally:
        daemon.stop()
    with sqlite3.connect(daemon.state / "trainyard.db") as store:
        store.execute("DELETE FROM device_drains")
    store.close()
    return daemon.state


def copy_state(made, folder, waiting, alike):
    state = folder / "state"
    shutil.copytree(made, state, ignore=shutil.ignore_patterns("*.sock"))
    if alike:
        crowd.copy_waiting(state, waiting)
    else:
        crowd.copy_waiting(state, waiting, kinds=len(NETWORKS) * len(BATCH_SIZES), owners=OWNERS, priorities=PRIORITIES)
    return state


def files_in(state):
    return sum(len(files) for _, _, files in os.walk(state))


def measure_short_jobs(programs, made, folder):
    state = copy_state(made, folder, 1000, alike=True)
    daemon = Measured(programs, state)
    try:
        daemon.wait_for("worker_ended", 5)
        first, files = daemon.count("worker_ended"), files_in(state)
        cpu, children = daemon.cpu_seconds(), daemon.children_cpu_seconds()
        begin = time.monotonic()
        daemon.wait_for("worker_ended", first + SHORT_JOBS)
        seconds, jobs = time.monotonic() - begin, daemon.count("worker_ended") - first
        numbers = {"short_jobs_a_second": jobs / seconds, "short_job_daemon_cpu_ms": 1000 * (daemon.cpu_seconds() - cpu) / jobs,
                   "short_job_workers_cpu_ms": 1000 * (daemon.children_cpu_seconds() - children) / jobs,
                   "short_job_files": (files_in(state) - files) / jobs}
    finally:
        daemon.kill()
        shutil.rmtree(state)
    if shutil.which("strace"):
        numbers["short_job_store_fsyncs"], numbers["short_job_fsyncs"] = count_fsyncs(programs, made, folder)
    fsyncs, stores = numbers.get("short_job_fsyncs", math.nan), numbers.get("short_job_store_fsyncs", math.nan)
    print(f"  short    {numbers['short_jobs_a_second']:.1f} a second; CPU of each: the daemon {numbers['short_job_daemon_cpu_ms']:.1f} ms, its "
          f"worker {numbers['short_job_workers_cpu_ms']:.1f} ms; {numbers['short_job_files']:.1f} files stay; {fsyncs:.1f} fsyncs, of which "
          f"{stores:.1f} the store's", flush=True)
    return numbers


def count_fsyncs(programs, made, folder):
    """Returns the number of fsyncs for each of some short jobs: those of the store, and all including the workers'."""
    state, calls = copy_state(made, folder, 1000, alike=True), folder / "calls"
    trace = ("strace", "-f", "-y", "--seccomp-bpf", "-o", calls, "-e", "trace=fsync,fdatasync", "--signal=none")
    daemon = Measured(programs, state, trace)

    def made_so_far():
        paths = re.findall(rb"f(?:data)?sync\(\d+<([^>]*)", calls.read_bytes())
        return sum(b"/trainyard.db" in path for path in paths), len(paths)
    try:
        daemon.wait_for("worker_ended", 5)
        first, before = daemon.count("worker_ended"), made_so_far()
        daemon.wait_for("worker_ended", first + SHORT_JOBS)
        ended = daemon.count("worker_ended") - first
        return [(now - then) / ended for now, then in zip(made_so_far(), before)]
    finally:
        daemon.kill()
        shutil.rmtree(state)


def call(programs, tool, daemon, *arguments):
    """Runs a client. Returns its output, and the CPU seconds that the daemon used meanwhile."""
    before = daemon.cpu_seconds()
    done = subprocess.run([programs / tool, f"unix:{daemon.socket}", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        return f"failed: {done.stderr.strip()[:200]}", 0
    return done.stdout.strip(), daemon.cpu_seconds() - before


def measure(programs, clients, state, folder):
    """Measures everything. Returns the numbers by name."""
    numbers = {}
    daemon = Measured(programs, state)
    try:
        serving = daemon.wait_for("daemon_started")
        cpu = daemon.cpu_seconds()
        starting = daemon.wait_for("job_starting")
        numbers.update(serving_ms=1000 * serving, serving_cpu_ms=1000 * cpu, starting_ms=1000 * starting,
                       starting_cpu_ms=1000 * daemon.cpu_seconds(), resident_mib=daemon.memory_mib())
        print(f"  restart  serving after {1000 * serving:.0f} ms ({1000 * cpu:.0f} ms CPU), first job starts after "
              f"{1000 * starting:.0f} ms ({1000 * daemon.cpu_seconds():.0f} ms CPU); {daemon.memory_mib():.0f} MiB resident, "
              f"at most {daemon.memory_mib('VmHWM'):.0f}")
        first = daemon.count("job_starting") + 1
        daemon.wait_for("job_starting", first)
        cpu = daemon.cpu_seconds()
        daemon.wait_for("job_starting", first + JOBS_RUN)
        numbers["job_cpu_ms"] = 1000 * (daemon.cpu_seconds() - cpu) / JOBS_RUN
        print(f"  job      {numbers['job_cpu_ms']:.1f} ms CPU each, of {JOBS_RUN}")
        environment = dict(os.environ, TRAINYARD_SERVER=f"unix:{daemon.socket}")
        subprocess.run([clients / "trainyard", "submit", folder / "holder.yaml"], env=environment, check=True, capture_output=True)
        while b"/holder " not in daemon.log_path.read_bytes().split(b"event=job_starting")[-1]:
            time.sleep(0.01)
        for what, calls, states in (("first page", 200, ()), ("QUEUED", 200, ("QUEUED",)), ("FAILED", 200, ("FAILED",)), ("all", 0, ())):
            text, cpu = call(clients, "list_bench", daemon, calls, *states)
            made = re.search(r"of (\d+) calls", text)
            cpu_ms = 1000 * cpu / (int(made[1]) if made else 1)
            numbers[f"list_{what.replace(' ', '_').lower()}_cpu_ms"] = cpu_ms
            if median := re.search(r"p50 ([\d.]+) ms", text):
                numbers[f"list_{what.replace(' ', '_').lower()}_ms"] = float(median[1])
            print(f"  list     {what}: {text}; {cpu_ms:.2f} ms CPU")
        for callers in CALLERS:
            before = daemon.count("job_submitted")
            text, cpu = call(clients, "submit_bench", daemon, "digits", callers, SUBMIT_SECONDS)
            submits = daemon.count("job_submitted") - before
            numbers[f"submit_{callers}_cpu_us"] = 1e6 * cpu / max(submits, 1)
            if rate := re.search(r"(\d+) durable submits/s", text):
                numbers[f"submit_{callers}_a_second"] = float(rate[1])
            print(f"  submit   {text}; the daemon's CPU {1e6 * cpu / max(submits, 1):.0f} us each")
        print(f"  memory   {daemon.memory_mib():.0f} MiB resident, at most {daemon.memory_mib('VmHWM'):.0f}")
        sys.stdout.flush()
    finally:
        daemon.kill()
    return numbers


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--waiting", default="1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--alike", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("bin", nargs="+", type=lambda text: pathlib.Path(text).absolute())
    arguments = parser.parse_args()
    alone = len({programs.name for programs in arguments.bin}) == len(arguments.bin)
    names = {programs: programs.name if alone else str(programs) for programs in arguments.bin}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    results = []
    try:
        made = template(arguments.bin[0], folder)
        for number in range(arguments.rounds):
            for programs in arguments.bin if number % 2 == 0 else reversed(arguments.bin):
                print(f"short jobs, {names[programs]}, load {os.getloadavg()[0]:.1f}", flush=True)
                results.append({"programs": names[programs]} | measure_short_jobs(programs, made, folder))
        for waiting in map(int, arguments.waiting.split(",")):
            for number in range(arguments.rounds):
                for programs in arguments.bin if number % 2 == 0 else reversed(arguments.bin):
                    state = copy_state(made, folder, waiting, arguments.alike)
                    print(f"{waiting} waiting, {names[programs]}, load {os.getloadavg()[0]:.1f}", flush=True)
                    results.append({"programs": names[programs], "waiting": waiting}
                                   | measure(programs, arguments.bin[-1], state, folder))
                    shutil.rmtree(state)
                    if arguments.json:
                        arguments.json.write_text(json.dumps(results, indent=1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
