"""Tests of scripts/check with fake compilers: which modes it runs, and its result if a mode fails
or cannot run. They fail if a check passes although nothing was checked."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import PATIENCE_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODES = ["debug", "address", "thread", "clang", "fuzz", "slow"]
REAL = ["bash", "sed", "grep", "awk", "nproc", "sort", "comm", "dirname", "cut", "xargs", "env"]


class Check(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="trainyard-check-")
        self.addCleanup(scratch.cleanup)
        self.tree = pathlib.Path(scratch.name) / "tree"
        self.tools = pathlib.Path(scratch.name) / "tools"
        self.log = pathlib.Path(scratch.name) / "log"
        (self.tree / "scripts").mkdir(parents=True)
        for name in ["check", "lib.sh"]:
            shutil.copy(ROOT / "scripts" / name, self.tree / "scripts" / name)
        fuzz = self.tree / "scripts" / "fuzz"
        fuzz.write_text(f'#!/bin/bash\necho "fuzz $*" >>{self.log}\n')
        fuzz.chmod(0o755)
        self.tools.mkdir()
        for name in REAL:
            (self.tools / name).symlink_to(shutil.which(name))
        for name in ["cmake", "ctest", "g++", "clang-tidy"]:
            self.stand_in(name)
        self.database = self.tree / "build" / "clang" / "compile_commands.json"
        self.database.parent.mkdir(parents=True)
        self.database.write_text(f'[\n{{\n  "file": "{self.tree}/src/graph/graph.cc",\n  "output": "x"\n}}\n]\n')
        self.stand_in("clang++", "[[ $* != *unlocked_access* ]]")  # refuses the file, as clang does
        self.commit("00000000")

    def stand_in(self, name, does="true"):
        path = self.tools / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>{self.log}\n{does}\n')
        path.chmod(0o755)

    def commit(self, start):
        self.stand_in("git", f'[[ $1 == rev-parse ]] && echo {start}{"0" * 32}')

    def check(self, *arguments):
        """Runs scripts/check. Returns the exit status and the outcome of each mode."""
        self.log.write_text("")
        done = subprocess.run([str(self.tree / "scripts" / "check"), *arguments, "--jobs", "1"],
                              env={"PATH": str(self.tools)}, capture_output=True, text=True, timeout=PATIENCE_S)
        outcomes = re.findall(r"^check: (\w+) +\d+ s  (\w+)", done.stdout, re.MULTILINE)
        return done.returncode, dict(outcomes)

    def test_all_runs_every_mode(self):
        status, outcomes = self.check("--all")
        self.assertEqual(status, 0)
        self.assertEqual(outcomes, {mode: "passed" for mode in MODES})
        calls = self.log.read_text()
        for mode in ["debug", "address", "thread"]:
            self.assertIn(f"cmake --preset {mode}\ncmake --build --preset {mode} -j 1\nctest --preset {mode}", calls)
        self.assertIn("fuzz 10\n", calls)
        self.assertIn("cmake --preset slow\ncmake --build --preset slow -j 1\nctest --preset slow -j 4\n", calls)

    def test_slow_keeps_the_processors_busy_while_its_tests_run(self):
        # Counts the busy loops, which are children of the shell that started ctest. There must be
        # six.
        self.stand_in("ctest", """for ((i = 0; i < 100; ++i)); do
  loops=(); for stat in /proc/[0-9]*/stat; do
    read -r pid name state parent rest <"$stat" 2>/dev/null || continue
    [[ $parent == "$PPID" && $pid != $$ ]] && loops+=("$pid")
  done
  ((${#loops[@]} == 6)) && exit 0
done; exit 1""")
        self.assertEqual(self.check("slow"), (0, {"slow": "passed"}))
        self.stand_in("ctest", "false")
        self.assertEqual(self.check("slow"), (1, {"slow": "FAILED"}))

    def test_each_commit_has_one_mode_and_all_modes_take_turns(self):
        script = self.tree / "scripts" / "check"
        text = script.read_text()
        turns = re.search(r"^readonly turn_modes=\((.*)\)$", text, re.MULTILINE)[1].split()
        self.assertTrue(turns and set(turns) <= set(MODES), turns)
        script.write_text(text.replace(f"turn_modes=({' '.join(turns)})", f"turn_modes=({' '.join(MODES)})"))
        chosen = []
        for i in range(len(MODES)):
            self.commit(f"{i:08x}")
            status, outcomes = self.check("--turn")
            self.assertEqual((status, len(outcomes)), (0, 1))
            chosen += outcomes
        self.assertEqual(sorted(chosen), sorted(MODES))

    def test_a_failure_is_reported_and_the_others_still_run(self):
        self.stand_in("ctest", "[[ $* != *address* ]]")
        status, outcomes = self.check("address", "thread")
        self.assertEqual((status, outcomes), (1, {"address": "FAILED", "thread": "passed"}))
        self.stand_in("cmake", "false")
        self.assertEqual(self.check("clang"), (1, {"clang": "FAILED"}))

    def test_a_missing_tool_fails_the_run_and_its_mode(self):
        (self.tools / "clang-tidy").unlink()
        self.assertEqual(self.check("clang"), (77, {"clang": "skipped"}))
        status, outcomes = self.check("--all")
        self.assertEqual((status, outcomes["clang"], outcomes["debug"]), (1, "skipped", "passed"))

    def test_clang_tidy_checks_changed_files(self):
        self.stand_in("git", 'case $1 in rev-parse) echo 1 ;; diff) printf "README.md\\nsrc/graph/graph.h\\n" ;; esac')
        self.assertEqual(self.check("clang")[0], 0)
        self.assertIn("clang-tidy -p build/clang --quiet src/graph/graph.cc\n", self.log.read_text())
        self.stand_in("git", 'case $1 in rev-parse) echo 1 ;; diff) echo README.md ;; esac')
        self.assertEqual(self.check("clang")[0], 0)
        self.assertNotIn("clang-tidy -p", self.log.read_text())
        self.assertEqual(self.check("clang", "--tidy-all")[0], 0)
        self.assertIn("src/graph/graph.cc\n", self.log.read_text())
        self.stand_in("clang-tidy", "false")
        self.assertEqual(self.check("clang", "--tidy-all"), (1, {"clang": "FAILED"}))
        self.database.unlink()
        self.assertEqual(self.check("clang"), (1, {"clang": "FAILED"}))

    def test_an_analysis_that_refuses_nothing_is_a_failure(self):
        self.stand_in("clang++")
        self.assertEqual(self.check("clang"), (1, {"clang": "FAILED"}))

    def test_wrong_arguments_are_refused(self):
        for arguments in [(), ("bogus",), ("--all", "debug"), ("--all", "--turn"), ("debug", "--jobs", "0")]:
            with self.subTest(arguments=arguments):
                self.assertEqual(self.check(*arguments)[0], 2)


if __name__ == "__main__":
    unittest.main()
