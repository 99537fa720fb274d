"""Tests of chats through the service with a model whose answers are known (tiny_chat_model.py)."""

import json
import os
import pty
import select
import time
import unittest

from harness import BIN, PATIENCE_S, DaemonTest
from tiny_chat_model import write_chat_model


SPEC = """
name: {name}
dataset: {{name: {name}-rows, path: {name}.jsonl, documents: {{tokenizer: {name}}}}}
model: {{pretrained: {name}}}
recipe: {{steps: 1, batch_size: 1, optimizer: {{type: sgd, learning_rate: 1.0e-12}}}}
"""


class Chat(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train("tiny-chat", "Hi!", context=120)

    @classmethod
    def train(cls, name, answer, **options):
        """A job of one step that changes nothing makes a model of the folder."""
        write_chat_model(cls.folder / name, answer, **options)
        rows = [{"messages": [{"role": "user", "content": f"Number {i}?"}, {"role": "assistant", "content": answer}]}
                for i in range(8)]
        (cls.folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        spec = cls.folder / f"{name}.yaml"
        spec.write_text(SPEC.format(name=name))
        cls.daemon.cli("submit", spec, "--watch")

    def chat(self, lines, *options, check=True):
        return self.daemon.cli("chat", "tiny-chat", "--temperature", "0", *options, input=lines, check=check)

    def test_each_line_gets_an_answer_that_ends_by_itself(self):
        self.assertEqual(self.chat("Hello?\n\nAnd you?\n").stdout, "Hi!\nHi!\n")

    def test_commands(self):
        done = self.chat("one\n/reset\n/what\ntwo\n/quit\nthree\n")
        self.assertEqual(done.stdout, "Hi!\nHi!\n")
        self.assertIn("/what", done.stderr)

    def test_a_long_chat_loses_its_oldest_messages_with_a_note(self):
        done = self.chat("one\ntwo\nthree\nfour\n", "--system", "Be short.")
        self.assertEqual(done.stdout, "Hi!\n" * 4)
        self.assertIn("oldest", done.stderr)
        done = self.chat("x" * 200 + "\n", check=False)
        self.assert_refused(done, 2, "tokens", "at most 119")

    def test_lines_of_json(self):
        answers = [json.loads(line) for line in self.chat("one\ntwo\n", "-o", "jsonl").stdout.splitlines()]
        self.assertEqual([(a["content"], a["finish"], a["token_count"]) for a in answers], [("Hi!", "END", "3")] * 2)
        answers = [json.loads(line) for line in self.chat("one\n", "-o", "jsonl", "--tokens", "2").stdout.splitlines()]
        self.assertEqual([(a["content"], a["finish"]) for a in answers], [("Hi", "LENGTH")])

    def test_generate_takes_prompts_and_stop_texts(self):
        done = self.daemon.cli("generate", "tiny-chat", "--prompt", "\n", "--temperature", "0")
        self.assertEqual(done.stdout, "Hi!\n")
        done = self.daemon.cli("generate", "tiny-chat", "--prompt", "\n", "--temperature", "0", "--stop", "i!")
        self.assertEqual(done.stdout, "H\n")
        answer = self.daemon.json("generate", "tiny-chat", "--prompt", "\n", "--temperature", "0", "--ignore-end",
                                  "--tokens", "6")
        self.assertEqual((answer["finish"], answer["text"]), ("LENGTH", "Hi!"))

    def test_an_unknown_model_is_refused(self):
        done = self.daemon.cli("chat", "nobody", input="x\n", check=False)
        self.assert_refused(done, done.returncode, "nobody")

    def test_on_a_terminal_ctrl_c_stops_the_answer_and_not_the_chat(self):
        self.train("endless-chat", "abc", context=100_000, repeats=True)
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ["TRAINYARD_SERVER"] = f"unix:{self.daemon.socket}"
            program = str(BIN / "trainyard")
            os.execv(program, [program, "chat", "endless-chat", "--temperature", "0", "--tokens", "60000"])
        seen = b""

        def read_until(text):
            nonlocal seen
            limit = time.monotonic() + PATIENCE_S
            while text not in seen:
                self.assertLess(time.monotonic(), limit, seen)
                if select.select([terminal], [], [], 0.1)[0]:
                    seen += os.read(terminal, 4096)
            seen = seen.split(text, 1)[1]

        read_until(b"> ")
        for _ in range(2):
            os.write(terminal, b"Hello?\n")
            read_until(b"abcabc")
            os.write(terminal, b"\x03")
            read_until(b"> ")
        os.write(terminal, b"/quit\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        os.close(terminal)


if __name__ == "__main__":
    unittest.main()
