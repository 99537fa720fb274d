#!/usr/bin/env python3
"""Writes subword.json: the token ids that SentencePiece itself computes with models written by
trainyard-tokenizer.

    pip install sentencepiece
    venv/bin/python tests/golden/make_subword_golden.py build/release/bin/trainyard-tokenizer
"""

import base64
import json
import pathlib
import subprocess
import sys

import sentencepiece

FOLDER = pathlib.Path(__file__).parent

SENTENCES = [
    "The old tower stands on a low hill, and the wind blows around the tower all night.",
    "Nobody had seen the light in the tower; nobody knew who lived there.",
    "    indented   lines   keep    their    blanks",
    "def walk(steps): return [step for step in steps if step > 0]",
    "Der Wind weht um den alten Turm, und die Nacht ist kalt.",
    "Le vent souffle autour de la vieille tour pendant la nuit \u00e9toil\u00e9e.",
    "\u0412\u0435\u0442\u0435\u0440 \u0434\u0443\u0435\u0442 \u0432\u043e\u043a\u0440\u0443\u0433 \u0441\u0442\u0430\u0440\u043e\u0439 "
    "\u0431\u0430\u0448\u043d\u0438.",
    "\u53e4\u3044\u5854\u306e\u4e0a\u3067\u98a8\u304c\u5439\u304f\u3002\u53e4\u3044\u5854\u3002",
    "1234 5678 90 12 1999 2024 2025 3.14159 100,000",
] * 3

TEXTS = SENTENCES[:9] + [
    "a",
    " ",
    "   ",
    "the towers of the town",
    "line one\nline two\r\n\ttabbed\n\n",
    "caf\u00e9 \u2603 \U0001f600 unseen: \u00df \u0142 \u4e2d",
    "<0x41> and <unk> are text",
    "trailing blanks   ",
    "antidisestablishmentarianism" * 5,
    "\x00\x01 control \x7f",
]


def main():
    cases = []
    for kind, pieces in (("bpe", 420), ("unigram", 420)):
        model = subprocess.run([sys.argv[1], kind, str(pieces)], input="\n".join(SENTENCES).encode() + b"\n",
                               capture_output=True, check=True).stdout
        judge = sentencepiece.SentencePieceProcessor(model_proto=model)
        assert all(judge.decode(judge.encode(t)) == t for t in TEXTS)
        cases.append({"kind": kind, "model": base64.b64encode(model).decode(), "pieces": judge.get_piece_size(),
                      "ids": [judge.encode(t) for t in TEXTS]})
    golden = {"sentences": SENTENCES, "texts": TEXTS, "cases": cases}
    (FOLDER / "subword.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
