"""Tests of a dataset's versions: a changed file is the next version, and jobs, models and commands
name the version that they use."""

import gzip
import unittest

from harness import EXAMPLES, DaemonTest, digits_spec, wait_until

FLAGS = ("--no-header", "--target", "c64", "--target-kind", "class", "--image", "1,8,8", "--name", "digits")


class Versions(DaemonTest):
    def upload(self, path, *arguments):
        return self.daemon.cli("dataset", "upload", "--csv", path, *FLAGS, *arguments)

    def names(self, *arguments):
        return self.daemon.cli("dataset", "list", "-o", "name", *arguments).stdout.split()

    def files(self):
        return {p.name for p in (self.daemon.state / "datasets").iterdir() if not p.name.endswith(".tmp")}

    def run_job(self, name, dataset):
        spec = digits_spec(self.folder, name, dataset=" " + dataset).read_text()
        self.daemon.submit(self.write(f"{name}.yaml", spec), "--wait")
        return self.daemon.job(name)

    def test_a_changed_file_is_the_next_version(self):
        rows = gzip.decompress((EXAMPLES / "digits.csv.gz").read_bytes()).splitlines(keepends=True)
        path = self.write("rows.csv", b"".join(rows))
        done = self.upload(path)
        self.assertEqual((done.stdout, done.stderr), ("digits@1\n", ""))
        self.assertEqual(self.upload(path).stderr, "digits@1: the same content as before\n")
        path.write_bytes(b"".join(rows[:1000]))
        done = self.upload(path)
        self.assertEqual((done.stdout, done.stderr), ("digits@2\n", "digits@2: a new version; digits@1 is kept\n"))
        first, second = (self.daemon.json("dataset", "get", name) for name in ("digits@1", "digits"))
        self.assertEqual([int(d["schema"]["train_rows"]) for d in (first, second)], [1797, 1000])
        self.assertEqual([d["version"] for d in (first, second)], [1, 2])

        # A name without a version means the newest version at the time of the submit, and stays
        # that one.
        newest, named = self.run_job("on-newest", "digits"), self.run_job("on-first", "digits@1")
        path.write_bytes(b"".join(rows[:500]))
        self.assertEqual(self.upload(path).stdout, "digits@3\n")
        for job, version, steps in ((newest, 2, 60), (named, 1, 105)):
            self.assertEqual(job["spec"]["dataset"]["name"], f"projects/default/datasets/digits@{version}")
            self.assertEqual(int(job["plan"]["steps_total"]), steps)
            short = job["name"].rpartition("/")[2]
            self.assertRegex(self.daemon.cli("get", short).stdout, rf"dataset: +digits@{version}\n")
            self.assertRegex(self.daemon.cli("model", "get", short).stdout, rf"dataset: +digits@{version}\n")
        self.assertEqual(self.names(), ["digits@3"])
        self.assertEqual(self.names("--all-versions"), ["digits@3", "digits@2", "digits@1"])
        on_third, on_first = (self.daemon.json("model", "evaluate", "on-first", d) for d in ("digits", "digits@1"))
        self.assertEqual([int(e["row_count"]) for e in (on_third, on_first)], [500, 1797])
        spec = digits_spec(self.folder, "planned", dataset=" {name: digits@1}")
        self.assertEqual(self.daemon.json("plan", spec)["spec"]["dataset"]["name"], "projects/default/datasets/digits@1")

        # A refusal of a missing version lists the existing ones.
        spec = digits_spec(self.folder, "nowhere", dataset=" digits@9")
        self.assert_refused(self.daemon.cli("submit", spec, check=False), 4, "digits@9", "versions 3, 2, 1")
        spec = digits_spec(self.folder, "nonsense", dataset=" digits@newest")
        self.assert_refused(self.daemon.cli("submit", spec, check=False), 2, "digits@newest", "digits@2")
        self.assert_refused(self.daemon.cli("dataset", "get", "digits@0", check=False), 2, "digits@0")

        # A version whose ingest failed is unusable for a job, but can be shown.
        path.write_bytes(b"1,2\n" + rows[0])
        self.assertNotEqual(self.daemon.cli("dataset", "upload", "--csv", path, *FLAGS, check=False).returncode, 0)
        self.assertEqual(self.daemon.json("dataset", "get", "digits")["state"], "FAILED")
        spec = digits_spec(self.folder, "passes-over", dataset=" digits")
        self.assertIn("digits@3", self.daemon.cli("submit", spec, "--dry-run").stdout)

        # A job keeps its version, also after a restart of the daemon.
        spec = digits_spec(self.folder, "keeps", dataset=" digits@2").read_text().replace("epochs: 3", "epochs: 100000")
        self.daemon.submit(self.write("keeps.yaml", spec))
        wait_until(lambda: self.daemon.job("keeps")["state"] == "RUNNING", "it trains")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.daemon.job("keeps")["spec"]["dataset"]["name"], "projects/default/datasets/digits@2")
        for name in ("digits@2", "digits"):
            done = self.daemon.cli("dataset", "delete", name, "--yes", check=False)
            self.assert_refused(done, 5, "digits@2 is used by the unfinished job keeps")
        self.assertEqual(self.daemon.cli("dataset", "delete", "digits@3", "--confirm=digits@3").stderr,
                         "deleted dataset digits@3\n")
        wait_until(lambda: self.daemon.job("keeps")["state"] == "RUNNING", "it trains again")
        self.daemon.cli("cancel", "keeps")
        self.daemon.cli("wait", "keeps", check=False)

        # Version numbers are not reused, and files are deleted with the last version that uses
        # them.
        self.assertEqual(self.names("--all-versions"), ["digits@4", "digits@2", "digits@1"])
        path.write_bytes(b"".join(rows))
        self.assertEqual(self.upload(path).stdout, "digits@5\n", "the content of version 1, as the newest")
        self.daemon.cli("dataset", "delete", "digits@1", "--yes")
        self.assertEqual(self.files(), {first["digest"], second["digest"]})
        self.daemon.cli("dataset", "delete", "digits@2", "--yes")
        self.assertEqual(self.files(), {first["digest"]})
        self.assertEqual(self.daemon.cli("dataset", "delete", "digits", "--yes").stderr,
                         "deleted dataset digits, all versions\n")
        self.assertEqual((self.files(), self.names("--all-versions")), (set(), []))
        self.assertEqual(self.upload(path).stdout, "digits@6\n")
        self.assertRegex(self.daemon.cli("model", "get", "on-first").stdout, r"dataset: +digits@1\n")


if __name__ == "__main__":
    unittest.main()
