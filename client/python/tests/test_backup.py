"""Tests that the command line can restore a backup that this client wrote."""

import json
import subprocess
import tarfile

import pytest
from conftest import PROGRAM
from harness import Daemon

import trainyard


def test_a_backup_is_restored_with_its_jobs_and_models(client, trained, tmp_path_factory, daemon_folder):
    archive = tmp_path_factory.mktemp("backup") / "backup.tar"
    seen = []
    summary = client.backup(archive, progress=seen.append)
    assert list(summary.warnings) == [] and seen[-1].done_bytes == seen[-1].total_bytes == summary.size_bytes
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile("manifest.json"))
    assert names[-1] == "manifest.json" and len(manifest["files"]) == summary.file_count
    state = daemon_folder / "restored"
    subprocess.run([PROGRAM, "server", "restore", str(archive), "--state-dir", str(state)], check=True)
    restored = Daemon(state).start()
    try:
        with trainyard.Client(f"unix:{restored.socket}", program=PROGRAM) as other:
            assert other.model(trained).digest == client.model(trained).digest
    finally:
        restored.stop()


def test_a_backup_that_cannot_be_written_leaves_nothing(client, tmp_path):
    with pytest.raises(OSError):
        client.backup(tmp_path / "no/such/folder.tar")
    assert list(tmp_path.iterdir()) == []
