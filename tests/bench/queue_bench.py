"""What a long queue costs, by the number of jobs that wait. Several builds take turns, so that they can be compared.

    python3 tests/bench/queue_bench.py [--waiting 1000,10000,100000] [--rounds N] BIN [BIN ...]

BIN is a folder with trainyardd, trainyard-worker and trainyard; the clients of the measurement are those of the last one.
The queue is made of copies of one waiting job, written into a stopped daemon's store.

- restart: from the start of the program to `serving`, and to the first job that starts; its memory then
- job: the daemon's CPU time from one job's start to the next one's
- list: the first page, as its caller waits and by the daemon's CPU time; of a state that no job has; all pages
- submit: by 1, 8 and 64 callers; the daemon's CPU time, and the clients' own, for each
"""

import argparse
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import crowd  # noqa: E402
import harness  # noqa: E402

JOBS_RUN = 8
SUBMIT_SECONDS = 4
CALLERS = (1, 8, 64)


class Measured:
    """A daemon of one build."""

    def __init__(self, programs, state):
        self.state = state
        self.log_path = state.parent / (state.name + ".log")
        self.socket = state / "trainyard.sock"
        with open(self.log_path, "wb") as log:
            self.begin = time.monotonic()
            self.process = subprocess.Popen(
                [programs / "trainyardd", "--state-dir", state, "--queued-jobs-max", "1000000", "--threads-per-job", "1"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_for(self, event, count=1):
        """Seconds since the start of the program until the log has that many of these events."""
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
        """Of all its threads, without its children (clock_getcpuclockid)."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def memory_mib(self, field="VmRSS"):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+)", status)[1]) / 1024

    def kill(self):
        self.process.kill()
        self.process.wait()


def template(programs, folder):
    """A stopped daemon's state with one job that waits."""
    harness.BIN = programs
    daemon = harness.Daemon(folder / "template", "--threads-per-job", "1").start()
    try:
        data = folder / "digits.yaml"
        data.write_text(f"name: digits\npath: {harness.EXAMPLES / 'digits.csv.gz'}\n"
                        "csv: {header: false, target: c64, target_kind: class, image: [1, 8, 8]}\n")
        daemon.cli("dataset", "upload", data)
        holder = harness.digits_spec(folder, "holder")
        holder.write_text(holder.read_text().replace("epochs: 3", "epochs: 1000000") + "priority: 100\n")
        daemon.submit(holder)
        short = harness.digits_spec(folder, "short", recipe="  checkpoint_every_steps: 1000000\n")
        short.write_text(short.read_text().replace("epochs: 3", "epochs: 1"))
        daemon.submit(short)
    finally:
        daemon.stop()  # both wait now
    with sqlite3.connect(daemon.state / "trainyard.db") as store:
        store.execute("PRAGMA foreign_keys = ON")
        store.execute("DELETE FROM jobs WHERE id = 'holder'")
        store.execute("UPDATE tenants SET queued = 1")  # kept by triggers, of which none is for this
    store.close()
    return daemon.state


def call(programs, tool, daemon, *arguments):
    """Runs a client; its answer, and the daemon's CPU seconds meanwhile."""
    before = daemon.cpu_seconds()
    done = subprocess.run([programs / tool, f"unix:{daemon.socket}", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        return f"failed: {done.stderr.strip()[:200]}", 0
    return done.stdout.strip(), daemon.cpu_seconds() - before


def measure(programs, clients, state, folder):
    daemon = Measured(programs, state)
    try:
        serving = daemon.wait_for("serving")
        cpu = daemon.cpu_seconds()
        starting = daemon.wait_for("job_starting")
        print(f"  restart  serving after {1000 * serving:.0f} ms ({1000 * cpu:.0f} ms CPU), first job starts after "
              f"{1000 * starting:.0f} ms ({1000 * daemon.cpu_seconds():.0f} ms CPU); {daemon.memory_mib():.0f} MiB resident, "
              f"at most {daemon.memory_mib('VmHWM'):.0f}")
        first = daemon.count("job_starting") + 1
        daemon.wait_for("job_starting", first)
        cpu = daemon.cpu_seconds()
        daemon.wait_for("job_starting", first + JOBS_RUN)
        print(f"  job      {1000 * (daemon.cpu_seconds() - cpu) / JOBS_RUN:.1f} ms CPU each, of {JOBS_RUN}")
        environment = dict(os.environ, TRAINYARD_SERVER=f"unix:{daemon.socket}")
        subprocess.run([clients / "trainyard", "submit", folder / "holder.yaml"], env=environment, check=True, capture_output=True)
        while b"/holder " not in daemon.log_path.read_bytes().split(b"event=job_starting")[-1]:
            time.sleep(0.01)
        for what, calls, states in (("first page", 200, ()), ("QUEUED", 200, ("QUEUED",)), ("FAILED", 200, ("FAILED",)), ("all", 0, ())):
            text, cpu = call(clients, "list_bench", daemon, calls, *states)
            made = re.search(r"of (\d+) calls", text)
            print(f"  list     {what}: {text}; {1000 * cpu / (int(made[1]) if made else 1):.2f} ms CPU")
        for callers in CALLERS:
            before = daemon.count("job_submitted")
            text, cpu = call(clients, "submit_bench", daemon, "digits", callers, SUBMIT_SECONDS)
            submits = daemon.count("job_submitted") - before
            print(f"  submit   {text}; the daemon's CPU {1e6 * cpu / max(submits, 1):.0f} us each")
        print(f"  memory   {daemon.memory_mib():.0f} MiB resident, at most {daemon.memory_mib('VmHWM'):.0f}")
        sys.stdout.flush()
    finally:
        daemon.kill()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--waiting", default="1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("bin", nargs="+", type=lambda text: pathlib.Path(text).resolve())
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    try:
        made = template(arguments.bin[0], folder)
        for waiting in map(int, arguments.waiting.split(",")):
            for _ in range(arguments.rounds):
                for programs in arguments.bin:
                    state = folder / "state"
                    shutil.copytree(made, state, ignore=shutil.ignore_patterns("*.sock"))
                    crowd.copy_waiting(state, waiting)
                    print(f"{waiting} waiting, {programs}, load {os.getloadavg()[0]:.1f}")
                    measure(programs, arguments.bin[-1], state, folder)
                    shutil.rmtree(state)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
