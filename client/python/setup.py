"""The part of the build that pyproject.toml cannot express: generating the messages from proto/."""

import importlib.metadata
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from generate import PROTOS, generate, proto_folder  # noqa: E402


class BuildWithMessages(build_py):
    def run(self) -> None:
        super().run()
        # An editable installation uses the sources in place.
        generate(HERE / "src" if self.editable_mode else Path(self.build_lib))


class SourceWithProtos(sdist):
    """Includes proto/, which in a checkout is outside of this folder."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        target = Path(base_dir) / "proto/trainyard/v1"
        target.mkdir(parents=True, exist_ok=True)
        for name in PROTOS:
            shutil.copy(proto_folder() / f"trainyard/v1/{name}.proto", target)
        shutil.copy(HERE / "generate.py", base_dir)


def dependencies() -> list[str]:
    """Generated messages need the protobuf of their protoc or a later one: the requirement of grpcio-tools itself."""
    generator = importlib.metadata.requires("grpcio-tools") or []
    runtime = [r for r in generator if r.startswith(("protobuf", "grpcio"))]
    return [*runtime, "google-crc32c>=1.5", "googleapis-common-protos>=1.60", "pyyaml>=6.0"]


# setuptools builds next to the sources by default. These may be in a read-only checkout, and should not change.
scratch = tempfile.TemporaryDirectory(prefix="trainyard-build-")
setup(options={"build": {"build_base": scratch.name}, "egg_info": {"egg_base": scratch.name}},
      cmdclass={"build_py": BuildWithMessages, "sdist": SourceWithProtos},
      install_requires=dependencies())
