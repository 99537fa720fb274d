"""Starts a front end in front of a daemon's front_socket, with the configuration of packaging/front.
Uses the standard library only, and Debian's packages haproxy or nginx-light.

    with Front("haproxy", folder, port) as served:
        served.reload()

`folder` contains front.pem of make_certificate() and the folder `front` with the daemon's sockets.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CONFIGURATIONS = SOURCE / "packaging/front"


def program(kind):
    """Returns the path of the front end's program, or nothing if it is not installed."""
    return shutil.which(kind, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin")))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificate(folder, name="ca.pem"):
    """Writes a certificate for localhost, key.pem, and front.pem with both. Returns the certificate's path."""
    certificate, key = folder / name, folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out",
                    certificate], check=True, capture_output=True)
    key.chmod(0o600)
    together = folder / "front.pem"
    together.write_text(certificate.read_text() + key.read_text())
    together.chmod(0o600)
    return certificate


class Front:
    def __init__(self, kind, folder, port, workers_port=None):
        self.kind, self.folder, self.port, self.workers_port = kind, pathlib.Path(folder), port, workers_port
        self.log_path = self.folder / f"{kind}.log"
        self.process = None

    def command(self):
        if self.kind == "haproxy":
            return [program("haproxy"), "-W", "-f", CONFIGURATIONS / "haproxy.cfg"]
        text = (CONFIGURATIONS / "nginx.conf").read_text()
        for packaged, here in (("/etc/trainyard/front.pem", self.folder / "front.pem"),
                               ("/run/trainyard-front/", f"{self.folder}/front/"),
                               ("/run/trainyard-front-nginx.pid", self.folder / "nginx.pid"),
                               ("listen 7443", f"listen 127.0.0.1:{self.port}")):
            text = text.replace(str(packaged), str(here))
        configuration = self.folder / "nginx.conf"
        configuration.write_text("user root;\n" + text)
        return [program("nginx"), "-c", configuration]

    def start(self):
        environment = dict(os.environ, TRAINYARD_FRONT_LISTEN=f"127.0.0.1:{self.port}",
                           TRAINYARD_FRONT_CERTIFICATE=str(self.folder / "front.pem"),
                           TRAINYARD_FRONT_FOLDER=str(self.folder / "front"))
        if self.workers_port:
            environment["TRAINYARD_FRONT_WORKERS_LISTEN"] = f"127.0.0.1:{self.workers_port}"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{self.kind} does not serve:\n{self.log_path.read_text(errors='replace')}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                if self.workers():
                    return self
            except OSError:
                pass
            time.sleep(0.05)

    def workers(self):
        """Returns the PIDs of the processes that serve."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return list(map(int, children))

    def worker_pid(self):
        return self.workers()[-1]

    def reload(self):
        """Reads configuration and certificate again. Returns the PIDs of the processes that served until now."""
        before = self.workers()
        self.process.send_signal(signal.SIGUSR2 if self.kind == "haproxy" else signal.SIGHUP)
        return before

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
