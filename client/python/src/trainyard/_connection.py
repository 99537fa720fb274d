"""Chooses the server and the credentials by the same rules as the command line (docs/cli.md).

The order of precedence is: argument, environment, configuration file, and last the sockets where a daemon of this user
or of this machine listens. Secrets are only ever read from files.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from trainyard.errors import InvalidArgumentError, NotAllowedError, NotFoundError, UnavailableError

SOCKET_PATH_BYTES_MAX = 107
TOKEN_BYTES_MAX = 4096
TIMEOUT_S_MAX = 3600.0
# Where the systemd unit's daemon listens, and where one that root starts by hand does.
SERVICE_SOCKET = Path("/run/trainyard/trainyard.sock")
ROOT_SOCKET = Path("/var/lib/trainyard/trainyard.sock")


@dataclass
class Connection:
    server: str = ""  # "unix:/path" or "host:port"
    ca_file: Path | None = None  # PEM file of root certificates for TLS
    token_file: Path | None = None  # file of the bearer token; only its owner may have access
    is_default: bool = False  # no setting names the server
    plaintext: bool = False  # allows TCP without TLS to an address other than loopback
    timeout_s: float = 10.0  # for each unary call

    @property
    def is_unix(self) -> bool:
        return self.server.startswith("unix:")


def _config_error(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, reason="CONFIG_INVALID")


def _find_config(named: str | os.PathLike[str] | None, env: Mapping[str, str]) -> Path | None:
    named = named or env.get("TRAINYARD_CONFIG")
    if named:
        return Path(named)
    home = env.get("XDG_CONFIG_HOME") or (env["HOME"] + "/.config" if env.get("HOME") else "")
    candidates = [Path(home, "trainyard/config.yaml")] if home else []
    candidates.append(Path("/etc/trainyard/client.yaml"))
    return next((path for path in candidates if path.exists()), None)


def _apply_config(connection: Connection, path: Path | None, context: str) -> None:
    if path is None:
        if context:
            raise _config_error(f"context '{context}': there is no configuration file "
                                "(~/.config/trainyard/config.yaml)")
        return
    root = _read_yaml(path)
    contexts: Mapping[str, tuple[str, yaml.Node]] | None = None
    for key, (at, value) in _entries(root, path).items():
        if key == "context" and isinstance(value, yaml.ScalarNode):
            context = context or str(value.value)
        elif key == "contexts" and isinstance(value, yaml.MappingNode):
            contexts = _entries(value, path)
        else:
            raise _config_error(f"{at}: unknown key or bad value: '{key}', expected context (a name) and contexts (a map)")
    if not context:
        return
    _, chosen = (contexts or {}).get(context, ("", None))
    if not isinstance(chosen, yaml.MappingNode):
        known = ", ".join(contexts) if contexts else ""
        raise _config_error(f"context '{context}' is not in {path}, which has {known or 'no contexts'}")
    for key, (at, value) in _entries(chosen, path).items():
        if not isinstance(value, yaml.ScalarNode):
            raise _config_error(f"{at}: {key}: expected one value")
        text = str(value.value)
        if key == "server":
            setattr(connection, key, text)
        elif key in ("ca_file", "token_file"):
            setattr(connection, key, path.parent / text)  # `/` keeps an absolute path unchanged
        elif key == "plaintext" and text in ("true", "false"):
            connection.plaintext = text == "true"
        else:
            raise _config_error(f"{at}: unknown key or bad value: '{key}', expected server, ca_file, token_file or "
                                "plaintext (true or false)")


def _read_yaml(path: Path) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise NotFoundError(f"{path}: {(error.strerror or str(error)).lower()}", reason="FILE_NOT_FOUND") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{path}"
        raise _config_error(f"{at}: not valid YAML: {getattr(error, 'problem', None) or error}") from None


def _entries(node: yaml.Node | None, path: Path) -> dict[str, tuple[str, yaml.Node]]:
    """Returns for each key its position ("config.yaml:3:5") and its value."""
    if not isinstance(node, yaml.MappingNode):
        raise _config_error(f"{path}: expected fields (name: value)")
    entries: dict[str, tuple[str, yaml.Node]] = {}
    for key, value in node.value:
        at = f"{path}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        if str(key.value) in entries:
            raise _config_error(f"{at}: {key.value}: given twice")
        entries[str(key.value)] = (at, value)
    return entries


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
        return _config_error(f"server '{server}': expected {expected}")

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


def resolve(address: str | None, *, context: str | None, ca_file: str | os.PathLike[str] | None,
            token_file: str | os.PathLike[str] | None, config_file: str | os.PathLike[str] | None, plaintext: bool,
            timeout_s: float, env: Mapping[str, str] = os.environ) -> Connection:
    """Combines arguments, environment, configuration and defaults. CONFIG_INVALID names what is wrong."""
    connection = Connection()
    _apply_config(connection, _find_config(config_file, env), context or env.get("TRAINYARD_CONTEXT", ""))
    named = address or env.get("TRAINYARD_SERVER") or connection.server
    connection.is_default = not named
    connection.server = named or _default_server(env)
    if ca_file is not None:
        connection.ca_file = Path(ca_file)
    if token_file is not None:
        connection.token_file = Path(token_file)
    connection.plaintext = plaintext or connection.plaintext
    if not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise _config_error(f"timeout_s: {timeout_s}, expected seconds above 0 and up to 3600")
    connection.timeout_s = timeout_s
    _check_server(connection)
    return connection


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
    if not token or any(not 0x21 <= byte <= 0x7E for byte in token):
        raise InvalidArgumentError(f"token file {path} contains no token: expected one line of printable characters",
                                   reason="TOKEN_FILE_INVALID")
    return token.decode("ascii")


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
