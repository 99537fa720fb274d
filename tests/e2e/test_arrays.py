"""Tests of arrays: jobs that differ in some values and are submitted, followed, steered and deleted
together."""

import json
import threading
import time
import unittest
import uuid

from harness import DaemonTest, digits_spec, wait_until

GRID = """array:
  grid:
    recipe.optimizer.learning_rate: [0.1, 0.05, 0.01]
    model.mlp.hidden: [[16], [32, 16]]
"""


class Arrays(DaemonTest):
    def array(self, name):
        return self.daemon.json("array", "get", name)

    def states(self, name):
        return {count["state"]: count["count"] for count in self.array(name)["states"]}

    def spec(self, name, array, epochs=3, model="  mlp: {hidden: [8]}"):
        path = digits_spec(self.folder, name, model, "  validation_split: 0.2\n")
        text = path.read_text()
        for line in text.splitlines():
            if line.strip().startswith("epochs:"):
                text = text.replace(line, f"  epochs: {epochs}")
        return self.write(f"{name}.yaml", text + array)

    def test_an_array_of_six_trains_and_its_best_comes_first(self):
        spec = self.spec("sweep", GRID)
        dry = self.daemon.cli("submit", spec, "--dry-run")
        self.assertRegex(dry.stdout, r"members: +6\n")
        self.assertEqual(self.daemon.cli("submit", spec, "--wait").stdout, "sweep\n")
        self.assertEqual(self.states("sweep"), {"SUCCEEDED": 6})
        jobs = self.daemon.json("list", "--array", "sweep")["jobs"]
        self.assertEqual(sorted(job["name"] for job in jobs), [f"projects/default/jobs/sweep-{i}" for i in range(6)])
        for job in jobs:
            recipe, values = job["spec"]["recipe"], job["array_values"]
            self.assertEqual(recipe["optimizer"]["learning_rate"], json.loads(values["recipe.optimizer.learning_rate"]))
            self.assertEqual([int(n) for n in job["spec"]["model"]["mlp"]["hidden"]], json.loads(values["model.mlp.hidden"]))
        table = self.daemon.cli("array", "get", "sweep").stdout.split("\n\n")[1].splitlines()
        self.assertEqual(table[0].split(), ["MEMBER", "STATE", "DONE", "val/accuracy", "hidden", "learning_rate"])
        best = [float(line.split()[3]) for line in table[1:7]]
        self.assertEqual(best, sorted(best, reverse=True))
        self.assertGreater(best[0], 0.5)
        listed = self.daemon.cli("list").stdout
        self.assertIn("sweep        6  6 SUCCEEDED", listed)
        self.assertNotIn("sweep-0", listed)
        self.assertIn("It is a member of the array sweep, number 2: model.mlp.hidden = [16], "
                      "recipe.optimizer.learning_rate = 0.01", self.daemon.cli("explain", "sweep-2").stdout)
        self.assertEqual(self.daemon.cli("wait", "sweep").returncode, 0)
        again = self.daemon.cli("submit", spec, check=False)
        self.assert_refused(again, 5, "ARRAY_EXISTS", "sweep")
        predicted = self.daemon.cli("model", "export", "sweep-0", "--out", str(self.folder / "exported"), check=False)
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        self.daemon.cli("delete", "sweep-5", "--yes")
        self.assertEqual(self.states("sweep"), {"SUCCEEDED": 5})
        self.daemon.cli("array", "delete", "sweep", "--yes")
        self.assertEqual(self.daemon.json("list")["jobs"], [])

    def test_an_array_is_cancelled_as_one(self):
        spec = self.spec("endless", "", epochs=1000000)
        self.daemon.cli("submit", spec, "--grid", "recipe.seed=[1, 2, 3, 4, 5, 6, 7, 8]")
        wait_until(lambda: self.states("endless").get("RUNNING"), "one of them runs")
        self.daemon.cli("array", "pause", "endless")
        wait_until(lambda: self.states("endless") == {"PAUSED": 8}, "all are paused")
        self.daemon.cli("array", "resume", "endless")
        wait_until(lambda: self.states("endless").get("RUNNING"), "one of them runs again")
        conflict = self.daemon.cli("array", "delete", "endless", "--yes", check=False)
        self.assert_refused(conflict, 5, "JOB_STATE_CONFLICT", "cancel it and wait")
        self.daemon.cli("array", "cancel", "endless")
        self.assertEqual(self.daemon.cli("wait", "endless", "--timeout", "600", check=False).returncode, 8)
        self.assertEqual(self.states("endless"), {"CANCELLED": 8})
        self.daemon.cli("array", "delete", "endless", "--yes")

    def test_an_acknowledged_array_survives_a_kill_whole(self):
        spec = self.spec("killed", "array: {random: {count: 3000, seed: 4, values: {recipe.optimizer.learning_rate: "
                         "{log_uniform: {low: 1e-4, high: 0.1}}, recipe.seed: {integers: {low: 0, high: 1000000}}}}}\n",
                         epochs=1000000)
        self.daemon.cli("submit", spec)
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(sum(self.states("killed").values()), 3000)
        self.daemon.cli("array", "cancel", "killed")
        self.daemon.kill()
        self.daemon.start()
        wait_until(lambda: self.states("killed") == {"CANCELLED": 3000}, "the cancel was acknowledged: all of them have it")
        self.daemon.cli("array", "delete", "killed", "--yes")

    def test_a_kill_while_it_is_submitted_leaves_all_members_or_none(self):
        spec = self.spec("halves", "array: {random: {count: 3000, values: {recipe.seed: {integers: {low: 0, high: "
                         "1000000000}}}}}\n", epochs=1000000)
        found = set()
        for attempt in range(4):
            request = str(uuid.UUID(int=attempt + 1, version=4))
            arguments = ("submit", spec, "--request-id", request, "--set", f"name=halves{attempt}")
            submit = threading.Thread(target=lambda: self.daemon.cli(*arguments, check=False))
            submit.start()
            time.sleep(0.05 + 0.08 * attempt)
            self.daemon.kill()
            self.daemon.start()
            submit.join()  # it may have sent the request again
            self.daemon.cli(*arguments)
            count = len(self.daemon.json("list", "--array", f"halves{attempt}", "--limit", "10000")["jobs"])
            self.assertEqual(count, 3000)
            names = self.daemon.cli("list", "-o", "name", "--limit", "100000").stdout.split()
            found.add(sum(name.startswith(f"halves{attempt}-") for name in names))
            self.daemon.cli("array", "cancel", f"halves{attempt}")
            self.daemon.cli("wait", f"halves{attempt}", "--timeout", "600", check=False)
            self.daemon.cli("array", "delete", f"halves{attempt}", "--yes")
        self.assertEqual(found, {3000}, "sent twice, stored once")

    def test_errors_name_the_member_and_the_line(self):
        spec = self.spec("wrong", "array:\n  grid:\n    recipe.optimizer.learning_rate: [0.1, -1]\n")
        refused = self.daemon.cli("submit", spec, check=False)
        self.assert_refused(refused, 2, "wrong.yaml:", "member 1 (recipe.optimizer.learning_rate: -1)", "more than 0")
        spec = self.spec("wrong", "array: {random: {count: 10000000, values: {recipe.seed: {integers: {low: 0, high: "
                         "9}}}}}\n")
        self.assert_refused(self.daemon.cli("submit", spec, check=False), 2, "ARRAY_SIZE_INVALID", "10000000", "at most 10000")
        self.assertNotIn("wrong", self.daemon.cli("list", "-o", "name").stdout)


if __name__ == "__main__":
    unittest.main()
