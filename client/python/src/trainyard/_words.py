"""Divides text into words by Unicode's default rules (Unicode Standard Annex #29, section 4), as
src/data/text/word_break.cc does. The numbers of rules are those of the annex."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from functools import lru_cache

from trainyard._word_break_table import STARTS

# The classes of the table, in the order of WordBreak in src/data/text/word_break.h.
(_OTHER, _NEWLINE, _EXTEND, _ZERO_WIDTH_JOINER, _FORMAT, _REGIONAL_INDICATOR, _KATAKANA, _HEBREW_LETTER, _LETTER,
 _SINGLE_QUOTE, _DOUBLE_QUOTE, _MID_NUM_LET, _MID_LETTER, _MID_NUM, _NUMERIC, _EXTEND_NUM_LET, _PICTOGRAPH,
 _PICTOGRAPHIC_LETTER, _ALONE) = range(19)

_LETTERS = frozenset((_LETTER, _HEBREW_LETTER, _PICTOGRAPHIC_LETTER))
_MID_OF_LETTERS = frozenset((_MID_LETTER, _MID_NUM_LET, _SINGLE_QUOTE))
_MID_OF_NUMBERS = frozenset((_MID_NUM, _MID_NUM_LET, _SINGLE_QUOTE))
_ATTACHED = frozenset((_EXTEND, _FORMAT, _ZERO_WIDTH_JOINER))
_CONNECTED = _LETTERS | {_NUMERIC, _KATAKANA, _EXTEND_NUM_LET}
_MAKES_WORD = _LETTERS | {_NUMERIC, _KATAKANA, _ALONE, _PICTOGRAPH, _REGIONAL_INDICATOR}


@lru_cache(4096)
def _class_of(character: str) -> int:
    return STARTS[bisect_right(STARTS, ord(character) * 32 + 31) - 1] & 31


def _joins(two: int, one: int, following: int, after: int) -> bool:
    """Whether there is no boundary before `following`, by rules 5 to 13b. `two` and `one` are the classes before it,
    `after` is that behind it; attached code points are skipped."""
    if one in _LETTERS:
        if following in _LETTERS or following == _NUMERIC or (following in _MID_OF_LETTERS and after in _LETTERS):
            return True
        if one == _HEBREW_LETTER and (following == _SINGLE_QUOTE or
                                      (following == _DOUBLE_QUOTE and after == _HEBREW_LETTER)):
            return True
    if one == _NUMERIC and (following == _NUMERIC or following in _LETTERS or
                            (following in _MID_OF_NUMBERS and after == _NUMERIC)):
        return True
    if one in _MID_OF_LETTERS and two in _LETTERS and following in _LETTERS:
        return True
    if one == _DOUBLE_QUOTE and two == following == _HEBREW_LETTER:
        return True
    if one in _MID_OF_NUMBERS and two == following == _NUMERIC:
        return True
    if one == following == _KATAKANA:
        return True
    return (following == _EXTEND_NUM_LET and one in _CONNECTED) or (one == _EXTEND_NUM_LET and following in _CONNECTED)


def _segments(text: str) -> list[str]:
    """Returns the segments between boundaries that contain a letter, a number or an emoji."""
    classes = [_class_of(character) for character in text]
    # For each code point, the class of the next one that is not attached.
    after = [_OTHER] * len(text)
    for i in range(len(text) - 2, -1, -1):
        after[i] = after[i + 1] if classes[i + 1] in _ATTACHED else classes[i + 1]
    found: list[str] = []
    begin, word, two, one, indicators = 0, False, _OTHER, _OTHER, 0
    for i, of in enumerate(classes):
        last = classes[i - 1] if i else _NEWLINE
        if last == _NEWLINE or of == _NEWLINE:
            joined = False  # rules 3a, 3b
        elif of in _ATTACHED:
            joined = True  # rule 4
        elif last == _ZERO_WIDTH_JOINER and of in (_PICTOGRAPH, _PICTOGRAPHIC_LETTER):
            joined = True  # rule 3c
        elif of == _REGIONAL_INDICATOR:
            joined = indicators % 2 == 1  # rules 15, 16
        else:
            joined = _joins(two, one, of, after[i])
        if not joined:
            if word:
                found.append(text[begin:i])
            begin, word, two, one, indicators = i, False, _OTHER, _OTHER, 0
        word = word or of in _MAKES_WORD
        if of not in _ATTACHED or not joined:
            two, one = one, of
            indicators = indicators + 1 if of == _REGIONAL_INDICATOR else 0
    if word:
        found.append(text[begin:])
    return found


def _lower_case(character: str) -> str:
    """Converts a code point to lower case if that is a single code point: of all, U+0130 alone becomes two."""
    return "i" if character == "\u0130" else character.lower()


def _word_of(segment: str) -> str:
    if segment.isascii():
        return segment.lower()
    kept = (character for character in segment
            if character not in "\ufe0e\ufe0f" and (character < "\x80" or _class_of(character) != _FORMAT))
    return unicodedata.normalize("NFC", "".join("'" if c == "\u2019" else _lower_case(c) for c in kept))


def words(text: str) -> list[str]:
    """Returns the words in lower case and NFC, without invisible characters."""
    return [_word_of(segment) for segment in _segments(text)]
