#!/usr/bin/env python3
"""Checks that every path named in docs, help texts and comments exists. Fails if a file moved while
pages still name its old place, or if a link's heading was reworded.

    python3 tests/docs/paths_test.py

A path is
- the target of a Markdown link, relative to the page's folder; its #anchor must be a heading of the target page
- a word that begins with a folder at the root (`src/`, `docs/`, ...), in any text file
- on a page, a word in backticks with a `/`, if it begins with a file or folder next to the page
- on a page, a bare file name in backticks with a suffix of SOURCE_SUFFIXES: some file must have that name
Braces list alternatives (`job_rows.{h,cc}`). `*`, `?`, `<family>`, `{family}`, `...`, `xyz` and
words in capitals (`NAME`, `N`) stand for anything, but something must match. A file may be named
without its suffix. A word that ends in `_` is the
beginning of a name. In RECORDS only the links are checked, since these pages keep the names of
their time.
"""
import fnmatch
import functools
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDS = ("CHANGELOG.md", "docs/decisions/", "tests/bench/results/")
NOT_READ = ("tests/docs/paths_test.py", "tests/fuzz/corpus/", "tests/golden/")
DATA_OF_EXAMPLES = re.compile(r"examples/\w+\.yaml")  # examples name data outside the repository
GENERATED = ("server/store/migrations_sql.h",)
SOURCE_SUFFIXES = (".cc", ".h", ".cu", ".cuh", ".proto", ".sql")
BINARY_MARK = b"\0"

LINK = re.compile(r"\[[^][]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.S | re.M)
HEADING = re.compile(r"^#+ +(.*?) *#*$", re.M)
WORD = r"[\w.*?<>{},+@-]"  # a character of a path component
PLACEHOLDER = re.compile(r"<[^<>/]*>|\{[^{},]*\}|\.\.\.+|(?<![A-Za-z])(?:[A-Z]+|xyz|Xyz)(?![A-Za-z])")


@functools.cache
def files():
    """Returns the repository's files as paths from its root: the files that git tracks, or all files of a source
    archive."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, check=True).stdout.decode().split("\0")
        return frozenset(path for path in listed if path and (ROOT / path).exists())
    except (OSError, subprocess.CalledProcessError):
        return frozenset(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")
                         if path.is_file() and not path.relative_to(ROOT).parts[0].startswith(("build", ".")))


@functools.cache
def paths():
    """Returns all files, and the folders that contain them."""
    return files() | {parent.as_posix() for path in files() for parent in pathlib.PurePosixPath(path).parents}


@functools.cache
def stems():
    """Returns the files without their suffixes."""
    return frozenset(re.sub(r"(.)\.\w+", r"\1", path) for path in files())


@functools.cache
def names():
    return frozenset(path.rsplit("/", 1)[-1] for path in files())


@functools.cache
def word_of_root():
    folders = sorted({path.split("/")[0] for path in files() if "/" in path})
    return re.compile(rf"(?<![\w./$}}~:-])(?:{'|'.join(map(re.escape, folders))})/{WORD}*(?:/{WORD}*)*")


def alternatives(pattern):
    """Expands braces: `job.{h,cc}` gives `job.h` and `job.cc`."""
    if (brace := re.search(r"\{([^{}]*,[^{}]*)\}", pattern)) is None:
        return [pattern]
    return [each for part in brace[1].split(",")
            for each in alternatives(pattern[:brace.start()] + part + pattern[brace.end():])]


@functools.cache
def exists(path):
    """Returns whether the path from the root exists. It may contain placeholders."""
    path = os.path.normpath(path)
    if path in paths() or path in stems() or path in GENERATED:
        return True
    if path.endswith("_") and any(each.startswith(path) for each in files()):
        return True
    pattern = PLACEHOLDER.sub("*", path)
    return any(sign in pattern for sign in "*?") and any(fnmatch.fnmatchcase(each, pattern) for each in paths())


def tidy(word):
    """Removes the punctuation of the sentence from a word: `src/ops/.` becomes `src/ops`."""
    word = word.split("#")[0].rstrip(".,+@-")
    if word.count("{") != word.count("}"):
        word = word.rstrip("{}").rstrip(",")
    return word.rstrip("/") or word


@functools.cache
def anchors(page):
    """Returns the anchors that GitHub generates for a page's headings."""
    found = set()
    for heading in HEADING.findall(FENCE.sub("", (ROOT / page).read_text())):
        text = LINK.sub(lambda link: link[0][1:link[0].index("]")], heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        again = slug
        for count in range(1, 100):
            if again not in found:
                break
            again = f"{slug}-{count}"
        found.add(again)
    return found


def broken_links(text, page):
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if place not in paths() and place != page:
            yield target
        elif anchor and place.endswith(".md") and place in files() and anchor not in anchors(place):
            yield target


def missing_paths(text, page):
    """Yields the words of the text that name a path that does not exist."""
    folder = os.path.dirname(page)
    for word in word_of_root().findall(text):
        word = tidy(word)
        if not all(exists(each) or exists(os.path.join(folder, each)) for each in alternatives(word)):
            yield word
    if not page.endswith(".md"):
        return
    for code in CODE.findall(FENCE.sub("", text)):
        if not re.fullmatch(rf"{WORD}+(?:/{WORD}*)*", code):
            continue
        word = tidy(code)
        if "/" in word:
            begins = os.path.join(folder, word.split("/")[0])
            if begins in paths() and not all(exists(os.path.join(folder, each)) or exists(each)
                                             for each in alternatives(word)):
                yield word
        elif word.endswith(SOURCE_SUFFIXES) or "{" in word and "." in word:
            if not all(any(fnmatch.fnmatchcase(name, PLACEHOLDER.sub("*", each)) for name in names())
                       for each in alternatives(word)):
                yield word


def problems(page, text):
    found = list(broken_links(text, page)) if page.endswith(".md") else []
    if not page.startswith(RECORDS):
        found += missing_paths(text, page)
    return sorted(set(found))


def check_itself():
    """Checks that planted mistakes are found and correct texts accepted."""
    page = "docs/architecture.md"
    for text, expected in {
        "`src/base/files.h`, scripts/test and [spec](job_spec.md#layers)": [],
        "`src/base/no_such_file.h`": ["src/base/no_such_file.h"],
        "see src/no_such_folder/.": ["src/no_such_folder"],
        "```\ntrainyard submit examples/no_such_spec.yaml\n```": ["examples/no_such_spec.yaml"],
        "[page](no_such_page.md)": ["no_such_page.md"],
        "[heading](job_spec.md#no-such-heading)": ["job_spec.md#no-such-heading"],
        "[web](https://example.org/src/nothing)": [],
        "`src/base/files.{h,cc}`, `src/base/*.h`, `src/ops/<family>.cc`, `src/data/xyz_dataset.cc`": [],
        "`src/base/files.{h,nothing}`": ["src/base/files.{h,nothing}"],
        "`src/base/*.nothing`": ["src/base/*.nothing"],
        "src/base/files, docs/decisions/backups and tests/golden/{name}.json": [],
        "src/base/no_such_stem, docs/decisions/no-such-page": ["docs/decisions/no-such-page", "src/base/no_such_stem"],
        "`files.h` and `no_such_name.cc`": ["no_such_name.cc"],
        "`decisions/README.md` and `decisions/no_such_page.md`": ["decisions/no_such_page.md"],
        "https://github.com/src/thing, /usr/src/thing, ../src/thing": [],
    }.items():
        found = problems(page, text)
        if found != expected:
            sys.exit(f"paths_test: in {text!r} found {found}, expected {expected}")
    if missing := problems("docs/decisions/README.md", "`src/no_such_folder/x.h`"):
        sys.exit(f"paths_test: a record may name what is gone, found {missing}")


def main():
    check_itself()
    count = 0
    broken = 0
    for page in sorted(files()):
        if page.startswith(NOT_READ) or DATA_OF_EXAMPLES.fullmatch(page):
            continue
        content = (ROOT / page).read_bytes()
        if BINARY_MARK in content:
            continue
        count += 1
        for path in problems(page, content.decode(errors="replace")):
            broken += 1
            print(f"{page}: {path} does not exist")
    print(f"{count} files read, {broken} paths missing")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
