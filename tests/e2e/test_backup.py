"""Tests that a backup of a busy server, restored elsewhere, loses nothing and no bit of a job's
result."""

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
import unittest

from harness import BIN, PATIENCE_S, Daemon, DaemonTest, digits_spec, wait_until

RECIPE = """  validation_split: 0.2
  checkpoint_every_steps: 200
"""


def check(state):
    """Runs `trainyardd --check` on a state folder."""
    return subprocess.run([BIN / "trainyardd", "--check", "--state-dir", str(state)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=PATIENCE_S)


class Backup(DaemonTest):
    arguments = ["--cancel-grace-seconds", "3"]

    def long_job(self, name, epochs=400):
        spec = digits_spec(self.folder, name, recipe=RECIPE)
        spec.write_text(spec.read_text().replace("epochs: 3", f"epochs: {epochs}"))
        return self.daemon.submit(spec)

    def wait_for_checkpoint(self, name):
        def saved():
            job = self.daemon.job(name)
            self.assertNotIn(job["state"], ("SUCCEEDED", "FAILED"), "too fast or failed: " + str(job))
            return int(job.get("checkpoint_step", 0)) > 0
        wait_until(saved, f"{name} has a checkpoint")

    def restored(self, archive, name):
        """Restores the archive and starts a second daemon on that folder."""
        self.daemon.cli("server", "restore", archive, "--state-dir", self.folder / name)
        daemon = Daemon(self.folder / name).start()
        self.addCleanup(daemon.stop)
        return daemon

    def losses(self, daemon, name):
        text = daemon.cli("metrics", "export", name, "--json", "-").stdout
        return json.loads(text)["jobs"][0]["metrics"]["train/loss"]

    def test_a_running_job_continues_on_another_host_with_the_same_result(self):
        name = self.long_job("goes-on", epochs=2000)
        queued = self.long_job("queued-behind", epochs=3)
        self.wait_for_checkpoint(name)
        archive = self.folder / "goes-on.tar"
        done = self.daemon.cli("server", "backup", archive)
        self.assertEqual(done.stdout, f"{archive}\n")
        self.assertEqual(archive.stat().st_mode & 0o777, 0o600)
        self.assertFalse((self.daemon.state / "backup.staging").exists())
        with tarfile.open(archive) as tar:
            names = tar.getnames()
        self.assertEqual(names[-1], "manifest.json")
        self.assertIn("trainyard.db", names)
        other = self.restored(archive, "elsewhere")
        self.assertEqual(self.daemon.job(name)["state"], "RUNNING", "it ended too early: make it longer")
        for daemon in (other, self.daemon):
            daemon.cli("wait", name)
            daemon.cli("wait", queued)
        for job in (name, queued):
            digests = {d.json("model", "get", job)["digest"] for d in (other, self.daemon)}
            self.assertEqual(len(digests), 1, f"{job}: the restored job has other weights")
        self.assertEqual(self.daemon.job(name)["attempt"], 1, "the restored daemon ended the first one's worker")
        states = [e["state"] for e in other.events(name) if "state" in e]
        self.assertGreater(int([s for s in states if s["state"] == "RUNNING"][-1].get("resumed_from_step", 0)), 0,
                           "it started over")
        whole, resumed = self.losses(self.daemon, name), self.losses(other, name)
        self.assertEqual((whole["steps"], whole["values"]), (resumed["steps"], resumed["values"]), "a hole in the metrics")

    def test_backups_while_jobs_are_submitted_train_and_end(self):
        self.daemon.submit(digits_spec(self.folder, "finished-first"), "--wait")
        name = self.long_job("meanwhile")
        self.wait_for_checkpoint(name)
        archives = []
        for i in range(4):
            self.daemon.submit(digits_spec(self.folder, f"short-{i}"))
            archives.append(self.folder / f"meanwhile-{i}.tar")
            done = self.daemon.cli("server", "backup", archives[-1])
            self.assertEqual(done.stderr, "")
        for i, archive in enumerate(archives):
            self.daemon.cli("server", "restore", archive, "--state-dir", self.folder / f"meanwhile-{i}")
            done = check(self.folder / f"meanwhile-{i}")
            self.assertEqual(done.returncode, 0, done.stdout)
        other = Daemon(self.folder / "meanwhile-3").start()
        self.addCleanup(other.stop)
        listed = {job["name"].split("/")[-1] for job in other.json("list")["jobs"]}
        self.assertLessEqual({"finished-first", "meanwhile", *(f"short-{i}" for i in range(4))}, listed)
        model = self.folder / "model"
        other.cli("model", "export", "finished-first", "--out", model)
        self.assertTrue((model / "model.safetensors").exists())
        self.daemon.cli("cancel", name)

    def test_standard_output_and_input(self):
        environment = dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}")
        archive = subprocess.run([BIN / "trainyard", "server", "backup", "-"], capture_output=True, env=environment,
                                 check=True, timeout=PATIENCE_S).stdout
        done = subprocess.run([BIN / "trainyard", "server", "restore", "-", "--state-dir", self.folder / "piped"],
                              input=archive, capture_output=True, env=environment, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(check(self.folder / "piped").returncode, 0)
        self.assertEqual(self.daemon.cli("server", "backup", self.folder / "plain.tar", "-o", "json").stderr, "")

    def test_a_client_that_is_interrupted_or_killed_leaves_nothing(self):
        big = self.write("big.txt", b"abcdefgh " * (2 << 20))
        self.daemon.cli("dataset", "upload", "--text", big, "--name", "bigtext")
        environment = dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}")
        staging = self.daemon.state / "backup.staging"
        for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
            archive = self.folder / f"left-{number}.tar"
            # Unread standard output stops the backup in the middle.
            started = subprocess.Popen([BIN / "trainyard", "server", "backup", "-"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, env=environment)
            wait_until(staging.exists, "the backup is under way")
            busy = self.daemon.cli("server", "backup", archive, check=False)
            self.assert_refused(busy, 5, "BACKUP_BUSY")
            self.assertFalse(archive.exists())
            if number == signal.SIGINT:
                started.send_signal(number)
                started.stdout.close()
            else:
                started.kill()
                started.stdout.close()
            self.assertNotEqual(started.wait(PATIENCE_S), 0)
            wait_until(lambda: not staging.exists(), "the links are removed")
        archive = self.folder / "interrupted.tar"
        archive.write_text("the earlier one")
        for _ in range(20):  # repeat until a backup is interrupted in the middle
            started = subprocess.Popen([BIN / "trainyard", "server", "backup", archive], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, env=environment)
            part = archive.with_name(archive.name + ".part")
            while started.poll() is None and not part.exists():
                time.sleep(0.001)
            started.send_signal(signal.SIGINT)
            code = started.wait(PATIENCE_S)
            started.stderr.close()
            self.assertFalse(part.exists())
            if code != 0:
                break
        self.assertEqual(code, 130)
        self.assertEqual(archive.read_text(), "the earlier one")
        wait_until(lambda: self.daemon.log().count("event=backup_started") == self.daemon.log().count("event=backup_ended"),
                   "the daemon has noticed, and takes the next one")
        wait_until(lambda: not staging.exists(), "the links are removed")
        self.daemon.cli("server", "backup", archive)  # the place for a backup is free again

    def test_restore_refuses_invalid_archives_and_folders(self):
        archive = self.folder / "refused.tar"
        self.daemon.cli("server", "backup", archive)
        whole = archive.read_bytes()
        target = self.folder / "never"

        def refused(content, *words, state=target, code=1):
            archive.write_bytes(content)
            self.assert_refused(self.daemon.cli("server", "restore", archive, "--state-dir", state, check=False), code,
                                *words)
            self.assertEqual(list(self.folder.glob(".*restore-*")), [])
        refused(whole[:len(whole) // 2], "BACKUP_DAMAGED")
        refused(whole[:whole.rindex(b"manifest.json")], "BACKUP_DAMAGED", "manifest")
        flipped = bytearray(whole)
        flipped[whole.index(b"SQLite format 3") + 5000] ^= 1
        refused(bytes(flipped), "BACKUP_DAMAGED", "trainyard.db")
        self.assertFalse(target.exists())
        refused(whole, "STATE_DIR_NOT_EMPTY", state=self.daemon.state, code=5)
        self.assert_refused(self.daemon.cli("server", "restore", archive, check=False), 2, "--state-dir")
        self.assert_refused(self.daemon.cli("server", "backup", self.folder / "no/such/folder.tar", check=False), 4,
                            "FILE_NOT_FOUND")
        self.assert_refused(self.daemon.cli("server", "backup", archive, "--server", f"unix:{self.folder}/none",
                                            check=False), 7, "SERVER_NOT_RUNNING")
        self.assertEqual(archive.read_bytes(), whole, "a server that is not there cost the earlier backup")

    def test_check_names_damaged_files(self):
        self.daemon.submit(digits_spec(self.folder, "model-of"), "--wait")
        name = self.long_job("damaged")
        self.wait_for_checkpoint(name)
        archive = self.folder / "damaged.tar"
        self.daemon.cli("server", "backup", archive)
        self.daemon.cli("cancel", name)
        state = self.folder / "damaged"
        self.daemon.cli("server", "restore", archive, "--state-dir", state)
        self.assertEqual(check(self.daemon.state).returncode, 1, "a daemon has it")
        well = check(state)
        self.assertEqual(well.returncode, 0, well.stdout + well.stderr)
        for kind in ("store", "uploads", "datasets", "models", "jobs"):
            self.assertRegex(well.stdout, rf"(?m)^{kind} +ok ")
            self.assertIn("checking", well.stderr)
        for pattern, words in (("models/*/model.safetensors", r"model +damaged +model-of: .*SHA-256.*backup"),
                               ("datasets/*/data.safetensors", r"dataset +damaged +d-.*digest.*upload"),
                               ("jobs/*/checkpoints/*/weights.safetensors", r"job +damaged +damaged: .*step-0.*the job")):
            files = list(state.glob(pattern))
            self.assertTrue(files, pattern)
            before = {file: file.read_bytes() for file in files}
            for file, content in before.items():
                file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            done = check(state)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertTrue(re.search(words, done.stdout), f"{words} in:\n{done.stdout}")
            for file, content in before.items():
                file.write_bytes(content)
        (state / "datasets/stray").mkdir()
        (state / "datasets/stray/x").write_bytes(b"x" * 4096)
        done = check(state)
        self.assertEqual(done.returncode, 0, "unused files lose nothing")
        self.assertRegex(done.stdout, r"files +unused +datasets/stray, 4 KiB")
        shutil.rmtree(state / "datasets/stray")


class LowDisk(DaemonTest):
    arguments = ["--disk-free-bytes-min", "60000GiB"]

    def test_a_full_disk_refuses_new_work_and_warns_the_operator(self):
        done = self.daemon.cli("submit", digits_spec(self.folder, "no-room"), check=False)
        self.assert_refused(done, 6, "DISK_LOW", "free", "58.6 TiB")
        self.assertIn("disk_free_bytes_min", self.daemon.cli("server", "status").stdout)
        self.assertEqual(self.daemon.log().count("event=disk_low"), 1)
        self.assertEqual(self.daemon.cli("list").returncode, 0)
        self.daemon.cli("server", "backup", self.folder / "low.tar")
        self.daemon.stop()
        self.daemon.arguments = ["--disk-free-bytes-min", "0"]
        self.daemon.start()
        self.daemon.submit(digits_spec(self.folder, "has-room"), "--wait")


if __name__ == "__main__":
    unittest.main(verbosity=2)
