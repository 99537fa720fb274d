"""Converts text to tokens as src/data/text does, by the metadata field `text` of an export."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from trainyard._word_break_table import VERSION
from trainyard._words import words
from trainyard.errors import InvalidArgumentError

Tokenizer: TypeAlias = Callable[[str], list[int]]  # returns the token IDs, neither cut nor padded

_BLANK_PIECE = "\u2581"  # represents a space in SentencePiece's pieces


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
        if text["unicode"] != VERSION:
            raise InvalidArgumentError(f"text.unicode: {text['unicode']!r}, expected {VERSION!r}: the file is of another "
                                       "version", reason="MODEL_FILE_INVALID")
        return lambda row: [ids.get(word, unknown) for word in words(row)]
    raise InvalidArgumentError(f"text.tokenizer: {kind!r}, expected byte, char, word, bpe or unigram: the file is of a "
                               "newer version", reason="MODEL_FILE_INVALID")
