"""Every test talks to a real daemon (tests/e2e/harness.py). The messages are regenerated, so that they match proto/."""

import gzip
import os
import pathlib
import sys
import tempfile

import numpy as np
import pytest

PYTHON = pathlib.Path(__file__).resolve().parents[1]
SOURCE = PYTHON.parents[1]
sys.path[:0] = [str(PYTHON), str(PYTHON / "src"), str(SOURCE / "tests/e2e")]

from generate import generate  # noqa: E402

generate(PYTHON / "src")

import trainyard  # noqa: E402
from harness import PATIENCE_S, Daemon  # noqa: E402

PROGRAM = str(pathlib.Path(os.environ["TRAINYARD_BIN"]).resolve() / "trainyard")
NO_TORCH = "needs PyTorch with onnx and onnxscript (scripts/test --torch installs them: several GB)"
DIGITS = SOURCE / "examples/digits.csv.gz"


@pytest.fixture(scope="session")
def daemon_folder():
    # tmp_path is not used, because the path of a Unix socket may have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="trainyard-py-") as folder:
        yield pathlib.Path(folder)


@pytest.fixture(scope="session")
def daemon(daemon_folder):
    (daemon_folder / "allowed").mkdir()
    running = Daemon(daemon_folder / "state", "--ingest-root", str(daemon_folder / "allowed")).start()
    yield running
    running.stop()


@pytest.fixture
def own_daemon():
    """Yields a daemon that a test may kill."""
    with tempfile.TemporaryDirectory(prefix="trainyard-py-") as folder:
        running = Daemon(pathlib.Path(folder) / "state").start()
        yield running
        running.stop()


@pytest.fixture(scope="session")
def client(daemon):
    with trainyard.Client(f"unix:{daemon.socket}", program=PROGRAM, timeout_s=PATIENCE_S) as connected:
        yield connected


@pytest.fixture(scope="session")
def digits():
    """Returns pixels [1797, 64] from 0 to 16, and labels."""
    with gzip.open(DIGITS) as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.int64)
    return rows[:, :64], rows[:, 64]


def digits_spec(**changes):
    """Returns a small job on the digits, as a dict; `changes` replace parts of its recipe."""
    return {
        "dataset": {"path": str(DIGITS),
                    "csv": {"header": False, "target": "c64", "target_kind": "class", "image": [1, 8, 8]}},
        "model": {"mlp": {"hidden": [64]}},
        "recipe": {"epochs": 8, "batch_size": 50, "seed": 5, "validation_split": 0.2,
                   "optimizer": {"type": "adam", "learning_rate": 0.003}, **changes},
    }


@pytest.fixture(scope="session")
def trained(client):
    return client.wait(client.submit(digits_spec(), name="trained"))


# A recipe long enough for a test to act while it runs. The test cancels the job, or it ends with its daemon.
ENDLESS = {"epochs": 100_000, "checkpoint_every_steps": 50}
