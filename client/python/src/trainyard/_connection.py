"""Chooses the server, the credentials and the project by the same rules as the command line (docs/cli.md).

Each value comes from the first of these that has it: argument, environment, context of the configuration file, default.
A context that an argument names goes before the environment. A context's values belong to its server: if another source
names another server, none of them is used.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import re
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard._contexts import Context, choose_context, config_error, find_config
from trainyard.errors import InvalidArgumentError, NotAllowedError, NotFoundError, UnavailableError

SOCKET_PATH_BYTES_MAX = 107
TOKEN_BYTES_MAX = 4096
TIMEOUT_S_MAX = 3600.0
DEFAULT_PROJECT = "default"
# Where the systemd unit's daemon listens, and where one that root starts by hand does.
SERVICE_SOCKET = Path("/run/trainyard/trainyard.sock")
ROOT_SOCKET = Path("/var/lib/trainyard/trainyard.sock")

_PROJECT = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass
class Connection:
    server: str = ""  # "unix:/path" or "host:port"
    ca_file: Path | None = None  # PEM file of root certificates for TLS
    token_file: Path | None = None  # file of the bearer token; only its owner may have access
    token: str = ""  # the bearer token itself; then no file is read
    project: str = "default"  # the ID of the project that names without one mean
    is_default: bool = False  # no setting names the server
    plaintext: bool = False  # allows TCP without TLS to an address other than loopback
    timeout_s: float = 10.0  # for each unary call

    @property
    def is_unix(self) -> bool:
        return self.server.startswith("unix:")

    @property
    def parent(self) -> str:
        return f"projects/{self.project}"


def default_sockets(env: Mapping[str, str]) -> list[Path]:
    """Returns the paths on which a daemon may listen by default, the most specific first."""
    sockets = []
    if os.geteuid() != 0:
        if env.get("XDG_RUNTIME_DIR"):
            sockets.append(Path(env["XDG_RUNTIME_DIR"], "trainyard/trainyard.sock"))
        if env.get("XDG_STATE_HOME", "").startswith("/"):
            sockets.append(Path(env["XDG_STATE_HOME"], "trainyard/trainyard.sock"))
        elif env.get("HOME", "").startswith("/"):
            sockets.append(Path(env["HOME"], ".local/state/trainyard/trainyard.sock"))
    return [*sockets, SERVICE_SOCKET, ROOT_SOCKET]


def _is_socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except PermissionError:  # in a folder that is closed to this user
        return False


def _default_server(env: Mapping[str, str]) -> str:
    sockets = default_sockets(env)
    # The default, for the error message if no socket exists, is where this user's daemon would listen: above the two of
    # the machine.
    fallback = sockets[-3] if len(sockets) > 2 else sockets[-1]
    return f"unix:{next((path for path in sockets if _is_socket(path)), fallback)}"


def _check_server(connection: Connection) -> None:
    server = connection.server
    if server.startswith("/"):
        server = "unix:" + server
    if server.startswith("unix://"):
        server = "unix:" + server[len("unix://"):]
    connection.server = server

    def refuse(expected: str) -> InvalidArgumentError:
        return config_error(f"server '{server}': expected {expected}")

    if connection.is_unix:
        path = server[len("unix:"):]
        if not path:
            raise refuse("unix:/path/to/trainyard.sock")
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            raise refuse(f"a socket path of at most {SOCKET_PATH_BYTES_MAX} bytes, the limit of Linux")
        return
    host, _, port = server.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise refuse("unix:/path or host:port")
    loopback = host in ("localhost", "[::1]") or host.startswith("127.")
    if loopback and connection.ca_file is None:
        connection.plaintext = True


def _first(context: Context | None, named: bool, *, argument: str, variable: str, of_context: str) -> str:
    """Returns the first value that is set: argument, environment, context; a context that an argument names goes before
    the environment."""
    in_context = of_context if context is not None else ""
    return argument or (in_context if named else "") or variable or in_context


def _choose_token(connection: Connection, context: Context | None, named: bool, token: str,
                  token_file: str | os.PathLike[str] | None, env: Mapping[str, str]) -> None:
    of_context = context.token_file if context is not None else None
    if token:
        connection.token = check_token(token, "token")
    elif token_file is not None:
        connection.token_file = Path(token_file)
    elif named and of_context:
        connection.token_file = of_context
    elif env.get("TRAINYARD_TOKEN"):
        connection.token = check_token(env["TRAINYARD_TOKEN"], "TRAINYARD_TOKEN")
    elif env.get("TRAINYARD_TOKEN_FILE"):
        connection.token_file = Path(env["TRAINYARD_TOKEN_FILE"])
    else:
        connection.token_file = of_context


def project_id(text: str, what: str = "project") -> str:
    """Returns the ID of a project that is given by ID or by full name."""
    project = text.removeprefix("projects/")
    if not _PROJECT.fullmatch(project):
        raise config_error(f"{what}: '{text}', expected 1 to 63 characters of a-z, 0-9 and dash, beginning with a letter "
                           "and not ending with a dash")
    return project


def resolve(address: str | None, *, context: str | None, project: str | None = None,
            ca_file: str | os.PathLike[str] | None, token: str | None = None,
            token_file: str | os.PathLike[str] | None, config_file: str | os.PathLike[str] | None, plaintext: bool,
            timeout_s: float, env: Mapping[str, str] = os.environ) -> Connection:
    """Combines arguments, environment, configuration and defaults. CONFIG_INVALID names what is wrong."""
    if token and token_file is not None:
        raise config_error("token, token_file: expected one of them")
    connection = Connection()
    named = bool(context)
    chosen = choose_context(find_config(config_file, env), context or env.get("TRAINYARD_CONTEXT", ""))
    server = _first(chosen, named, argument=address or "", variable=env.get("TRAINYARD_SERVER", ""),
                    of_context=chosen.server if chosen else "")
    if server and chosen is not None and chosen.server != server:
        chosen = None  # its values, above all its token, belong to its server alone
    connection.is_default = not server
    connection.server = server or _default_server(env)
    connection.ca_file = Path(ca_file) if ca_file is not None else chosen.ca_file if chosen else None
    _choose_token(connection, chosen, named, token or "", token_file, env)
    given = _first(chosen, named, argument=project or "", variable=env.get("TRAINYARD_PROJECT", ""),
                   of_context=chosen.project if chosen else "")
    connection.project = project_id(given) if given else DEFAULT_PROJECT
    connection.plaintext = plaintext or (chosen is not None and chosen.plaintext)
    if not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise config_error(f"timeout_s: {timeout_s}, expected seconds above 0 and up to 3600")
    connection.timeout_s = timeout_s
    _check_server(connection)
    return connection


def check_token(token: str, what: str) -> str:
    """Returns the token, unless it has spaces or unprintable characters."""
    if not token or any(not 0x21 <= ord(character) <= 0x7E for character in token):
        raise InvalidArgumentError(f"{what} contains no token: expected one line of printable characters",
                                   reason="TOKEN_FILE_INVALID")
    return token


def read_token(path: Path) -> str:
    """Reads the token without its line end. Refuses a file that other users can read."""
    try:
        with open(path, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise NotAllowedError(f"token file {path} is readable by other users; run: chmod 600 {path}",
                                      reason="TOKEN_FILE_INVALID")
            token = file.read(TOKEN_BYTES_MAX).rstrip(b"\r\n ")
    except OSError as error:
        raise NotFoundError(f"token file {path}: {error.strerror}", reason="FILE_NOT_FOUND") from None
    return check_token(token.decode("latin-1"), f"token file {path}")


def read_roots(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"ca_file {path}: {error.strerror}", reason="FILE_NOT_FOUND") from None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _why_refused(path: str) -> str:
    """Says who may use a socket that refused this user, and the command that gives access."""
    name = f"the server's socket {path}"
    try:
        info = os.stat(path)
    except OSError:
        return (f"the folder of {name} is closed to you; its operator can serve elsewhere, for a group: settings 'socket' "
                "and 'socket_group'")
    if not info.st_mode & stat.S_IWGRP:
        return (f"{name} is for the user {_user_name(info.st_uid)} alone; its operator can open it for a group: setting "
                "'socket_group'")
    try:
        group, members = grp.getgrgid(info.st_gid).gr_name, grp.getgrgid(info.st_gid).gr_mem
    except KeyError:
        group, members = str(info.st_gid), []
    user = _user_name(os.geteuid())
    if user in members:
        return (f"you are in the group {group}, which may use {name}, but logged in before: log in again, or run: "
                f"newgrp {group}")
    return f"you are not in the group {group}, which may use {name}; run: sudo usermod -aG {group} {user}, then log in again"


def _unseen_server(connection: Connection) -> str:
    """Returns the end of the message that no server runs: there may be one that this user cannot see."""
    if not connection.is_default:
        return ""
    try:
        ROOT_SOCKET.stat()
    except PermissionError:
        return (f", nor {SERVICE_SOCKET}, where a server that others may use listens; {ROOT_SOCKET.parent} is closed to "
                "you")
    except OSError:
        pass
    return ""


def probe(connection: Connection) -> None:
    """Checks immediately whether a server listens on a Unix socket, because gRPC's own error message does not help."""
    if not connection.is_unix:
        return
    path = connection.server[len("unix:"):]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        try:
            attempt.connect(path)
        except PermissionError:
            raise NotAllowedError(_why_refused(path), reason="SOCKET_NOT_ALLOWED") from None
        except FileNotFoundError:
            raise UnavailableError(f"no server is running: there is no socket {path}{_unseen_server(connection)}",
                                   reason="SERVER_NOT_RUNNING") from None
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return  # the server's queue of connections is full, so it is running
            raise UnavailableError(f"no server is running: nothing listens on {path}",
                                   reason="SERVER_NOT_RUNNING") from None
