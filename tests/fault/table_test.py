"""Checks the table of faults in README.md: each fault has a row, each test named there exists, at
least one of them has the fault's number in its name, and each test with a fault's number in its
name is in that fault's row. Command lines in the table are not checked."""

import fnmatch
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent
FAULTS = [f"F{number:02}" for number in range(1, 39)]
# Finds fault numbers in names like "F01F03KilledBefore", "CheckpointF18.", "test_F05_a_second", but
# not the types "F32" and "TF32".
NUMBER = re.compile(r"(?<![A-Za-z0-9])F\d\d(?:F\d\d)*(?=[A-Z]|_)|(?<=Checkpoint)F\d\d")


def faults_in(name):
    return {fault for numbers in NUMBER.findall(name) for fault in re.findall(r"F\d\d", numbers)}


def rows(text):
    found = {}
    for fault, tests, invariants in re.findall(r"^\| (F\d\d) \|[^|]*\|([^|]*)\|([^|]*)\|$", text, re.M):
        found[fault] = (re.findall(r"`([^`]+)`", tests), invariants.split(), tests.strip())
    return found


def tests_that_exist():
    names = {path.name for path in HERE.glob("*.py")}
    for path in TESTS.rglob("*.cc"):
        names |= {f"{suite}.{name}" for suite, name in
                  re.findall(r"^TEST(?:_F|_P)?\((\w+),\s+(\w+)\)", path.read_text(errors="replace"), re.M)}
    for path in [*TESTS.glob("e2e/*.py"), *HERE.glob("*.py")]:
        names |= set(re.findall(r"^    def (test_\w+)\(", path.read_text(), re.M))
    return names


def problems(text, names):
    table = rows(text)
    found = [f"{fault} has no row" for fault in FAULTS if fault not in table]
    for fault, (tests, invariants, cell) in table.items():
        found += [f"{fault}: {test} does not exist" for test in tests if not fnmatch.filter(names, test)]
        found += [f"{fault}: {each} is no invariant" for each in invariants if not re.fullmatch(r"I([1-9]|10)", each)]
        if not tests and not cell.startswith("none: "):
            found.append(f"{fault} has neither a test nor the reason why")
        if tests and not invariants:
            found.append(f"{fault} names no invariant")
        if tests and not any(fault in faults_in(name) for test in tests for name in fnmatch.filter(names, test)):
            found.append(f"{fault}: no test has the number in its name")
    for name in sorted(names):
        for fault in sorted(faults_in(name)):
            if not any(fnmatch.fnmatchcase(name, test) for test in table.get(fault, ([],))[0]):
                found.append(f"{name} is not in the row of {fault}")
    return found


def check_itself(text, names):
    """Checks that planted mistakes are found."""
    for broken, more, expected in (
            (text.replace("| F09 |", "| F9 |"), set(), "F09 has no row"),
            (text.replace("`ServiceJob.F09A", "`ServiceJob.F09B"), set(), "F09: ServiceJob.F09B"),
            (re.sub(r"(\| F34 \|[^|]*\|)[^|]*\|", r"\1 soon |", text), set(), "F34 has neither"),
            (re.sub(r"(\| F09 \|[^|]*\|)[^|]*\|", r"\1 `kill_storm.py` |", text), set(), "F09: no test has the number"),
            (text, {"Suite.F12ANewOne"}, "Suite.F12ANewOne is not in the row of F12"),
            (text, {"test_F05_another"}, "test_F05_another is not in the row of F05")):
        if not any(line.startswith(expected) for line in problems(broken, names | more)):
            sys.exit(f"table_test: does not find '{expected}'")


def main():
    text = (HERE / "README.md").read_text()
    names = tests_that_exist()
    check_itself(text, names)
    found = problems(text, names)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
