"""HTTP/2 frames by hand, for tests that send what no client library would. Uses the standard library only.

    with Connection(port, "ca.pem") as connection:
        connection.call("/trainyard.v1.JobService/ListJobs", b"", token="...")
        connection.read_until(lambda frame: frame.ends_stream)
"""
import socket
import ssl
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)


def varint(number):
    out = b""
    while number >= 128:
        out, number = out + bytes([number % 128 + 128]), number // 128
    return out + bytes([number])


def hpack_text(text):
    data = text.encode()
    return (bytes([len(data)]) if len(data) < 127 else b"\x7f" + varint(len(data) - 127)) + data


def block(path, token=None, more=()):
    """Returns the headers of a gRPC call as literals of HPACK. `more` are further (name, value)."""
    pairs = [(":method", "POST"), (":scheme", "https"), (":path", path), (":authority", "localhost"),
             ("content-type", "application/grpc"), ("te", "trailers")]
    if token:
        pairs.append(("authorization", "Bearer " + token))
    return b"".join(b"\x00" + hpack_text(name) + hpack_text(value) for name, value in [*pairs, *more])


def message(data):
    """Returns a gRPC message: no compression, length, bytes."""
    return struct.pack(">BI", 0, len(data)) + data


def text_field(number, text):
    """Returns a string field of Protobuf."""
    data = text.encode()
    return varint(number << 3 | 2) + varint(len(data)) + data


class Frame:
    def __init__(self, kind, flags, stream, payload):
        self.kind, self.flags, self.stream, self.payload = kind, flags, stream, payload
        self.ends_stream = kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM != 0)


def tls_context(ca_file=None):
    """Trusts the certificate, or any if there is none."""
    context = ssl.create_default_context(cafile=ca_file)
    if ca_file is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


class Connection:
    """A connection over TLS, from `source` if it is given."""

    def __init__(self, port, ca_file=None, source=None, timeout_s=120.0):
        plain = socket.socket()
        plain.settimeout(timeout_s)
        if source:
            plain.bind((source, 0))
        plain.connect(("127.0.0.1", port))
        self.tls = tls_context(ca_file).wrap_socket(plain, server_hostname="localhost")
        self.tls.sendall(PREFACE)
        self.stream = -1
        self.unread = b""

    def call(self, path, request, token=None, more=(), ends=True):
        """Sends a call with one message. Returns its stream's number."""
        self.stream += 2
        self.tls.sendall(frame(HEADERS, END_HEADERS, self.stream, block(path, token, more)) +
                         frame(DATA, END_STREAM if ends else 0, self.stream, message(request)))
        return self.stream

    def read(self):
        """Returns the next frame, or nothing if the connection was closed. Acknowledges settings."""
        while True:
            while len(self.unread) < 9 or len(self.unread) < 9 + int.from_bytes(self.unread[:3], "big"):
                more = self.tls.recv(65536)
                if not more:
                    return None
                self.unread += more
            length = int.from_bytes(self.unread[:3], "big")
            found = Frame(self.unread[3], self.unread[4], int.from_bytes(self.unread[5:9], "big"), self.unread[9:9 + length])
            self.unread = self.unread[9 + length:]
            if found.kind == SETTINGS and not found.flags & ACK:
                self.tls.sendall(frame(SETTINGS, ACK, 0))
            else:
                return found

    def read_until(self, condition):
        """Returns the frames up to the first with the condition; ends with None if the connection was closed before."""
        frames = []
        while True:
            frames.append(self.read())
            if frames[-1] is None or condition(frames[-1]):
                return frames

    def close(self):
        self.tls.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
