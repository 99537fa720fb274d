"""Starts the real daemon and drives the real command line. Uses the standard library only.

TRAINYARD_BIN names the folder with trainyardd, trainyard-worker and trainyard (ctest sets it).
TRAINYARD_TEST_DATA names the folder with real data; tests that need it skip without it.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TRAINYARD_BIN", SOURCE / "build/release/bin"))
DATA = pathlib.Path(os.environ.get("TRAINYARD_TEST_DATA", SOURCE.parent / "shared/data"))
EXAMPLES = SOURCE / "examples"


# A wait ends with its event. Only a failing test reaches this limit, so it is far above the time
# that a busy machine needs. TRAINYARD_TEST_PATIENCE multiplies it, as tests/support/patience.h does
# for C++ (scripts/check slow).
PATIENCE_FACTOR = max(1, int(os.environ.get("TRAINYARD_TEST_PATIENCE", "1")))
PATIENCE_S = 120.0 * PATIENCE_FACTOR


def promised_s(seconds):
    """Returns the limit for something promised within `seconds`, on a machine that may be four times slower."""
    return 4.0 * seconds * PATIENCE_FACTOR


def wait_until(condition, what, timeout_s=PATIENCE_S, interval_s=0.02):
    """Polls until condition() is true and returns its value; fails the test with `what` otherwise."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {timeout_s} s: {what}")
        time.sleep(interval_s)


def preloaded(library):
    """Returns the LD_PRELOAD value for a process with this library, followed by the test's own libraries."""
    return ":".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))


def is_running(pid):
    """Returns whether a process runs. An ended process may stay in /proc as a zombie if nobody reaps orphans."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def threads_of(pid):
    """Returns the stack of each thread of a process, as far as gdb can show it."""
    if shutil.which("gdb") is None:
        return "(no gdb here)"
    done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace 12"],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    return done.stdout[-20000:] + done.stderr[-1000:]


class Daemon:
    """A trainyardd with its own state folder. After an end, start() starts it again on the same
    folder."""

    def __init__(self, folder, *arguments, env=None, program=None):
        self.program = program  # None: the one in BIN
        self.state = pathlib.Path(folder)
        self.socket = self.state / "trainyard.sock"
        self.arguments = list(arguments)
        self.environment = env or {}  # in addition to this process's environment
        self.process = None
        self.log_path = self.state.parent / (self.state.name + ".log")

    def start(self):
        log = open(self.log_path, "ab")
        arguments = list(self.arguments)
        # Tests that count workers must not meet one that measures. An earlier daemon does not know
        # the flag.
        if self.program is None and "--measure-after-seconds" not in arguments:
            arguments.append("--measure-after-seconds=-1")
        if self.program is None and "TRAINYARD_SYNC_DELAY_MS" in os.environ and "--worker" not in arguments:
            arguments += ["--worker", str(self.slow_worker())]
        self.process = subprocess.Popen(
            [self.program or BIN / "trainyardd", "--state-dir", str(self.state), *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ, **self.environment))
        log.close()
        wait_until(self.healthy, "the daemon is healthy; its log:\n" + self.log())
        return self

    def slow_worker(self):
        """Returns a worker program whose syncs are delayed like the daemon's (tests/support/slow_sync.cc), since the
        daemon does not pass on its own environment."""
        script = self.state.parent / (self.state.name + ".worker")
        if not script.exists():  # the daemon would see a changed program as another one
            variables = " ".join(f"{name}={os.environ[name]}" for name in ("LD_PRELOAD", "TRAINYARD_SYNC_DELAY_MS"))
            script.write_text(f'#!/bin/sh\n{variables} exec {BIN / "trainyard-worker"} "$@"\n')
            script.chmod(0o755)
        return script

    def healthy(self):
        if self.process.poll() is not None:
            raise AssertionError(f"trainyardd ended with {self.process.returncode}:\n{self.log()}")
        return self.socket.exists() and self.cli("health", check=False).returncode == 0

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self, timeout_s=PATIENCE_S):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                threads = threads_of(self.process.pid)
                self.kill()
                raise AssertionError(f"trainyardd did not end within {timeout_s} s of SIGTERM; its threads:\n{threads}\n"
                                     f"--- daemon log\n{self.log()[-4000:]}") from None
        return self.process.returncode if self.process else None

    def cli(self, *arguments, check=True, input=None, cwd=None, env=None):
        """Runs `trainyard` against this daemon; fails the test on a non-zero exit unless check is False."""
        environment = dict(os.environ, TRAINYARD_SERVER=f"unix:{self.socket}", NO_COLOR="1", **(env or {}))
        done = subprocess.run([BIN / "trainyard", *map(str, arguments)], capture_output=True, text=True,
                              input=input, stdin=None if input is not None else subprocess.DEVNULL,
                              cwd=cwd, env=environment, timeout=3 * PATIENCE_S)
        if check and done.returncode != 0:
            raise AssertionError(f"trainyard {' '.join(map(str, arguments))} ended with {done.returncode}\n"
                                 f"{done.stdout}{done.stderr}\n--- daemon log\n{self.log()[-4000:]}")
        return done

    def json(self, *arguments):
        return json.loads(self.cli(*arguments, "-o", "json").stdout)

    def job(self, name):
        return self.json("get", name)

    def submit(self, spec, *arguments):
        return self.cli("submit", spec, *arguments).stdout.strip()

    def events(self, name, after=0):
        """Returns all events of a finished job, as dictionaries."""
        lines = self.cli("watch", name, "--after", after, "-o", "jsonl", check=False).stdout.splitlines()
        messages = [json.loads(line) for line in lines if line.strip()]
        return [m["event"] if "event" in m else m for m in messages if "seq" in m or "event" in m]

    def worker_pids(self):
        """Returns the PIDs of the workers of this state folder, whichever daemon started them."""
        option = b"\0--socket\0" + os.fsencode(self.state / "worker.sock") + b"\0"
        pids = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if option in (entry / "cmdline").read_bytes() and is_running(int(entry.name)):
                    pids.append(int(entry.name))
            except OSError:
                continue
        return pids

    def kill_workers(self):
        """Kills workers that a killed daemon left behind and that no daemon will adopt."""
        for pid in self.worker_pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


class DaemonTest(unittest.TestCase):
    """A test case with one daemon per class, in a temporary folder that is removed at the end."""

    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-e2e-"))
        cls.daemon = Daemon(cls.folder / "state", *cls.arguments).start()

    @classmethod
    def tearDownClass(cls):
        try:
            cls.daemon.stop()
        finally:
            cls.daemon.kill_workers()
            shutil.rmtree(cls.folder, ignore_errors=True)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text)
        return path

    def assert_refused(self, done, exit_code, *words):
        """Checks that the command failed with this exit code and a short message on stderr with
        each of `words`."""
        self.assertEqual(done.returncode, exit_code, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertLess(len(done.stderr), 4000)


# A model with moving means and random draws besides the weights, so that a lost or repeated step
# shows, and a recipe with checkpoints in between.
STATEFUL_MODEL = """  layers:
    - conv: {out_channels: 16, kernel_shape: [3], pads: [1]}
    - batch_normalization: {}
    - relu: {}
    - dropout: {ratio: 0.2}
    - gemm: {}"""
FREQUENT_CHECKPOINTS = """  validation_split: 0.2
  checkpoint_every_steps: 20
"""


class DisturbedTest(DaemonTest):
    """Fixture for disturbed jobs, each of which must end with the same bits as an undisturbed
    one."""

    network, recipe, epochs = "  mlp: {hidden: [64]}", "", 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        self = cls()
        cls.daemon.submit(self.spec("undisturbed"), "--wait")
        cls.expected = self.digest("undisturbed")

    def spec(self, name):
        text = digits_spec(self.folder, name, self.network, self.recipe).read_text()
        return self.write(f"{name}.yaml", text.replace("epochs: 3", f"epochs: {self.epochs}"))

    def digest(self, name):
        return self.daemon.json("model", "get", name)["digest"]

    def finish(self, name):
        self.daemon.cli("wait", name)
        self.assertEqual(self.digest(name), self.expected)

    def wait_for_state(self, name, state):
        return wait_until(lambda: (job := self.daemon.job(name))["state"] == state and job, f"{name} is {state}")

    def wait_for_step(self, name, step):
        def there():
            job = self.daemon.job(name)
            self.assertNotIn(job["state"], ("SUCCEEDED", "FAILED"), f"too fast or failed: {job}")
            return int(job["progress"]["step"]) >= step and job["state"] == "RUNNING"
        wait_until(there, f"{name} is at step {step}")

    def steps(self, name):
        """Returns the steps of the job's metrics, in the order in which they were reported."""
        return [int(s) for e in self.daemon.events(name) for series in e.get("metrics", {}).get("series", [])
                if series["key"] == "train/loss" for s in series["steps"]]


def digits_spec(folder, name, model="  mlp: {hidden: [64]}", recipe="", dataset=None):
    """Writes a job file for the digits in the repository and returns its path."""
    dataset = dataset or f"""
  path: {EXAMPLES / 'digits.csv.gz'}
  csv: {{header: false, target: c64, target_kind: class, image: [1, 8, 8]}}"""
    text = f"""name: {name}
dataset:{dataset}
model:
{model}
recipe:
  epochs: 3
  batch_size: 50
  seed: 7
  optimizer: {{type: sgd, learning_rate: 0.05, momentum: 0.9}}
{recipe}"""
    path = pathlib.Path(folder) / f"{name}.yaml"
    path.write_text(text)
    return path
