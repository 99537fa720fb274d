"""Catches: a GPU for which the build, a message or a page promises code that does not compile; and
an architecture that the packages are built for but no page names.

Compiles the code that depends on the architecture (architectures_probe.cu) for every architecture
of the toolkit that Trainyard supports, which are all that the refusal of a GPU without code can
name. It needs no GPU. Usage: architectures_test.py NVCC ROOT
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

NVCC, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])


def read(path):
    return (ROOT / path).read_text()


def oldest():
    """The oldest architecture that a refusal advises to build for (src/runtime/cuda/device.cc)."""
    return int(re.search(r"kOldestArchitecture = (\d+);", read("src/runtime/cuda/device.cc"))[1])


def packaged():
    """The architectures with code of their own in the packages, and those with PTX."""
    listed = re.search(r'TRAINYARD_CUDA_ARCHITECTURES "([^"]+)"', read("CMakeLists.txt"))[1]
    return [[int(n) for n in re.findall(rf"(\d+)-{kind}", listed)] for kind in ("real", "virtual")]


def dotted(architecture):
    return f"{architecture // 10}.{architecture % 10}"


class Architectures(unittest.TestCase):
    def test_every_one_compiles(self):
        listed = subprocess.run([NVCC, "--list-gpu-arch"], capture_output=True, text=True, check=True)
        known = [int(n) for n in re.findall(r"compute_(\d+)", listed.stdout)]
        self.assertIn(oldest(), known)
        self.assertLessEqual(set(packaged()[0]), set(known))
        codes = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in known if n >= oldest()]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [NVCC, f"-I{ROOT}", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-std=c++20"]
                + ["--ftz=true", "-Werror=all-warnings", *codes, "-fatbin"]
                + [f"--output-file={folder}/probe.fatbin"]
                + [f"{ROOT}/tests/cuda/architectures_probe.cu"],
                capture_output=True, text=True,
            )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_probe_has_all_code_that_depends_on_it(self):
        depends = re.compile(r"\basm\b|__CUDA_ARCH__")
        probe = read("tests/cuda/architectures_probe.cu")
        for file in sorted((ROOT / "kernels").rglob("*")):
            name = str(file.relative_to(ROOT))
            if file.suffix not in (".h", ".cu") or name.startswith("kernels/cpu/"):
                continue
            if depends.search(file.read_text()):
                self.assertIn(f'#include "{name}"', probe, "the probe does not compile this file")

    def test_the_packages_and_the_page_name_the_same(self):
        real, virtual = packaged()
        self.assertEqual(real[0], oldest(), "the oldest is in the packages")
        row = re.search(r"\| `cuda-release`, the container image \| (.+?) \|", read("docs/cuda.md"))[1]
        self.assertEqual(
            row, ", ".join(map(dotted, real)) + ", and PTX of " + ", ".join(map(dotted, virtual))
        )


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
