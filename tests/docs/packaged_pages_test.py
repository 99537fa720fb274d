"""Tests that an installation has the pages that README, the help, job files of `init` and the tutorial name."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = pathlib.Path(os.environ.get("TRAINYARD_PACKAGING", SOURCE / "build/release/packaging")) / "cmake_install.cmake"
SPEAKERS = ["README.md", *sorted(str(p.relative_to(SOURCE)) for p in (SOURCE / "client").rglob("*.cc")), "server/config/config.cc",
            "packaging/trainyardd.yaml"]


def named_pages():
    """Returns each page of docs/ that a text for users names, with the files that name it."""
    pages = {}
    for name in SPEAKERS:
        for line in (SOURCE / name).read_text().splitlines():
            if line.lstrip().startswith(("//", "///")):
                continue
            for page in re.findall(r"docs/[\w/-]+\.md", line):
                pages.setdefault(page, set()).add(name)
    return pages


def main():
    if not SCRIPT.exists():
        print(f"{SCRIPT} does not exist: configure a build first")
        return 77
    with tempfile.TemporaryDirectory(prefix="trainyard-pages-") as prefix:
        subprocess.run(["cmake", f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_COMPONENT=programs", "-P", SCRIPT], check=True,
                       capture_output=True)
        documents = pathlib.Path(prefix) / "share/doc/trainyard"
        pages = named_pages()
        assert "docs/job_spec.md" in pages, "the search finds nothing"
        missing = {page: names for page, names in pages.items() if not (documents / page).is_file()}
    for page, names in sorted(missing.items()):
        print(f"{page}, named by {', '.join(sorted(names))}, is not in the package")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
