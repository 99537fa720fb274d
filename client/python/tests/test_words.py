"""Tests of the words into which exported models divide text, by the boundaries of Unicode's own test."""

from conftest import SOURCE

from trainyard._words import _MAKES_WORD, _class_of, _segments, words


def test_words_are_those_of_unicodes_test():
    lines = (SOURCE / "tests/golden/word_breaks.txt").read_text().splitlines()
    wrong, count = [], 0
    for line in lines:
        if line.startswith("#"):
            continue
        count += 1
        parts = ["".join(chr(int(code, 16)) for code in part.split("+")) for part in line.split("|")]
        expected = [part for part in parts if any(_class_of(character) in _MAKES_WORD for character in part)]
        if _segments("".join(parts)) != expected:
            wrong.append(line)
    assert (count, wrong) == (1823, [])


def test_equal_words_are_written_alike():
    assert words("Don't don\u2019t CAF\u00c9 cafe\u0301") == ["don't", "don't", "caf\u00e9", "caf\u00e9"]
    assert words("\u201cgood\u201d\u2026film\u2014OK\uff01 \u4f60\u597d co\u00adop \u2764\ufe0f") == [
        "good", "film", "ok", "\u4f60", "\u597d", "coop", "\u2764"]
