#!/usr/bin/env python3
"""Tests that the command line is a single file that needs only the C library.

    alone_test.py BIN    a folder with the programs
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gpu_check.place import Refused  # noqa: E402
from package.symbols import needs_of_alone  # noqa: E402

BIN = pathlib.Path(sys.argv[-1])


class Alone(unittest.TestCase):
    def test_the_command_line_needs_only_the_c_library(self):
        found = needs_of_alone(BIN / "trainyard")
        print(f"needs GLIBC_{found.glibc} or later: {', '.join(found.libraries)}")

    def test_a_program_with_more_libraries_is_refused_with_their_names(self):
        with self.assertRaisesRegex(Refused, "trainyard-local needs .*libdnnl.so.* expected the C library's own alone"):
            needs_of_alone(BIN / "trainyard-local")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
