"""The requirements of programs: shared libraries, and versions of the C and C++ libraries."""

import dataclasses
import re
import subprocess

from gpu_check.place import Refused

GLIBC = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libmvec)\.so")


@dataclasses.dataclass
class Needs:
    libraries: list  # names of shared libraries
    glibc: str  # newest version of a symbol used, such as "2.34"
    glibcxx: str  # the same for the C++ library; empty if it is linked statically


def newest(versions):
    return max(versions, key=lambda text: [int(part) for part in text.split(".")], default="")


def needs(*files):
    """Returns the combined requirements of all files."""
    libraries, versions = set(), {"GLIBC": set(), "GLIBCXX": set()}
    for file in files:
        said = subprocess.run(["objdump", "-p", str(file)], check=True, capture_output=True, text=True).stdout
        libraries.update(re.findall(r"^\s*NEEDED\s+(\S+)", said, re.MULTILINE))
        for name, number in re.findall(r"\b(GLIBC|GLIBCXX)_([0-9.]+)\b", said.partition("Version References:")[2]):
            versions[name].add(number)
    return Needs(sorted(libraries), newest(versions["GLIBC"]), newest(versions["GLIBCXX"]))


def needs_of_alone(file):
    """Returns the requirements of a program that must be a single file. Refuses a program that needs more than the C
    library."""
    found = needs(file)
    if foreign := [name for name in found.libraries if not GLIBC.match(name)]:
        raise Refused(f"{file} needs {', '.join(foreign)}, expected the C library's own alone")
    return found
