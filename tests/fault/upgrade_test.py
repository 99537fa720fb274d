"""Kills an upgrade of the store and its undo at every file operation (F22).

The daemon of a later release with invented migrations opens a state folder of schema 1: it copies
the store and migrates it. `--undo-upgrade` then reverts this. Both are killed before and after each
file operation, and repeated. Each time, the copy must have every earlier row, including those in
the log; the daemon must start; the undo must restore every row; and the upgraded store must be
kept.

    python3 tests/fault/upgrade_test.py --all
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from harness import BIN, PATIENCE_S, Daemon, preloaded  # noqa: E402

LIBRARY = os.environ.get("TRAINYARD_KILL_POINTS", "")
DAEMON = os.environ.get("TRAINYARD_LATER_DAEMON", "")
SCHEMA = HERE.parents[1] / "server/store/migrations/0001_init.sql"
ROWS = HERE.parent / "golden/store_rows.sql"
APPLICATION_ID = 0x54594152  # "TYAR", from server/store/migrations.h
COPY = "trainyard.db.schema-1"
ARGUMENTS = ["--worker", BIN / "trainyard-worker", "--measure-after-seconds=-1"]
# The first operation of a start after the store is open. Later points belong to
# kill_points_test.py.
OPENED = "rename trainyard.db.commit.tmp"


def make_older(state):
    state.mkdir()
    db = sqlite3.connect(state / "trainyard.db")
    db.executescript(SCHEMA.read_text() + ROWS.read_text())
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 1")
    db.execute("PRAGMA journal_mode = WAL")
    # These changes stay in the log, as after a kill. Python's connection would empty the log when
    # it closes, a daemon's does not.
    log = state / "trainyard.db-wal"
    db.execute("UPDATE jobs SET message = 'in the log' WHERE id = 'open-1'")
    db.commit()
    kept = log.read_bytes(), (state / "trainyard.db").read_bytes()
    db.close()
    log.write_bytes(kept[0])
    (state / "trainyard.db").write_bytes(kept[1])


def rows(path):
    """Returns every row except the record that a daemon ran. Reads a copy of the files, since SQLite would empty the
    log."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("", "-wal"):
            if pathlib.Path(f"{path}{suffix}").exists():
                shutil.copy(f"{path}{suffix}", f"{folder}/db{suffix}")
        db = sqlite3.connect(f"{folder}/db")
        try:
            return [line for line in db.iterdump() if "VALUES('opened'" not in line]
        finally:
            db.close()


def points_of(state, kill="", log=""):
    return {"TRAINYARD_POINTS_OF": pathlib.Path(DAEMON).name, "TRAINYARD_POINTS_UNDER": str(state), "TRAINYARD_POINTS_KILL": kill,
            "TRAINYARD_POINTS_ONCE": str(state.parent / "once"), "TRAINYARD_POINTS_LOG": log, "LD_PRELOAD": preloaded(LIBRARY)}


def undo(state, **environment):
    return subprocess.run([DAEMON, "--state-dir", state, "--undo-upgrade"], capture_output=True, text=True,
                          timeout=PATIENCE_S, env=dict(os.environ, **environment))


def upgrade_killed(kill, before):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-upgrade-"))
    state, found = folder / "state", []
    make_older(state)
    daemon = Daemon(state, *ARGUMENTS, program=DAEMON, env=points_of(state, kill))
    try:
        daemon.start()
    except AssertionError as e:
        if daemon.process.poll() != -signal.SIGKILL:
            return [f"killed at {kill}: {e}"], False
    killed = (folder / "once").exists()
    daemon.stop()
    if (state / COPY).exists() and rows(state / COPY) != before:
        found.append("the copy that the kill left is not whole")
    daemon = Daemon(state, *ARGUMENTS, program=DAEMON).start()
    if daemon.job("open-1")["name"].rsplit("/")[-1] != "open-1":
        found.append("a job is lost")
    if daemon.stop() != 0:
        found.append(f"the daemon ended with {daemon.process.returncode}")
    if rows(state / COPY) != before:
        found.append("the copy is not whole")
    done = undo(state)
    if done.returncode != 0 or rows(state / "trainyard.db") != before:
        found.append(f"the way back: {done.returncode} {done.stderr}")
    if not found:
        shutil.rmtree(folder)
    return [f"upgrade killed at {kill}: {line} ({folder})" for line in found], killed


def undo_killed(kill, before, upgraded):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-upgrade-"))
    state, found = folder / "state", []
    shutil.copytree(upgraded, state, ignore=shutil.ignore_patterns("*.sock"))
    after = rows(state / "trainyard.db")
    code = undo(state, **points_of(state, kill)).returncode
    if code not in (0, -signal.SIGKILL):
        found.append(f"ended with {code}")
    now = rows(state / "trainyard.db")
    if now not in (before, after):
        found.append("the store is neither the one nor the other")
    if now == after:
        done = undo(state)
        if done.returncode != 0:
            found.append(f"cannot be repeated: {done.stderr}")
    if rows(state / "trainyard.db") != before:
        found.append("the store is not the one of before")
    kept = [path for path in state.glob("trainyard.db.schema-*") if path.name != COPY]
    if len(kept) != 1 or rows(kept[0]) != after:
        found.append(f"the store that was upgraded is not kept: {kept}")
    if not found:
        shutil.rmtree(folder)
    return [f"undo killed at {kill}: {line} ({folder})" for line in found], (folder / "once").exists() or code != 0


def every(points):
    times, found = {}, []
    for point in points:
        times[point] = times.get(point, 0) + 1
        found += [f"{point}#{times[point]} {when}" for when in ("before", "after")]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="at each place, not at each of the copy and some others")
    parser.add_argument("--more", type=int, default=4, help="how many others")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for variable, path in (("TRAINYARD_KILL_POINTS", LIBRARY), ("TRAINYARD_LATER_DAEMON", DAEMON)):
        if not pathlib.Path(path).is_file():
            print(f"{variable} does not name a file")
            return 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-upgrade-"))
    state, log = folder / "state", folder / "points"
    make_older(state)
    before = rows(state / "trainyard.db")
    daemon = Daemon(state, *ARGUMENTS, program=DAEMON, env=points_of(state, log=str(log))).start()
    assert f"name={COPY}" in daemon.log(), daemon.log()
    assert daemon.stop() == 0, daemon.log()
    opening = log.read_text().splitlines()
    opening = every(opening[:opening.index(OPENED) + 1])
    log.unlink()
    undone = folder / "undone/state"
    shutil.copytree(state, undone, ignore=shutil.ignore_patterns("*.sock"))
    done = undo(undone, **points_of(undone, log=str(log)))
    assert done.returncode == 0 and "kept as trainyard.db.schema-" in done.stdout, done
    taking_back = every(log.read_text().splitlines())

    rng = random.Random(arguments.seed)
    found = []
    for kills, must in ((opening, "schema-*"), (taking_back, "schema-*")):
        if not any(must in kill for kill in kills):
            found.append(f"no place that names the copy among {kills}")
    if not arguments.all:
        def some(kills, must):
            first = [kill for kill in kills if must(kill)]
            rest = [kill for kill in kills if not must(kill)]
            return first + rng.sample(rest, min(len(rest), arguments.more))
        opening = some(opening, lambda kill: "schema-*" in kill and kill.split("#")[1][:2] == "1 ")
        taking_back = some(taking_back, lambda kill: kill.startswith(("rename", "remove", "sync")))
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as cluster:
        runs = [cluster.submit(upgrade_killed, kill, before) for kill in opening]
        runs += [cluster.submit(undo_killed, kill, before, state) for kill in taking_back]
        for run in runs:
            problems, killed = run.result()
            found += problems
            missed += not killed
    if missed:
        found.append(f"{missed} kills killed nobody")
    print(f"{len(opening)} kills of an upgrade, {len(taking_back)} of the way back, seed {arguments.seed}")
    for line in found:
        print(line)
    if not found:
        shutil.rmtree(folder)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
