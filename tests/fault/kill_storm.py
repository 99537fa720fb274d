"""Kills the daemon, workers or both at random times, and checks what clients saw.

The kills are SIGKILL, while networks train and clients submit, watch, query and cancel. Afterwards
everything that the clients saw must be true (history.py), and every finished job must have the
weights of an undisturbed run.

    python3 tests/fault/kill_storm.py --rounds 200 --seed 7
    python3 tests/fault/kill_storm.py --rounds 100 --waiting 10000 --watchers 100

With --waiting, that many jobs wait at the lowest priority behind those of the clients, and run when
nothing else does. TRAINYARD_BIN names the folder with the programs. A failure prints the seed and
keeps the folder with the state, the daemon's log and the history. The seed determines the actions
and the pauses between them, but not how threads and processes interleave.
"""

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import crowd  # noqa: E402
import history  # noqa: E402
from harness import BIN, EXAMPLES, PATIENCE_S, Daemon, promised_s  # noqa: E402

UNFINISHED_MAX = 5  # unfinished jobs at a time: enough for a queue, few enough to finish
CLIENTS = 2
CPU_SLOTS = 2
PAUSE_S = 0.45  # seconds between two kills, at most

CROWD_LOOKED_AT = 50  # number of crowd jobs that ran whose events and weights are checked
CANCELLED_AT_ONCE = 500

NO_ANSWER = re.compile(r"unavailable|cannot reach|did not answer|deadline|SERVER_|timed out|connection", re.I)
# Refusals because another client was faster or time has passed.
TOO_LATE = re.compile(r"JOB_STATE_CONFLICT|DATASET_NOT_READY|UPLOAD_BUSY|CHECKPOINT_NOT_FOUND|more than the checkpoint's")

CSV = "csv: {header: false, target: c64, target_kind: class, image: [1, 8, 8]}"
# Each takes some tenths of a second and makes a dozen checkpoints, so that kills hit each part of a
# run.
KINDS = {
    "mlp": ("digits.csv.gz", CSV, "mlp: {hidden: [64]}",
            "{epochs: 16, batch_size: 50, seed: 7, checkpoint_every_steps: 40, optimizer: {type: adam, learning_rate: 0.003}}"),
    "cnn": ("digits.csv.gz", CSV,
            "layers: [{conv: {out_channels: 8, kernel_shape: [3], pads: [1]}}, {batch_normalization: {}}, {relu: {}}, "
            "{max_pool: {kernel_shape: [2]}}, {dropout: {ratio: 0.2}}, {gemm: {}}]",
            "{epochs: 6, batch_size: 50, drop_last: false, seed: 7, checkpoint_every_steps: 20, "
            "augmentation: [{random_crop: {padding: 1}}], optimizer: {type: sgd, learning_rate: 0.05, momentum: 0.9}}"),
    "gpt": ("words.txt.gz", "text: {tokenizer: char}", "gpt2: {n_layer: 1, n_head: 2, n_embd: 32, dropout: 0.1}",
            "{steps: 150, batch_size: 8, context_length: 16, seed: 7, checkpoint_every_steps: 15, "
            "optimizer: {type: adamw, learning_rate: 0.003}}"),
}


class Clients:
    """The actions of clients, and the history of the replies that they got. An action is a method
    named `do_` and the command. Commands that this program does not have are left out."""

    weights = {"submit": 4, "get": 3, "cancel": 2, "pause": 2, "resume": 3, "prioritize": 1, "retry": 2, "fork": 1}

    def __init__(self, daemon, folder, seed, watchers):
        self.daemon, self.folder, self.seed, self.watchers = daemon, folder, seed, watchers
        self.lock = threading.Lock()
        self.history = []
        self.jobs = {}  # name: last state that a client saw
        self.requests = []  # (request, kind, spec) that are not yet acknowledged
        self.stopping = threading.Event()
        self.faults = []
        commands = set(re.findall(r"^  ([a-z]+)  ", daemon.cli("--help").stdout, re.M))
        self.actions = sorted(name for name in self.weights if name in commands and hasattr(self, "do_" + name))

    def note(self, **call):
        with self.lock:
            self.history.append(call)

    def call(self, *arguments):
        """Returns None if the server did not reply. A refusal raises an exception."""
        done = self.daemon.cli(*arguments, "--timeout", "2", check=False)
        if done.returncode == 0:
            return done.stdout
        if not (NO_ANSWER.search(done.stderr) or TOO_LATE.search(done.stderr)):
            self.faults.append(f"trainyard {' '.join(map(str, arguments))}: {done.returncode}: {done.stderr.strip()}")
        return None

    def unfinished(self):
        with self.lock:
            return [name for name, state in self.jobs.items() if state not in history.TERMINAL]

    def write_spec(self, kind, number):
        """Every third submission brings the same rows in another file, which is uploaded and
        ingested separately."""
        data, reader, model, recipe = KINDS[kind]
        content = (self.folder / data).read_bytes()
        path = self.folder / data
        if number % 3 == 1:
            path = self.folder / f"{number}-{data}"
            path.write_bytes(gzip.compress(gzip.decompress(content), mtime=number))
        spec = self.folder / f"{number}.yaml"
        spec.write_text(f"dataset:\n  path: {path}\n  {reader}\nmodel:\n  {model}\nrecipe: {recipe}\n")
        return spec

    def do_submit(self, rng):
        with self.lock:
            again = self.requests.pop() if self.requests else None
        if again is None:
            if len(self.unfinished()) >= UNFINISHED_MAX:
                return
            request = str(uuid.UUID(int=rng.getrandbits(128), version=4))
            kind = rng.choice(sorted(KINDS))
            again = (request, kind, self.write_spec(kind, rng.randrange(1_000_000_000)))
        self.submit(*again)
        if rng.random() < 0.2:  # a client whose reply got lost sends the request again
            self.submit(*again)

    def submit(self, request, kind, spec):
        out = self.call("submit", spec, "--request-id", request, "--set", f"labels.request={request}",
                        "--set", f"labels.kind={kind}")
        name = out.strip().rsplit("/")[-1] if out else None
        self.note(op="submit", request=request, kind=kind, job=name)
        with self.lock:
            if name is None:
                self.requests.append((request, kind, spec))
            else:
                self.jobs.setdefault(name, "QUEUED")

    def do_get(self, rng):
        if names := self.unfinished():
            self.look(rng.choice(sorted(names)))

    def look(self, name):
        if out := self.call("get", name, "-o", "json"):
            self.saw(name, json.loads(out))

    def saw(self, name, job):
        self.note(op="seen", job=name, state=job["state"], attempt=job["attempt"])
        with self.lock:
            if self.jobs.get(name) not in history.TERMINAL:
                self.jobs[name] = job["state"]

    def do_cancel(self, rng):
        names = self.unfinished()
        if len(names) < 3:  # most jobs are to run to their end
            return
        name = rng.choice(sorted(names))
        if out := self.call("cancel", name, "-o", "json"):
            job = json.loads(out)
            job = job.get("jobs", [job])[0] if isinstance(job, dict) else job[0]
            self.note(op="cancel", job=name, seq=int(job["newest_seq"]))
            self.saw(name, job)

    def do_prioritize(self, rng):
        if names := self.unfinished():
            self.call("prioritize", rng.choice(sorted(names)), f"--priority={rng.randint(-3, 3)}")

    def do_pause(self, rng):
        if names := self.unfinished():
            self.call("pause", rng.choice(sorted(names)))

    def do_resume(self, rng):
        if names := self.unfinished():
            self.call("resume", rng.choice(sorted(names)))

    def do_retry(self, rng):
        with self.lock:
            ended = sorted(name for name, state in self.jobs.items() if state in ("CANCELLED", "FAILED"))
        self.copy("retry", ended, rng)

    def do_fork(self, rng):
        self.copy("fork", self.unfinished(), rng)

    def copy(self, command, names, rng):
        if not names or len(self.unfinished()) >= UNFINISHED_MAX:
            return
        of = rng.choice(sorted(names))
        if out := self.call(command, of):
            name = out.strip().rsplit("/")[-1]
            self.note(op="copied", job=name, of=of)
            with self.lock:
                self.jobs.setdefault(name, "QUEUED")

    def act(self, number):
        rng = random.Random(f"{self.seed} client {number}")
        while not self.stopping.is_set():
            action = rng.choices(self.actions, [self.weights[a] for a in self.actions])[0]
            getattr(self, "do_" + action)(rng)
            time.sleep(rng.uniform(0, 0.1))

    def watch(self, number):
        """Follows jobs, from their start or from a later event, until they end, a random time
        passes, or the connection is lost."""
        rng = random.Random(f"{self.seed} watcher {number}")
        while not self.stopping.is_set():
            names = self.unfinished()
            if not names:
                time.sleep(0.05)
                continue
            self.watch_one(rng.choice(sorted(names)), rng.choice((0, 0, 1, 3)), rng.uniform(0.1, max(2.0, self.watchers / 5)))
            # Each watch is a process, whose start takes longer than its work.
            time.sleep(rng.uniform(0, self.watchers / 25))

    def watch_one(self, name, after, tires_s):
        watch = subprocess.Popen([BIN / "trainyard", "watch", name, "--after", str(after), "-o", "jsonl"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                 env=dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}", NO_COLOR="1"))
        timer = threading.Timer(tires_s, watch.kill)
        timer.start()
        out = watch.communicate()[0]
        timer.cancel()
        whole = out[:out.rfind("\n") + 1].splitlines()  # the last line may be incomplete
        self.note(op="watched", job=name, after=after, events=events_of(map(json.loads, whole)))

    def guarded(self, work, number):
        try:
            work(number)
        except Exception as e:  # a thread's failure fails the storm
            self.faults.append(f"{work.__name__} {number}: {type(e).__name__}: {e}")

    def start(self):
        self.threads = [threading.Thread(target=self.guarded, args=(work, number))
                        for work, count in ((self.act, CLIENTS), (self.watch, self.watchers)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def events_of(messages):
    """Converts messages to the events of history.py."""
    events = []
    for message in messages:
        event = message.get("event", message)
        if "seq" not in event:
            continue
        text = json.dumps(event, sort_keys=True)
        made = {"seq": int(event["seq"]), "attempt": event["attempt"], "digest": hashlib.sha256(text.encode()).hexdigest()[:16]}
        if "state" in event:
            made["state"] = event["state"]["state"]
        events.append(made)
    return events


def kill(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_round(daemon, rng):
    """Kills once and returns what was killed."""
    what = rng.choices(("worker", "daemon", "both"), (4, 4, 2))[0]
    workers = daemon.worker_pids()
    if what != "daemon":
        if not workers and what == "worker":
            what = "nobody"
        for pid in workers[:1] if what == "both" else rng.sample(workers, min(1, len(workers))):
            kill(pid)
    if what in ("daemon", "both"):
        daemon.kill()
        while rng.random() < 0.25:  # kill it again while it starts
            starting = subprocess.Popen([BIN / "trainyardd", "--state-dir", daemon.state, *daemon.arguments],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0, 0.1))
            starting.kill()
            starting.wait(10)
        daemon.start()
    return what


def undisturbed(daemon, clients):
    """Returns the digest of the weights of each kind in an undisturbed run."""
    digests = {}
    for kind in sorted(KINDS):
        name = daemon.submit(clients.write_spec(kind, 0), "--wait")
        digests[kind] = daemon.json("model", "get", name)["digest"]
        daemon.cli("delete", name, "--yes")
    return digests


def submit_crowd(daemon, clients, count, number=0):
    """Leaves `count` jobs waiting and returns their names. All are of the kind mlp; the first one
    is submitted and the others are copies of it. Another `number` gives them other rows
    (write_spec)."""
    spec = clients.write_spec("mlp", number)
    endless = clients.folder / "endless.yaml"
    endless.write_text(spec.read_text().replace("epochs: 16", "epochs: 1000000"))
    holders = [daemon.submit(endless, "--set", "priority=100") for _ in range(CPU_SLOTS)]
    first = daemon.submit(spec, "--set", "priority=-100", "--set", "labels.kind=mlp").rsplit("/")[-1]
    # Jobs of a stopped daemon wait too, so only one of these may remain.
    daemon.cli("cancel", *[name.rsplit("/")[-1] for name in holders[1:]])
    daemon.stop()
    names = [first, *crowd.copy_waiting(daemon.state, count - 1, "crowd")]
    daemon.start()
    daemon.cli("cancel", holders[0].rsplit("/")[-1])
    for holder in holders:
        daemon.cli("wait", holder.rsplit("/")[-1], check=False)
        daemon.cli("delete", holder.rsplit("/")[-1], "--yes")
    return names


def list_jobs(daemon):
    """Returns all jobs by name."""
    jobs = json.loads(daemon.cli("list", "--limit", 100000, "-o", "json").stdout)["jobs"]
    return {job["name"].rsplit("/")[-1]: job for job in jobs}


def end_crowd(daemon, names):
    """Cancels the jobs of the crowd that still wait, many per call, and returns the final state of each."""
    for first in range(0, len(names), CANCELLED_AT_ONCE):
        daemon.cli("cancel", *names[first:first + CANCELLED_AT_ONCE])
    deadline = time.monotonic() + PATIENCE_S
    while daemon.worker_pids() and time.monotonic() < deadline:
        time.sleep(0.1)
    jobs = list_jobs(daemon)
    return {name: jobs[name]["state"] if name in jobs else None for name in names}


def describe_end(daemon, expected, crowd_names):
    states = end_crowd(daemon, crowd_names)
    all_jobs = list_jobs(daemon)
    ran = sorted((name for name in states if name in all_jobs and all_jobs[name]["attempt"] > 0),
                 # Jobs that were lost most often come first.
                 key=lambda name: -all_jobs[name]["attempt"])
    quiet = set(states) - set(ran[:CROWD_LOOKED_AT])
    jobs = {}
    for name, job in all_jobs.items():
        if name in quiet:
            continue
        succeeded = job["state"] == "SUCCEEDED"
        jobs[name] = {"state": job["state"], "reason": job["reason"], "attempt": job["attempt"],
                      "request": job["spec"]["labels"].get("request"), "kind": job["spec"]["labels"].get("kind"),
                      "weights": daemon.json("model", "get", name)["digest"] if succeeded else None,
                      "events": events_of(daemon.events(name)),
                      "origin": ((job.get("origin") or {}).get("job") or "").rsplit("/")[-1] or None}
    workers = daemon.worker_pids()
    deadline = time.monotonic() + promised_s(5)  # invariant I8: workers end in time
    while workers and time.monotonic() < deadline:
        time.sleep(0.05)
        workers = daemon.worker_pids()
    return {"jobs": jobs, "workers": workers, "expected": expected, "crowd": states}


def settle(daemon, crowd_names):
    """Waits until all jobs outside the crowd have ended, and resumes jobs that a client paused."""
    deadline = time.monotonic() + PATIENCE_S
    behind = set(crowd_names)
    while time.monotonic() < deadline:
        waiting = [job for name, job in list_jobs(daemon).items()
                   if name not in behind and job["state"] not in history.TERMINAL]
        if not waiting:
            return
        for job in waiting:
            if job["state"] == "PAUSED":
                daemon.cli("resume", job["name"].rsplit("/")[-1], check=False)
        time.sleep(0.1)


def storm(rounds, seed, folder, seconds, waiting, watchers):
    rng = random.Random(seed)
    shutil.copy(EXAMPLES / "digits.csv.gz", folder)
    words = [rng.choice(("lose", "nothing", "what", "ever", "happens")) for _ in range(2000)]
    (folder / "words.txt.gz").write_bytes(gzip.compress(" ".join(words).encode(), mtime=1))
    daemon = Daemon(folder / "state", "--cpu-slots", str(CPU_SLOTS), "--threads-per-job", "1", "--cancel-grace-seconds", "3").start()
    clients = Clients(daemon, folder, seed, watchers)
    try:
        expected = undisturbed(daemon, clients)
        crowd_names = submit_crowd(daemon, clients, waiting) if waiting else []
        clients.start()
        killed = []
        begin = time.monotonic()
        try:
            while len(killed) < rounds and (seconds is None or time.monotonic() - begin < seconds):
                time.sleep(rng.uniform(0, PAUSE_S))
                killed.append(kill_round(daemon, rng))
        finally:
            clients.stop()
        took = time.monotonic() - begin
        settle(daemon, crowd_names)
        end = describe_end(daemon, expected, crowd_names)
    finally:
        daemon.stop()
        (folder / "history.json").write_text("\n".join(map(json.dumps, clients.history)))
    (folder / "end.json").write_text(json.dumps(end, indent=1))
    found = history.check(clients.history, end) + clients.faults
    states = [job["state"] for job in end["jobs"].values()]
    attempts = sum(job["attempt"] for job in end["jobs"].values())
    print(f"seed {seed}: {len(killed)} rounds in {took:.0f} s "
          f"({', '.join(f'{killed.count(k)} {k}' for k in sorted(set(killed)))}); clients did {', '.join(clients.actions)}; "
          f"{len(states)} jobs in {attempts} attempts "
          f"({', '.join(f'{states.count(s)} {s}' for s in sorted(set(states)))}); {len(clients.history)} calls checked")
    if crowd_names:
        ended = list(end["crowd"].values())
        watched = sum(call["op"] == "watched" for call in clients.history)
        print(f"behind them {len(ended)} jobs waited: {', '.join(f'{ended.count(e)} {e}' for e in sorted(set(map(str, ended))))}; "
              f"{watched} watches by {watchers} watchers")
    # With fewer rounds a kind may be left out by chance.
    for kind in KINDS if len(killed) >= 200 else ():
        if not any(job["state"] == "SUCCEEDED" and job["kind"] == kind and job["attempt"] > 1
                   for job in end["jobs"].values()):
            found.append(f"no {kind} was lost and succeeded: the storm showed nothing of it")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--seconds", type=float, help="stop after this time, whatever the rounds")
    parser.add_argument("--waiting", type=int, default=0, metavar="N", help="jobs that wait behind all others")
    parser.add_argument("--watchers", type=int, default=2)
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-storm-"))
    print(f"seed {arguments.seed}", flush=True)
    found = storm(arguments.rounds, arguments.seed, folder, arguments.seconds, arguments.waiting, arguments.watchers)
    for line in found[:50]:
        print(line)
    if found:
        print(f"{len(found)} broken promises with --seed {arguments.seed}; see {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
