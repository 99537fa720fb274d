"""Tests what people see on a terminal of 80 columns: no line is wider, no word is broken, jobs that
run are on the screen, and a reason that many jobs share is shown once."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import unittest

from harness import BIN, PATIENCE_S, DaemonTest, digits_spec, wait_until

COLUMNS = 80
WAITING = 55


class Terminal(DaemonTest):
    arguments = ("--cpu-slots", "1")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        spec = digits_spec(cls.folder, "first-of-all")
        text = spec.read_text().replace("epochs: 3", "epochs: 100000")
        cls.running = cls.daemon.submit(write_spec(cls.folder, "first-of-all", text))
        wait_until(lambda: cls.daemon.job(cls.running)["state"] == "RUNNING", "it runs")
        for number in range(WAITING):
            cls.daemon.submit(write_spec(cls.folder, f"waiting-{number}", text.replace("first-of-all", f"waiting-{number}")))

    def shown(self, *arguments):
        """Returns the lines that a terminal gets from a command, without colors."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        env = dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}", TERM="xterm", NO_COLOR="1", LC_ALL="C.UTF-8")
        process = subprocess.Popen([BIN / "trainyard", *arguments], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        out = b""
        while True:
            ready, _, _ = select.select([master], [], [], PATIENCE_S)
            try:
                part = os.read(master, 65536) if ready else b""
            except OSError:
                part = b""
            if not part:
                break
            out += part
        process.wait(PATIENCE_S)
        os.close(master)
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", out.decode())
        return text.replace("\r\n", "\n").splitlines()

    def test_nothing_is_wider_than_the_terminal(self):
        for command in (["list"], ["queue"], ["explain", "waiting-3"], ["get", "waiting-3"], ["device", "list"], ["help"],
                        ["help", "submit"], ["help", "options"], ["get", "nobody"], ["server", "status"],
                        ["submit", "no-such-file.yaml"], ["cancel"], ["model", "get", "Not_A_Name"]):
            for line in self.shown(*command):
                if re.match(r"  \S.*trainyard ", line) or line.startswith("  trainyard "):
                    continue  # an example, which people copy
                self.assertLessEqual(len(line), COLUMNS, f"{command}: {line}")

    def test_what_runs_is_first_and_a_shared_reason_is_shown_once(self):
        lines = self.shown("list")
        self.assertTrue(lines[1].startswith("first-of-all"), lines[:4])
        text = " ".join(" ".join(lines).split())
        self.assertEqual(text.count("first-of-all RUNNING"), 1, text)
        self.assertEqual(text.count("Waits for the CPU behind waiting-0"), 1, text)
        self.assertRegex(text, r"waiting-\d+, waiting-\d+, waiting-\d+ and \d+ more: Waits for the CPU behind waiting-0")
        self.assertIn("There are more; raise --limit to see them.", text)

    def test_sentences_break_between_words(self):
        said = " ".join(" ".join(self.shown("explain", "waiting-3")).split())
        self.assertIn("Waits for the CPU behind waiting-0, submitted earlier", said)


def write_spec(folder, name, text):
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


if __name__ == "__main__":
    unittest.main()
