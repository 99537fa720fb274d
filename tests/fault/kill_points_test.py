"""Kills the daemon or a worker at every commit point.

A commit point is before or after an operation on a file of the state folder, a start of a worker,
or a secret passed to a worker. The daemon starts again, the client continues, and all promises must
hold: I1 to I6, I8, I9 (F01, F02, F03, F07, F18, F26 at exact points).

A fixed sequence of requests, the workload, runs once with kill_points.cc, which logs the points.
POINTS lists all of them: an unlisted point is a new commit point, and the test fails until it is
listed and thus tested. Killing at all of them, before and after, takes an hour. A normal run takes
the first occurrence of each point that starts a step of its own (its text is not empty), and --more
others, chosen by the seed. With --waiting, that many jobs, the crowd, wait with a lower priority
than the workload's jobs. They run when nothing else does, and are cancelled and removed with the
workload's jobs. With --watchers, that many clients follow the workload's jobs through every
restart.

    python3 tests/fault/kill_points_test.py --all
    python3 tests/fault/kill_points_test.py --waiting 10000 --watchers 100 --more 0 --only trainyard.db
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import history  # noqa: E402
from harness import BIN, EXAMPLES, PATIENCE_S, Daemon, digits_spec, preloaded, promised_s, wait_until  # noqa: E402
from kill_storm import Clients, end_crowd, events_of, list_jobs, submit_crowd  # noqa: E402

WAIT_S = min(PATIENCE_S, 3600)  # seconds to wait for a job's end, at most what `--timeout` allows
LIBRARY = os.environ.get("TRAINYARD_KILL_POINTS", "")
DAEMON, WORKER = "trainyardd", "trainyard-worker"

POINTS = {
    DAEMON: {
        # The store is created once.
        "write lock": "the pid of who holds the store",
        "write trainyard.db.new-journal": "store: made beside its name", "sync trainyard.db.new-journal": "",
        "write trainyard.db.new": "", "sync trainyard.db.new": "", "remove trainyard.db.new-journal": "",
        "rename trainyard.db.new": "store: made",
        "write trainyard.db-journal": "store: becomes one with a log", "sync trainyard.db-journal": "",
        "remove trainyard.db-journal": "",
        "write trainyard.db.state.tmp": "store: says that there must be one", "sync trainyard.db.state.tmp": "",
        "rename trainyard.db.state.tmp": "",
        "write trainyard.db.commit.tmp": "commit mark: made", "sync trainyard.db.commit.tmp": "",
        "rename trainyard.db.commit.tmp": "",
        # Written for each change: submit, start, process, reports, checkpoint, outcome, cancel,
        # delete.
        "write trainyard.db-wal": "change: in the log", "sync trainyard.db-wal": "change: committed",
        "write trainyard.db.commit": "change: counted, not yet answered", "sync trainyard.db.commit": "",
        "write clock.tmp": "the clocks are compared", "sync clock.tmp": "", "rename clock.tmp": "",
        "write trainyard.db-shm": "log: opened", "write trainyard.db": "log: moved to the store", "sync trainyard.db": "",
        "remove worker.sock": "listens to workers", "remove trainyard.sock": "listens to clients",
        # The operations of an upload.
        "write uploads/*.*.default.part": "upload: received", "sync uploads/*.*.default.part": "upload: a part is durable, not yet its row",
        "rename uploads/*.*.default.part": "upload: its row is complete, it has not its name yet", "sync uploads": "",
        # Passing the task and the secret to a worker.
        "start worker": "spawned, the pid not yet recorded", "write pipe": "recorded, the secret not yet handed over",
        # For a fork or retry, the checkpoint is put in place before the row.
        "write jobs/*/checkpoints/step-*.tmp/state.json": "fork: its checkpoint, linked",
        "sync jobs/*/checkpoints/step-*.tmp/state.json": "", "sync jobs/*/checkpoints/step-*.tmp": "",
        "rename jobs/*/checkpoints/step-*.tmp": "fork: durable, not yet its row", "sync jobs/*/checkpoints": "",
        "sync jobs/*": "", "sync jobs": "",
        "remove jobs/*/reports-*": "the end of an attempt is stored, its spool still there",
        # The daemon moves what a worker has made to its place.
        "rename scratch/*/dataset": "dataset: durable, not yet its row", "sync datasets": "", "remove scratch/*": "",
        "rename jobs/*/model": "model: durable, not yet its row", "sync models": "",
        # Deletions: the row is deleted before the files.
        "remove jobs/*/checkpoints/step-*/state.json": "delete: job", "remove jobs/*/checkpoints/step-*": "",
        "remove jobs/*/checkpoints/step-*/optimizer.safetensors": "",
        "remove jobs/*/checkpoints/step-*/weights.safetensors": "",
        "remove jobs/*/checkpoints": "", "remove jobs/*": "",
        "remove models/*/model.json": "delete: model", "remove models/*/model.safetensors": "", "remove models/*": "",
        "remove datasets/*/data.safetensors": "delete: dataset", "remove datasets/*/digest": "",
        "remove datasets/*/schema.json": "", "remove datasets/*": "",
    },
    WORKER: {
        "write scratch/*/dataset.tmp/data.safetensors": "dataset: written",
        "sync scratch/*/dataset.tmp/data.safetensors": "",
        "write scratch/*/dataset.tmp/schema.json": "", "sync scratch/*/dataset.tmp/schema.json": "",
        "write scratch/*/dataset.tmp/digest": "", "sync scratch/*/dataset.tmp/digest": "", "sync scratch/*/dataset.tmp": "",
        "rename scratch/*/dataset.tmp": "dataset: written, the outcome is not reported", "sync scratch/*": "",
        "write jobs/*/checkpoints/step-*.tmp/weights.safetensors": "checkpoint: written",
        "sync jobs/*/checkpoints/step-*.tmp/weights.safetensors": "",
        "write jobs/*/checkpoints/step-*.tmp/optimizer.safetensors": "",
        "sync jobs/*/checkpoints/step-*.tmp/optimizer.safetensors": "",
        "write jobs/*/checkpoints/step-*.tmp/state.json": "", "sync jobs/*/checkpoints/step-*.tmp/state.json": "",
        "sync jobs/*/checkpoints/step-*.tmp": "",
        "rename jobs/*/checkpoints/step-*.tmp": "checkpoint: durable, not yet its row", "sync jobs/*/checkpoints": "",
        "rename jobs/*/checkpoints/step-*": "checkpoint: an old one is about to go",
        "remove jobs/*/checkpoints/step-*.removed.tmp/state.json": "checkpoint: an old one goes",
        "remove jobs/*/checkpoints/step-*.removed.tmp/optimizer.safetensors": "",
        "remove jobs/*/checkpoints/step-*.removed.tmp/weights.safetensors": "",
        "remove jobs/*/checkpoints/step-*.removed.tmp": "",
        "write jobs/*/reports-*": "a report: on disk, not yet sent",
        "write jobs/*/model.tmp/model.safetensors.tmp": "model: written",
        "sync jobs/*/model.tmp/model.safetensors.tmp": "", "rename jobs/*/model.tmp/model.safetensors.tmp": "",
        "sync jobs/*/model.tmp": "", "write jobs/*/model.tmp/model.json.tmp": "",
        "sync jobs/*/model.tmp/model.json.tmp": "", "rename jobs/*/model.tmp/model.json.tmp": "",
        "rename jobs/*/model.tmp": "model: written, the outcome is not reported", "sync jobs/*": "",
    },
}


class KilledDaemon(Daemon):
    """A daemon that is started again as soon as it has ended, until close()."""

    def __init__(self, folder, *arguments, env):
        super().__init__(folder, *arguments, env=env)
        self.closing = threading.Event()
        self.restarts = 0
        self.begin()
        self.keeper = threading.Thread(target=self.keep)
        self.keeper.start()

    def begin(self):
        try:
            self.start()
        except AssertionError:  # killed during its start; only one start is killed
            self.restarts += 1
            self.start()

    def keep(self):
        while not self.closing.wait(0.01):
            if self.process.poll() is not None:
                self.begin()
                self.restarts += 1  # the daemon is up, so failed steps can be repeated

    def close(self):
        self.closing.set()
        self.keeper.join()
        return self.stop()


class Crowd:
    """Jobs that wait until the workload is done, in the state of a stopped daemon, and the number of clients that watch
    the workload."""

    def __init__(self, folder, waiting, watchers):
        self.state, self.watchers, self.names = folder / "state", watchers, []
        if waiting == 0:
            return
        shutil.copy(EXAMPLES / "digits.csv.gz", folder)
        daemon = Daemon(self.state, "--threads-per-job", "1", "--cpu-slots", "2").start()
        try:
            # The crowd has other rows than the workload, so that the workload still uploads its own.
            self.names = submit_crowd(daemon, Clients(daemon, folder, 0, 0), waiting, number=1)
        finally:
            daemon.stop()


class Work:
    """A client's steps. A step is repeated if the server was lost during it."""

    ends = {"kept": "SUCCEEDED", "other": "CANCELLED", "forked": "SUCCEEDED"}  # final state by job
    endless = ("--set", "recipe.epochs=100000")
    resources = ""

    def __init__(self, daemon, folder, crowd):
        self.daemon, self.folder, self.crowd = daemon, folder, crowd
        self.history, self.end = [], None
        self.watches, self.crowd_end = [], {}
        self.requests = {name: str(uuid.uuid4()) for name in ("kept", "other")}
        self.specs = {"kept": digits_spec(folder, "kept", recipe="  checkpoint_every_steps: 40\n"),
                      "other": digits_spec(folder, "other", recipe="  checkpoint_every_steps: 1000000\n")}
        for spec in self.specs.values():
            spec.write_text(spec.read_text() + self.resources)

    def steps(self):
        return (self.submit, self.submit_other, self.watch, self.wait, self.fork, self.pause, self.resume, self.wait_for_fork,
                self.cancel_other, self.read_watches, self.end_crowd, self.look, self.thin, self.delete)

    def run(self):
        for step in self.steps():
            restarts = self.daemon.restarts
            try:
                step()
            except AssertionError as e:
                jobs = "".join(self.daemon.cli("explain", name, check=False).stdout for name in self.specs)
                wait_until(lambda: self.daemon.restarts > restarts and self.is_up(),
                           f"{step.__name__} failed, and the daemon was not lost: {e}\n{jobs}\n{self.daemon.log()[-3000:]}",
                           timeout_s=promised_s(5))
                step()

    def is_up(self):
        try:
            return self.daemon.healthy()
        except AssertionError:
            return False

    def submit(self):
        self.submitted("kept")

    def submit_other(self):
        self.submitted("other", *self.endless)

    def submitted(self, name, *more):
        request = self.requests[name]
        answer = self.daemon.submit(self.specs[name], "--request-id", request, *more)
        self.history.append({"op": "submit", "request": request, "kind": name, "job": answer.rsplit("/")[-1]})

    def watch(self):
        for number in range(self.crowd.watchers):
            name = ("kept", "other")[number % 2]
            self.watches.append((name, subprocess.Popen(
                [BIN / "trainyard", "watch", name, "-o", "jsonl"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
                env=dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}", NO_COLOR="1"))))

    def read_watches(self):
        """Each watch must follow its job to the end, across all restarts."""
        while self.watches:
            name, process = self.watches.pop()
            messages = [json.loads(line) for line in process.communicate(timeout=WAIT_S)[0].splitlines()]
            self.history.append({"op": "watched", "job": name, "after": 0, "events": events_of(messages)})

    def end_crowd(self):
        if self.crowd.names:
            self.crowd_end = end_crowd(self.daemon, self.crowd.names)

    def wait(self):
        self.daemon.cli("wait", "kept", "--timeout", WAIT_S)

    def fork(self):
        done = self.daemon.cli("fork", "kept", "--set", "recipe.epochs=5", "--name", "forked", check=False)
        if done.returncode != 0 and "JOB_EXISTS" not in done.stderr:  # committed just before the kill
            raise AssertionError(done.stderr)
        self.history.append({"op": "copied", "job": "forked", "of": "kept"})

    def pause(self):
        self.daemon.cli("pause", "other")

    def resume(self):
        self.daemon.cli("resume", "other")

    def wait_for_fork(self):
        self.daemon.cli("wait", "forked", "--timeout", WAIT_S)

    def cancel_other(self):
        job = json.loads(self.daemon.cli("cancel", "other", "-o", "json").stdout)
        self.history.append({"op": "cancel", "job": "other", "seq": int(job["newest_seq"])})

    def look(self):
        self.daemon.cli("wait", "other", "--timeout", WAIT_S, check=False)
        jobs = {}
        for name in self.ends:
            job = self.daemon.job(name)
            jobs[name] = {"state": job["state"], "reason": job["reason"], "attempt": job["attempt"], "kind": name,
                          "request": self.requests.get(name), "weights": None,
                          "origin": "kept" if name == "forked" else None, "events": events_of(self.daemon.events(name))}
            self.history.append({"op": "watched", "job": name, "after": 0, "events": events_of(self.daemon.events(name))})
        states = {name: job["state"] for name, job in jobs.items()}
        assert states == self.ends, jobs
        for name in self.succeeded():
            jobs[name]["weights"] = self.daemon.json("model", "get", name)["digest"]
        wait_until(lambda: not self.daemon.worker_pids(), "no worker is left (I8)", timeout_s=promised_s(5))
        self.end = {"jobs": jobs, "workers": [], "crowd": self.crowd_end}

    def succeeded(self):
        return [name for name, end in self.ends.items() if end == "SUCCEEDED"]

    def thin(self):
        """Thinning the events of finished jobs must keep their state changes unchanged, whenever
        the daemon is killed."""
        def states(events):
            return [event for event in events if "state" in event]

        story = {name: states(self.end["jobs"][name]["events"]) for name in self.ends}
        self.daemon.cli("server", "gc", "--keep-events", "0", "--yes")
        for name in story:
            left = states(events_of(self.daemon.events(name)))
            assert left == story[name], f"I4: {name} has {left}, not {story[name]}"
            job = self.daemon.job(name)
            assert job.get("events_thinned"), f"{name} does not say that events are missing"

    def delete(self):
        datasets = json.loads(self.daemon.cli("dataset", "list", "-o", "json").stdout)["datasets"]
        # The rule deletes the other jobs in several steps.
        self.daemon.cli("server", "gc", "--keep-jobs", "2", "--yes")
        self.daemon.cli("server", "gc", "--keep-jobs", "1", "--yes")
        # These are the jobs of the crowd that the rule kept.
        crowd = [name for name in list_jobs(self.daemon) if name in self.crowd_end]
        crowd_models = [name for name, state in self.crowd_end.items() if state == "SUCCEEDED"]
        for what, name in (*(("", name) for name in self.ends), *(("model", name) for name in self.succeeded()),
                           *(("", name) for name in crowd), *(("model", name) for name in crowd_models),
                           *(("dataset", dataset["name"].split("/")[-1].split("@")[0]) for dataset in datasets)):
            done = self.daemon.cli(*what.split(), "delete", name, "--yes", check=False)
            if done.returncode != 0 and "NOT_FOUND" not in done.stderr:  # deleted just before the kill
                raise AssertionError(done.stderr)


class Place:
    """The place where the jobs run: this machine."""

    points, work = POINTS, Work
    sometimes = frozenset()  # points that a run need not reach
    # The library writes its marks outside of the folders in which a sandboxed worker may write.
    arguments = ("--threads-per-job", "1", "--cpu-slots", "2", "--sandbox", "off")

    def environment(self, folder, program, kill, log):
        return {"TRAINYARD_POINTS_OF": program, "TRAINYARD_POINTS_UNDER": str(folder / "state"),
                "TRAINYARD_POINTS_KILL": kill, "TRAINYARD_POINTS_ONCE": str(folder / "once"), "TRAINYARD_POINTS_LOG": log,
                "LD_PRELOAD": preloaded(LIBRARY)}

    def daemon(self, folder, program, kill, log):
        worker = folder / "worker"
        delay_ms = os.environ.get("TRAINYARD_SYNC_DELAY_MS", "0")
        worker.write_text(f'#!/bin/sh\nLD_PRELOAD={preloaded(LIBRARY)} TRAINYARD_SYNC_DELAY_MS={delay_ms} '
                          f'exec {BIN / "trainyard-worker"} "$@"\n')
        worker.chmod(0o755)
        return KilledDaemon(folder / "state", "--worker", worker, *self.arguments,
                            env=self.environment(folder, program, kill, log))

    @staticmethod
    def name_of(point):
        return point.replace("/crowd-*", "/*")  # the copies' UIDs are not random

    def left_behind(self, folder):
        return left_behind(folder / "state")


def run(place, crowd, killed=None, log=""):
    """Runs the workload, with or without a kill at (program, "POINT#k before"). Returns the Work, the
    problems, the folder, and whether the kill happened."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-points-"))
    if crowd.names:
        shutil.copytree(crowd.state, folder / "state", ignore=shutil.ignore_patterns("*.sock"))
    program, kill = killed or (log[0], "")
    daemon = place.daemon(folder, program, kill, "" if killed else log[1])
    work = place.work(daemon, folder, crowd)
    found = []
    try:
        work.run()
    except AssertionError as e:
        found.append(str(e))
    finally:
        try:
            daemon.close()
        except AssertionError as e:  # in addition to earlier problems
            found.append(str(e))
        for _, process in work.watches:
            process.kill()
            process.communicate()
    if not found:
        found += place.left_behind(folder)
    return work, found, folder, (folder / "once").exists()


def left_behind(state):
    """Returns the files that nothing refers to after everything was deleted, and after one more start and stop."""
    daemon = Daemon(state).start()
    jobs = json.loads(daemon.cli("list", "--limit", 100000, "-o", "json").stdout)["jobs"]
    found = [f"I4: {job['name']} was deleted and is there" for job in jobs]
    if daemon.stop() != 0:
        found.append(f"the daemon ended with {daemon.process.returncode}")
    for name in ("jobs", "models", "datasets"):
        found += [f"nothing refers to {path.relative_to(state)}" for path in (state / name).iterdir()]
    return found


def trace(place, crowd, program):
    """Returns the points in the order of a run without a kill, and the digest of its weights."""
    with tempfile.NamedTemporaryFile() as log:
        work, found, folder, _ = run(place, crowd, log=(program, log.name))
        points = pathlib.Path(log.name).read_text().splitlines()
    assert not found, found
    shutil.rmtree(folder)
    return points, {name: work.end["jobs"][name]["weights"] for name in work.succeeded()}


def kill_at(place, crowd, killed, weights):
    work, found, folder, was_killed = run(place, crowd, killed=killed)
    if not found:
        found = history.check(work.history, dict(work.end, expected=weights))
    if not found:
        shutil.rmtree(folder)
    return [f"{killed[0]} killed at {killed[1]}: {line} ({folder})" for line in found], was_killed


def choose(named, points, program, count, rng):
    """Chooses the first occurrence of each point with a text, before or after it, and `count`
    others. With None, chooses all points, before and after."""
    times = {}
    for point in points:
        times[point] = times.get(point, 0) + 1
    every = [(program, f"{point}#{k} {when}") for point in times for k in range(1, times[point] + 1)
             for when in ("before", "after")]
    if count is None:
        return every
    first = [(program, f"{point}#1 {rng.choice(('before', 'after'))}")
             for point in times if named.get(point)]
    rest = [each for each in every if each not in first]
    return first + rng.sample(rest, min(len(rest), count))


def make_parser(description):
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--more", type=int, default=5, help="kills of each program beside those")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="points whose text contains this")
    parser.add_argument("--waiting", type=int, default=0, metavar="N", help="jobs that wait behind those of the work")
    parser.add_argument("--watchers", type=int, default=0, metavar="N", help="clients that follow the work's jobs")
    return parser


def main():
    arguments = make_parser(__doc__).parse_args()
    if not pathlib.Path(LIBRARY).is_file():
        print("TRAINYARD_KILL_POINTS does not name the library")
        return 77
    with tempfile.TemporaryDirectory(prefix="trainyard-crowd-") as folder:
        return kill_everywhere(Place(), Crowd(pathlib.Path(folder), arguments.waiting, arguments.watchers), arguments)


def kill_everywhere(place, crowd, arguments):
    rng = random.Random(arguments.seed)
    found, chosen = [], []
    for program in (DAEMON, WORKER):
        points, weights = trace(place, crowd, program)
        named = place.points[program]
        passed = [{place.name_of(point) for point in points}]
        if passed[0] != set(named):  # a second run shows which points are reached only by chance
            passed.append({place.name_of(point) for point in trace(place, crowd, program)[0]})
        always, ever = set.intersection(*passed), set.union(*passed)
        found += [f"{program}: '{point}' is a point without a name in POINTS" for point in sorted(always - set(named))]
        if not crowd.names:  # with a crowd the store exists already
            found += [f"{program}: '{point}' of POINTS does not happen"
                      for point in sorted(set(named) - ever - place.sometimes)]
        chosen += choose(named, points, program, None if arguments.all else arguments.more, rng)
    chosen = [each for each in chosen if arguments.only in each[1]]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(2) as cluster:
        results = list(cluster.map(lambda killed: kill_at(place, crowd, killed, weights), chosen))
    for problems, _ in results:
        found += problems
    missed = sum(not killed for _, killed in results)
    print(f"{len(chosen)} kills in {time.monotonic() - begin:.0f} s, seed {arguments.seed}, with {len(crowd.names)} jobs waiting "
          f"and {crowd.watchers} watchers; {missed} came too late to kill: "
          "threads had met in another order")
    if missed > len(chosen) // 5:
        found.append("more than a fifth of the kills killed nobody")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
