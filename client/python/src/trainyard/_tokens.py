"""Converts text to tokens as src/data/text does, by the metadata field `text` of an export."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from trainyard.errors import InvalidArgumentError

Tokenizer: TypeAlias = Callable[[str], list[int]]  # returns the token IDs, neither cut nor padded

_BLANK_PIECE = "\u2581"  # represents a space in SentencePiece's pieces

_BLANKS = frozenset("\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | frozenset(map(chr, range(0x2000, 0x200c)))


def _is_word_part(character: str) -> bool:
    if character < "\x80":
        return character.isalnum()
    return character >= "\u00a0" and character not in _BLANKS


def _lower_case(character: str) -> str:
    """Converts ASCII, Latin-1, Greek and Cyrillic like `lower_case` in src/data/text/tokenizer.cc; str.lower() converts
    more."""
    code = ord(character)
    if 0x41 <= code <= 0x5a or (0xc0 <= code <= 0xde and code != 0xd7) or (0x391 <= code <= 0x3ab and code != 0x3a2) or (
            0x410 <= code <= 0x42f):
        return chr(code + 32)
    return chr(code + 80) if 0x400 <= code <= 0x40f else character


def _words(text: str) -> list[str]:
    return "".join(_lower_case(c) if _is_word_part(c) else " " for c in text).split(" ")


def _subword_tokenizer(model: bytes, first: int) -> Tokenizer:
    try:
        import sentencepiece
    except ImportError:
        raise ImportError("this model's tokenizer needs SentencePiece: `pip install sentencepiece` installs it") from None
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    byte_ids = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    sign = [byte_ids[byte] for byte in _BLANK_PIECE.encode()]

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        # If the text itself contains the piece for a space, it is encoded as its bytes, so that decoding does not turn
        # it into a space.
        for i, part in enumerate(text.split(_BLANK_PIECE)):
            if i > 0:
                ids += sign
            pieces = processor.encode(part)
            at = 0
            while at < len(pieces):
                if pieces[at:at + 3] == sign:  # the model has no piece for a space, which becomes one byte
                    ids.append(byte_ids[0x20])
                    at += 3
                else:
                    ids.append(pieces[at])
                    at += 1
        return [token + first for token in ids]
    return encode


def make_tokenizer(text: Mapping[str, Any]) -> Tokenizer:
    kind = text["tokenizer"]
    first: int = text["first_piece_id"]
    if kind == "byte":
        return lambda row: [first + byte for byte in row.encode()]
    unknown: int = text["unknown_id"]
    if kind in ("bpe", "unigram"):
        return _subword_tokenizer(base64.b64decode(text["sentencepiece_model"]), unknown)
    ids = {piece: token for token, piece in enumerate(text["pieces"], first)}
    if kind == "char":
        return lambda row: [ids.get(character, unknown) for character in row]
    if kind == "word":
        return lambda row: [ids.get(word, unknown) for word in _words(row) if word]
    raise InvalidArgumentError(f"text.tokenizer: {kind!r}, expected byte, char, word, bpe or unigram: the file is of a "
                               "newer version", reason="MODEL_FILE_INVALID")
