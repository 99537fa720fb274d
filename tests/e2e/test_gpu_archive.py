"""Packs the archive of scripts/gpu_check from this build. It is small enough to travel, and its
programs start in a root that has nothing else but the C and C++ runtime: no other library of Debian.
With Python and a shell in the root, a whole stage runs there, on the emulated GPU."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from gpu_check import data, pack, place  # noqa: E402
from harness import BIN  # noqa: E402

BUILD = BIN.parent
DATA_BYTES = 7_000_000  # the real data sets of an archive, packed; this test packs small ones
EMPTY = pathlib.PurePosixPath("/trainyard_gpu_check")  # the archive in the root
NOT_OF_PYTHON = shutil.ignore_patterns("site-packages", "dist-packages", "test", "tests", "__pycache__", "idlelib", "tkinter",
                                       "ensurepip", "config-*", "lib2to3", "turtledemo")


def make_data(folder):
    """Data sets with the names of the real ones, which a machine may lack."""
    for name in data.FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"none")
    (folder / data.CIFAR10_WHOLE).parent.mkdir(parents=True)
    (folder / "image").write_bytes(b"none")
    with tarfile.open(folder / data.CIFAR10_WHOLE, "w:xz") as tar:
        tar.add(folder / "image", "train/cat/1.jpg")


def copy_into(root, path):
    """Copies a file to the same path in the root, for a library also under the name of its link."""
    target = root / str(path).lstrip("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def lines_of_ldd(file):
    return subprocess.run(["ldd", file], capture_output=True, text=True).stdout.splitlines()


def copy_libraries(root, files, wanted=lambda name: True):
    for file in files:
        for line in lines_of_ldd(file):
            name, _, path = line.strip().partition(" => ")
            if path.startswith("/") and wanted(name):
                copy_into(root, pathlib.Path(path.split()[0]))
    copy_into(root, pathlib.Path("/lib64/ld-linux-x86-64.so.2"))


class PackedArchive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="trainyard-archive-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.data = pathlib.Path(cls.scratch.name) / "data"
        make_data(cls.data)

    def fill(self, parent, emulated):
        folder = pathlib.Path(self.scratch.name) / parent / EMPTY.name
        folder.mkdir(parents=True)
        pack.fill(folder, BUILD, self.data, emulated)
        return folder

    def test_it_is_small_enough_to_travel(self):
        if not (BUILD / "lib/trainyard/libtrainyard_cuda.so").exists():
            self.skipTest("a build without CUDA")
        # The archive is packed with preset 6, which takes minutes and makes it smaller than preset 2.
        size = pack.compress(self.fill("real", emulated=False), pathlib.Path(self.scratch.name) / "real.tar.xz", preset=2)
        self.assertLess(size + DATA_BYTES, pack.BYTES_MAX)
        self.assertGreater(size, 10_000_000, "programs are missing")

    def chroot(self, root, command, **env):
        return subprocess.run(["chroot", root, *map(str, command)], capture_output=True, text=True, timeout=900,
                              env={"PATH": "/bin:/usr/bin:/sbin:/usr/sbin", **{name: str(value) for name, value in env.items()}})

    def test_it_runs_in_a_bare_root(self):
        if os.geteuid() != 0:
            self.skipTest("chroot needs root")
        archive = self.fill("root", emulated=True)
        root = archive.parent
        (root / "tmp").mkdir(mode=0o1777)
        programs = [p for folder in ("bin", "test_programs") for p in (archive / folder).iterdir()]
        copy_libraries(root, programs, lambda name: pack.HOSTS_OWN.match(name))
        others = [p.name for p in root.rglob("*.so*") if p.is_file() and archive not in p.parents
                  and not pack.HOSTS_OWN.match(p.name)]
        self.assertEqual(others, [], "the root has libraries that a host may lack")
        self.check_programs(root, programs)
        self.check_stage(root)

    def check_programs(self, root, programs):
        (root / "nvml").mkdir()
        (root / "nvml/libnvidia-ml.so.1").symlink_to(EMPTY / "lib" / place.EMULATED_NVML)
        env = {"LD_LIBRARY_PATH": f"/nvml:{EMPTY}/lib", "TRAINYARD_CUDA_MODULE": EMPTY / "lib/trainyard/libtrainyard_cuda.so",
               "TRAINYARD_SOURCE_DIR": EMPTY, "TRAINYARD_NVML_SCRIPT": "devices=1,context=600", "TRAINYARD_CASE": "Gemm/"}
        for program in programs:
            command = {"trainyard": ["version"], "train_bench": ["--model", "mlp_small", "8", "--seconds", "0.01"]}.get(
                program.name, ["--gtest_list_tests"] if program.name.endswith("_test") else ["--version"])
            done = self.chroot(root, [EMPTY / program.parent.name / program.name, *command], **env)
            self.assertNotRegex(done.stderr, "error while loading shared libraries|version .* not found")
            self.assertIn(done.returncode, (0, 1, 2), f"{program.name}: {done.stderr}")
            if program.name in ("trainyard", "trainyardd", "cuda_parity_test", "train_bench"):
                self.assertEqual(done.returncode, 0, f"{program.name}: {done.stdout} {done.stderr}")
        done = self.chroot(root, [EMPTY / "test_programs/cuda_parity_test", "--gtest_filter=Cuda.EveryCaseOfTheTable"], **env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("[  PASSED  ] 1 test.", done.stdout)

    def check_stage(self, root):
        """Adds Python, a shell and the usual devices, and runs a stage."""
        python = pathlib.Path(os.path.realpath(sys.executable))
        library = pathlib.Path(sysconfig.get_path("stdlib"))
        for path in (python, pathlib.Path(os.path.realpath("/bin/sh"))):
            copy_into(root, path)
        (root / "bin").mkdir(exist_ok=True)
        (root / "bin/sh").symlink_to(os.path.realpath("/bin/sh"))
        shutil.copytree(library, root / str(library).lstrip("/"), ignore=NOT_OF_PYTHON, dirs_exist_ok=True)
        copy_libraries(root, [python, "/bin/sh", *library.glob("lib-dynload/*.so")])
        (root / "dev").mkdir()
        try:
            os.mknod(root / "dev/null", 0o666 | 0o020000, os.makedev(1, 3))
            os.mknod(root / "dev/urandom", 0o666 | 0o020000, os.makedev(1, 9))
        except PermissionError:
            self.skipTest("this sandbox makes no devices; the programs started")
        (root / "proc").mkdir()
        script = f"mount -t proc proc {root}/proc && exec chroot {root} {python} {EMPTY}/gpu_check --stage a --bundle /tmp/results.tar.gz"
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script], capture_output=True,
                              text=True, env={"PATH": "/bin:/usr/bin:/sbin:/usr/sbin", "HOME": "/tmp"})
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest(f"this sandbox mounts no /proc; the programs started: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
        with tarfile.open(root / "tmp/results.tar.gz") as tar:
            results = json.load(tar.extractfile("gpu_check_results/results.json"))
        self.assertRegex(results["summary"], r"^Nothing is broken on an emulated GPU: \d+ steps passed; \d+ steps skipped\.$")
        self.assertIn("libtrainyard_cuda.so", results["libraries"])
        self.assertIn("cuBLASLt: product, relu, bias, bf16 to bf16", " ".join(results["offers"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
