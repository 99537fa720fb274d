"""Runs many network storms with different seeds between a daemon and the nodes of a real Slurm, for
jobs of one node and of four. Takes minutes.
    TRAINYARD_STORMS=10 ctest --preset release -R e2e_test_storms    # the number of seeds
"""

import os
import random
import sys
import time
import unittest

from harness import SOURCE
from test_slurm import StormyTest
from test_slurm_nodes import SlurmNodesTest

sys.path.insert(0, str(SOURCE / "tests/support"))
import slurm  # noqa: E402

STORMS = int(os.environ.get("TRAINYARD_STORMS", "0"))


class Storms:
    """For each seed, runs a job that only the network disturbs, and silences both directions."""

    def test_storms(self):
        for seed in range(STORMS):
            with self.subTest(seed=seed):
                chance = random.Random(seed)
                name = f"storm-{seed}"
                self.link.seed = seed
                self.begin(name, step=chance.randint(1, 20))
                for _ in range(chance.randint(0, 2)):
                    self.link.silence(chance.choice(("there", "back")))
                    time.sleep(chance.uniform(0, 5))
                self.assert_whole(name)
        self.assertGreater(self.link.stalls + self.link.resets, 0, "or they were calm")


class OneNode(Storms, StormyTest):
    pass


class FourNodes(Storms, StormyTest, SlurmNodesTest):
    pass


if __name__ == "__main__":
    reason = slurm.missing() or ("" if STORMS else "takes minutes: set TRAINYARD_STORMS to a number of seeds")
    if reason:
        print(reason)
        sys.exit(slurm.SKIPPED)
    unittest.main()
