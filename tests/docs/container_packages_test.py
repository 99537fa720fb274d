"""Tests the package lists of docker/Dockerfile: they suffice to compile the CUDA sources, and name
the versions that the tests run with. Also tests docker/require_driver."""

import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("cuda_packages", str(ROOT / "scripts/cuda_packages"))
cuda_packages = importlib.util.module_from_spec(importlib.util.spec_from_loader("cuda_packages", loader))
loader.exec_module(cuda_packages)

HAS_RECORDS = (cuda_packages.CUDA / "dist-info").is_dir()
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
DEVEL, RUNTIME = cuda_packages.STAGES


def included_headers():
    """The headers outside of this project that the CUDA sources include, and that this machine's
    CUDA has."""
    names = set()
    for folder in ("kernels", "src/runtime/cuda"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cc", ".cu", ".cuh"):
                names |= set(re.findall(r"^#include <(.+?)>", path.read_text(), re.M))
    return sorted(name for name in names if (cuda_packages.CUDA / "include" / name).exists())


def link_headers(packages, folder):
    for package in packages:
        for path, _ in cuda_packages.files_of(package)[1]:
            if path.startswith("include/"):
                link = folder / path.removeprefix("include/")
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(cuda_packages.CUDA / path)


@unittest.skipUnless(HAS_RECORDS, "this machine's CUDA has no records of its components")
class Packages(unittest.TestCase):
    def not_in(self, packages):
        """The headers of this machine's CUDA that the sources include, directly or through others, and
        that are not in the packages. The compiler may find those in its default folders."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            link_headers(packages, folder)
            source = "".join(f"#include <{name}>\n" for name in included_headers())
            done = subprocess.run(["g++", "-std=c++20", "-M", "-x", "c++", "-isystem", folder, "-isystem", folder / "cccl", "-"],
                                  input=source, capture_output=True, text=True)
            cuda = str(cuda_packages.CUDA.resolve())
            paths = done.stdout.replace("\\\n", " ").split()
            outside = [path for path in paths if os.path.realpath(path).startswith(cuda) and not path.startswith(scratch)]
            return outside + re.findall(r"fatal error: (\S+): No such file", done.stderr), len(paths)

    def test_the_list_has_every_header_that_the_sources_include(self):
        self.assertLessEqual({"cublasLt.h", "cudnn.h", "nccl.h", "cuda_runtime_api.h", "nvtx3/nvToolsExt.h"},
                             set(included_headers()))
        lacking, read = self.not_in(cuda_packages.stage_packages(DEVEL))
        self.assertEqual(lacking, [])
        self.assertGreater(read, 100)

    def test_a_list_without_the_package_of_nvtx_is_noticed(self):
        lacking, _ = self.not_in(cuda_packages.stage_packages(DEVEL, DOCKERFILE.replace("cuda-nvtx-13-0=13.0.85-1", "")))
        self.assertIn("nvToolsExt.h", " ".join(lacking))

    def test_versions_are_those_that_the_tests_run_with(self):
        for stage in cuda_packages.STAGES:
            for package, pinned in cuda_packages.stage_packages(stage).items():
                if pinned:
                    version = cuda_packages.files_of(package)[0]
                    self.assertEqual(pinned.partition("-")[0], version, f"{package} of stage {stage}")


class Dockerfile(unittest.TestCase):
    def test_libraries_are_pinned_to_the_same_versions_in_both_stages(self):
        devel, runtime = map(cuda_packages.stage_packages, cuda_packages.STAGES)
        for package, pinned in runtime.items():
            self.assertTrue(pinned, f"{package} is not pinned")
            self.assertEqual(devel.get(package, pinned), pinned, package)
        for package in ("libcublas-dev-13-0", "libcudnn9-dev-cuda-13", "libcudnn9-headers-cuda-13", "libnccl-dev", "cuda-nvtx-13-0"):
            self.assertTrue(devel[package], f"{package} is not pinned")

    def test_the_runtime_has_what_the_module_opens(self):
        self.assertEqual(set(cuda_packages.stage_packages(RUNTIME)),
                         {"libcublas-13-0", "libcudnn9-cuda-13", "libnccl2", "cuda-nvrtc-13-0"})

    def test_an_unknown_package_is_refused_by_name(self):
        with self.assertRaisesRegex(cuda_packages.Refused, "cuda-novel-13-0 of stage cuda-devel is not known"):
            cuda_packages.stage_packages(DEVEL, DOCKERFILE.replace("cuda-nvtx-13-0", "cuda-novel-13-0"))

    def test_the_required_cuda_is_that_of_the_packages(self):
        required = re.search(r'NVIDIA_REQUIRE_CUDA="cuda>=([\d.]+)"', DOCKERFILE)
        self.assertIsNotNone(required)
        self.assertEqual({required[1].replace(".", "-")}, set(re.findall(r"\bcuda-\w+-(\d+-\d+)=", DOCKERFILE)))


class RequireDriver(unittest.TestCase):
    def run_with(self, text):
        with tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch) / "version"
            if text is not None:
                file.write_text(text)
            return subprocess.run([ROOT / "docker/require_driver", "580", "echo", "begun", "a b"], capture_output=True, text=True,
                                  env={"PATH": "/usr/bin:/bin", "TRAINYARD_DRIVER_VERSION_FILE": str(file)})

    def test_an_old_driver_is_refused_with_its_version(self):
        for text in ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
                     "GCC version:  gcc version 12.3.0 (Debian 12.3.0-1)\n",
                     "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (dvs-builder@U22)\n"):
            done = self.run_with(text)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, r"NVIDIA driver (535\.104\.05|570\.86\.10), but this image needs 580 or later")

    def test_a_new_driver_and_none_are_not_refused(self):
        for text in ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)\n",
                     "NVRM version: NVIDIA UNIX x86_64 Kernel Module  1000.1.02  Sat Aug 19 01:15:15 UTC 2030\n", "odd\n", None):
            done = self.run_with(text)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "begun a b\n", ""))


if __name__ == "__main__":
    unittest.main()
