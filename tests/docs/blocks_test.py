"""Checks the code blocks of the documentation against the programs.

Every fenced block names its language. JSON and Python blocks parse. Configuration examples in YAML are accepted by the
program that reads them. In shell and console blocks, every command of ours exists, with every option that it is given.
docs/job_spec.md is left out for YAML and JSON: tests/client/spec_examples_test.cc reads all its specs.
"""

import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TRAINYARD_BIN", ROOT / "build/release/bin"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*/README.md"))]
LANGUAGES = {"sh", "console", "text", "yaml", "json", "python", "pycon", "cpp"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
SPECS = ROOT / "docs/job_spec.md"
PROGRAMS = ("trainyard", "trainyardd", "trainyard-worker")


def blocks(*languages):
    """Yields (page and line, text) of each block in one of the languages; of every block if none is given."""
    for page in PAGES:
        text = page.read_text()
        for match in FENCE.finditer(text):
            if languages and match["language"] not in languages:
                continue
            line = text.count("\n", 0, match.start()) + 1
            place = f"{page.relative_to(ROOT)}:{line}"
            lines = [row.removeprefix(match["indent"]) for row in match["text"].splitlines()]
            yield place, page, match["language"], "\n".join(lines) + "\n"


def command_lines(language, text):
    """Yields the commands of a block, with continuation lines joined. In console blocks they begin with "$ "."""
    rows = text.replace("\\\n", " ").splitlines()
    if language == "console":
        rows = [row[2:] for row in rows if row.startswith("$ ")]
    for row in rows:
        try:
            words = shlex.split(row, comments=True)
        except ValueError:  # a quoted string over several lines
            continue
        command = []
        for word in [*words, ";"]:
            if word in (";", "|", "&&", "&"):
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def our_program(words):
    """Returns (program, arguments) if a command starts one of our programs, possibly through sudo, srun or docker."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words[:2] == ["sudo", "-u"]:
        words = words[3:]
    elif words[:1] == ["sudo"]:
        words = words[1:]
    if words[:2] == ["podman", "run"]:  # an image has the name of its target, and its entry point is the daemon
        image = next((i for i, word in enumerate(words) if word.startswith("trainyard:")), None)
        return image and ("trainyardd", words[image + 1 :])
    starts = [i for i, word in enumerate(words) if pathlib.PurePath(word).name in PROGRAMS]
    if not starts or not (starts[0] == 0 or words[0] == "srun" or {"exec", "run"} & set(words[:3])):
        return None
    at = starts[0]
    if words[0] == "docker":  # the service's name comes before the program, unless the service's own program is meant
        at = starts[min(1, len(starts) - 1)]
        if "--entrypoint" in words:
            return pathlib.PurePath(words[starts[0]]).name, words[at + 1 :]
    return pathlib.PurePath(words[at]).name, words[at + 1 :]


@functools.cache
def help_of(*command):
    """Returns a command's help, or None if there is no such command."""
    result = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True, check=False)
    return result.stdout if result.returncode == 0 else None


def unknown_parts(program, arguments):
    """Yields a text for the command, if it does not exist, and for each option that its help does not list."""
    command = [program]
    if program == "trainyard":
        rest = iter(arguments)
        for word in rest:
            if word in ("--server", "--ca-file", "--token-file", "--project", "--context", "--config", "-o", "--output"):
                next(rest, None)
            elif not word.startswith("-"):
                command.append(word)
                following = next(rest, "")
                if help_of(*command, following) and re.fullmatch("[a-z]+", following):
                    command.append(following)
                break
        if command[1:2] == ["help"]:
            return
    text = help_of(*command)
    if text is None:
        yield f"there is no command {' '.join(command)}"
        return
    options = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text))
    for word in arguments:
        option = word.split("=")[0]
        if re.fullmatch(r"--?[a-zA-Z][\w-]*", option) and option not in options:
            yield f"{' '.join(command)} has no option {option}"


class Blocks(unittest.TestCase):
    def test_every_block_names_its_language(self):
        wrong = [f"{place}: ```{language}" for place, _, language, _ in blocks() if language not in LANGUAGES]
        self.assertEqual(wrong, [], f"expected one of {', '.join(sorted(LANGUAGES))}")

    def test_json_and_python_parse(self):
        for place, page, language, text in blocks("json", "python"):
            if page == SPECS:
                continue
            with self.subTest(place):
                if language == "json":
                    json.loads(text)
                else:
                    compile(text, place, "exec")

    def test_configuration_examples_are_accepted(self):
        checked = 0
        for place, page, _, text in blocks("yaml"):
            if page == SPECS or page.parent.name == "docker":
                continue
            with self.subTest(place), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder, "example.yaml")
                file.write_text(text)
                file.chmod(0o600)
                if re.search(r"^contexts:", text, re.MULTILINE):
                    # A context is read when it is chosen, before its files and its server, which do not exist here.
                    for context in re.findall(r"^  (\w+):", text, re.MULTILINE):
                        command = [BIN / "trainyard", "--config", file, "--context", context, "health"]
                        output = subprocess.run(command, capture_output=True, text=True, check=False).stderr
                        self.assertNotIn("CONFIG_INVALID", output)
                        self.assertRegex(output, r"tokens/lab|trainyard\.sock")
                    checked += 1
                    continue
                if re.search(r"^kind:", text, re.MULTILINE):
                    daemon = pathlib.Path(folder, "daemon.yaml")
                    daemon.write_text(f"cluster: [{file}]\nworkers_listen: 127.0.0.1:7451\n")
                    command = [BIN / "trainyardd", "--config", daemon, "--state-dir", folder, "--print-config"]
                    expected = "cluster"
                else:
                    # Files that the example names do not exist here.
                    text = re.sub(r"^cluster:.*\n", "", text, flags=re.MULTILINE)
                    file.write_text(text)
                    command = [BIN / "trainyardd", "--config", file, "--state-dir", folder, "--print-config"]
                    expected = text.split(":")[0]
                result = subprocess.run(command, capture_output=True, text=True, check=False)
                output = result.stdout + result.stderr
                self.assertIn(expected, output)
                self.assertEqual(result.returncode, 0, output)
                checked += 1
        self.assertGreaterEqual(checked, 5)

    def test_commands_and_their_options_exist(self):
        wrong, checked = [], 0
        for place, _, language, text in blocks("sh", "console"):
            for words in command_lines(language, text):
                if words[0].startswith("scripts/"):
                    script = ROOT / words[0]
                    source = script.read_text() if script.exists() else ""
                    missing = [w for w in words if w.startswith("--") and w.split("=")[0] not in source]
                    wrong += [f"{place}: {words[0]} has no option {w}" for w in missing]
                found = our_program(words)
                if found:
                    checked += 1
                    wrong += [f"{place}: {fault}" for fault in unknown_parts(*found)]
        self.assertEqual(wrong, [])
        self.assertGreaterEqual(checked, 80)


if __name__ == "__main__":
    unittest.main()
