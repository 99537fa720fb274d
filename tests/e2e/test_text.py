"""Tests of text through the service: rows are classified, and a text is continued. They fail if any
step does not support tokens: upload, schema, plan, training, predict."""

import unittest

from harness import DaemonTest

TOPICS = {"sport": ["team", "match", "goal", "coach"], "money": ["bank", "rates", "shares", "loan"]}


def news(rows):
    """Returns rows of two topics that differ in only two words."""
    text = "topic,title,body,id\n"
    for i in range(rows):
        topic = ("sport", "money")[i % 2]
        words = TOPICS[topic]
        text += (f'{topic},The {words[i // 2 % 4]} today,"word{i % 19}, and the '
                 f'{words[i // 8 % 4].upper()}!",{i}\n')
    return text


BIGRAMS = """
dataset: {{name: {dataset}}}
model:
  layers:
    - embedding_bag: {{embedding_dim: 16}}
    - gemm: {{units: 8}}
    - reshape: {{shape: [{context}, -1]}}
recipe:
  steps: 80
  batch_size: 16
  context_length: {context}
  validation_split: 0.2
  optimizer: {{type: adam, learning_rate: 0.05}}
"""


class Text(DaemonTest):
    def test_rows_of_text_are_classified(self):
        self.write("news.csv", news(160))
        spec = self.write("news.yaml", """
name: news-topics
dataset:
  name: news
  path: news.csv
  csv: {target: topic, text: [title, body], vocabulary_size: 30, max_length: 9}
model:
  embedding_bag_classifier: {embedding_dim: 16, dropout: 0.1}
recipe:
  epochs: 15
  batch_size: 16
  optimizer: {type: adam, learning_rate: 0.02}
  validation_split: 0.25
""")
        self.daemon.cli("submit", spec, "--watch")
        self.assertEqual(self.daemon.job("news-topics")["progress"]["metrics"]["val/accuracy"], 1)
        schema = self.daemon.json("dataset", "get", "news")["schema"]
        self.assertEqual(schema["text"]["tokenizer"], "WORD")
        self.assertEqual(int(schema["text"]["vocabulary_size"]), 32)
        self.assertEqual(int(schema["text"]["max_length"]), 9)
        self.assertEqual(schema["text"]["pieces"][0], "the")
        self.assertEqual([c["name"] for c in schema["columns"]], ["title", "body"])
        self.assertIn("word", self.daemon.cli("dataset", "get", "news").stdout)

        lines = self.write("lines.txt", "the coach of the TEAM\nA loan, says the bank.\n")
        answer = self.daemon.json("predict", "news-topics", "--text", lines)
        self.assertEqual([p["label"] for p in answer["predictions"]], ["sport", "money"])
        rows = self.write("rows.csv", "body,title\nthe bank,Higher rates\n")
        answer = self.daemon.json("predict", "news-topics", "--csv", rows)
        self.assertEqual([p["label"] for p in answer["predictions"]], ["money"])
        bad = self.write("bad.txt", b"good\nbad \xff\n")
        done = self.daemon.cli("predict", "news-topics", "--text", bad, check=False)
        self.assert_refused(done, done.returncode, "line 2", "not UTF-8")
        self.assertNotEqual(done.returncode, 0)

    def test_one_text_is_continued(self):
        text = self.write("input.txt", "abcdefg" * 200)
        self.daemon.cli("dataset", "upload", "--text", text, "--name", "letters", "--test-share", "0.1")
        schema = self.daemon.json("dataset", "get", "letters")["schema"]
        self.assertEqual(int(schema["train_rows"]), 1260)
        self.assertEqual(int(schema["test_rows"]), 140)
        self.assertEqual(schema["text"]["pieces"], list("abcdefg"))
        spec = self.write("letters.yaml", "name: letters\n" + BIGRAMS.format(dataset="letters", context=1))
        self.daemon.cli("submit", spec, "--watch")
        metrics = self.daemon.job("letters")["progress"]["metrics"]
        self.assertEqual(metrics["val/accuracy"], 1)
        self.assertEqual(metrics["test/accuracy"], 1)
        lines = self.write("start.txt", "abc\n")
        done = self.daemon.cli("predict", "letters", "--text", lines, check=False)
        self.assert_refused(done, done.returncode, "continues text")
        self.assertNotEqual(done.returncode, 0)

        done = self.daemon.cli("generate", "letters", "--prompt", "abc", "--tokens", "12", "--temperature", "0")
        self.assertEqual(done.stdout, "defgabcdefga\n")
        answer = self.daemon.json("generate", "letters", "--prompt", "g", "--tokens", "2", "--top-k", "1")
        self.assertEqual(answer, {"text": "ab", "token_count": "2", "finish": "LENGTH"})
        answer = self.daemon.json("generate", "letters", "--prompt", "g", "--prompt", "abc", "--temperature", "0",
                                  "--stop", "fg")
        self.assertEqual([(a["text"], a["finish"]) for a in answer], [("abcde", "STOP"), ("de", "STOP")])
        for options, words in ((["--prompt", "aXc"], ["'X'"]), (["--tokens", "0"], ["token_count"]),
                               (["--top-p", "2"], ["top_p"]), (["--min-p", "-1"], ["min_p"]),
                               (["--repetition-penalty", "0"], ["repetition_penalty"])):
            done = self.daemon.cli("generate", "letters", *["--prompt", "a"][:2 * ("--prompt" not in options)], *options,
                                   check=False)
            self.assert_refused(done, 2, *words)
        answer = self.daemon.json("model", "evaluate", "letters", "letters")
        self.assertEqual((answer["rows"], answer["row_count"]), ("TEST", 139))
        self.assertEqual(answer["metrics"]["accuracy"], 1)
        self.assertNotIn("trained on these rows", self.daemon.cli("model", "evaluate", "letters", "letters").stderr)
        told = self.daemon.cli("model", "evaluate", "letters", "letters", "--rows", "train")
        self.assertIn("the model was trained on these rows", " ".join(told.stderr.split()))

        too_long = self.write("long.yaml", BIGRAMS.format(dataset="letters", context=1300))
        done = self.daemon.cli("submit", too_long, check=False)
        self.assert_refused(done, done.returncode, "context_length", "1..1259")
        self.assertNotEqual(done.returncode, 0)

    def test_pieces_of_words(self):
        sentence = "the tower \u2603 of the town\n"
        text = self.write("tower.txt", sentence * 200)
        spec = self.write("tower.yaml", f"""
name: tower
dataset: {{name: tower, path: {text}, text: {{tokenizer: bpe, vocabulary_size: 290, test_share: 0.1}}}}
model: {{gpt2: {{n_layer: 1, n_head: 2, n_embd: 32, dropout: 0}}}}
recipe:
  steps: 150
  batch_size: 16
  context_length: 8
  metrics: [bits_per_byte]
  optimizer: {{type: adam, learning_rate: 0.01}}
""")
        self.daemon.cli("submit", spec, "--watch")
        schema = self.daemon.json("dataset", "get", "tower")["schema"]
        self.assertEqual(schema["text"]["tokenizer"], "BPE")
        self.assertIn("\u2581t", schema["text"]["pieces"])
        self.assertLess(int(schema["train_rows"]), len(sentence) * 200 * 0.9 / 2)
        self.assertIn("bpe", self.daemon.cli("dataset", "get", "tower").stdout)
        metrics = self.daemon.job("tower")["progress"]["metrics"]
        self.assertLess(metrics["test/bits_per_byte"], 0.3)

        done = self.daemon.cli("generate", "tower", "--prompt", "the tower", "--tokens", "40", "--temperature", "0")
        self.assertTrue(done.stdout.startswith(" \u2603 of the town\nthe tower"), done.stdout)
        # Unseen characters are encoded as bytes, and at a high temperature the model generates
        # bytes that form no character.
        answer = self.daemon.json("generate", "tower", "--prompt", "\u00e9\U0001f600", "--tokens", "200",
                                  "--temperature", "50")
        self.assertIn("\ufffd", answer["text"])
        other = self.write("other.txt", "of the tower of the town\n" * 30)
        self.daemon.cli("dataset", "upload", "--text", other, "--name", "other", "--tokenizer", "bpe",
                        "--vocabulary-size", "280")
        answer = self.daemon.json("model", "evaluate", "tower", "other")
        self.assertGreater(answer["metrics"]["accuracy"], 0.3)

        done = self.daemon.cli("dataset", "upload", "--text", text, "--tokenizer", "unigram", "--vocabulary-size", "100",
                               check=False)
        self.assert_refused(done, 2, "text.vocabulary_size", "100 is too few")
        done = self.daemon.cli("dataset", "upload", "--text", text, "--vocabulary-size", "300", check=False)
        self.assert_refused(done, 2, "vocabulary_size", "bpe or unigram")

    def test_rows_in_pieces_of_words(self):
        self.write("pieces.csv", news(160))
        spec = self.write("pieces.yaml", """
name: pieces
dataset:
  path: pieces.csv
  csv: {target: topic, text: [title, body], tokenizer: unigram, vocabulary_size: 350, max_length: 24}
model:
  embedding_bag_classifier: {embedding_dim: 16}
recipe: {epochs: 15, batch_size: 16, validation_split: 0.25, optimizer: {type: adam, learning_rate: 0.02}}
""")
        self.daemon.cli("submit", spec, "--watch")
        self.assertEqual(self.daemon.job("pieces")["progress"]["metrics"]["val/accuracy"], 1)
        lines = self.write("pieces.txt", "The coach today\nThe bank today \u2603\n")
        answer = self.daemon.json("predict", "pieces", "--text", lines)
        self.assertEqual([p["label"] for p in answer["predictions"]], ["sport", "money"])

    def test_invalid_text_is_refused_with_its_byte(self):
        path = self.write("latin1.txt", "caf\xe9 noir".encode("latin-1"))
        done = self.daemon.cli("dataset", "upload", "--text", path, check=False)
        self.assert_refused(done, done.returncode, "byte 3", "UTF-8")
        self.assertNotEqual(done.returncode, 0)
        self.daemon.cli("dataset", "upload", "--text", path, "--tokenizer", "byte")


if __name__ == "__main__":
    unittest.main()
