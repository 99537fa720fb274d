"""Reads contexts, the named servers of the configuration file, as the command line does (docs/cli.md#which-server)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from trainyard.errors import InvalidArgumentError, NotFoundError


@dataclass
class Context:
    server: str = ""
    ca_file: Path | None = None
    token_file: Path | None = None
    project: str = ""
    plaintext: bool = False


def config_error(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, reason="CONFIG_INVALID")


def find_config(named: str | os.PathLike[str] | None, env: Mapping[str, str]) -> Path | None:
    named = named or env.get("TRAINYARD_CONFIG")
    if named:
        return Path(named)
    home = env.get("XDG_CONFIG_HOME") or (env["HOME"] + "/.config" if env.get("HOME") else "")
    candidates = [Path(home, "trainyard/config.yaml")] if home else []
    candidates.append(Path("/etc/trainyard/client.yaml"))
    return next((path for path in candidates if path.exists()), None)


def choose_context(path: Path | None, name: str) -> Context | None:
    """Returns the context with this name, or without a name the one that the file names. None: there is none."""
    if path is None:
        if name:
            raise config_error(f"context '{name}': there is no configuration file (~/.config/trainyard/config.yaml); "
                               "'trainyard login' writes it")
        return None
    root = _read_yaml(path)
    contexts: Mapping[str, tuple[str, yaml.Node]] = {}
    for key, (at, value) in _entries(root, path).items():
        if key == "context" and isinstance(value, yaml.ScalarNode):
            name = name or str(value.value)
        elif key == "contexts" and isinstance(value, yaml.MappingNode):
            contexts = _entries(value, path)
        else:
            raise config_error(f"{at}: unknown key or bad value: '{key}', expected context (a name) and contexts (a map)")
    if not name:
        return None
    _, chosen = contexts.get(name, ("", None))
    if not isinstance(chosen, yaml.MappingNode):
        raise config_error(f"context '{name}' is not in {path}, which has {', '.join(contexts) or 'no contexts'}")
    return _read_context(chosen, path)


def _read_context(node: yaml.MappingNode, path: Path) -> Context:
    context = Context()
    for key, (at, value) in _entries(node, path).items():
        if not isinstance(value, yaml.ScalarNode):
            raise config_error(f"{at}: {key}: expected one value")
        text = str(value.value)
        if key in ("server", "project"):
            setattr(context, key, text)
        elif key in ("ca_file", "token_file"):
            setattr(context, key, path.parent / text)  # `/` keeps an absolute path unchanged
        elif key == "plaintext" and text in ("true", "false"):
            context.plaintext = text == "true"
        else:
            raise config_error(f"{at}: unknown key or bad value: '{key}', expected server, ca_file, token_file, project or "
                               "plaintext (true or false)")
    return context


def _read_yaml(path: Path) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise NotFoundError(f"{path}: {(error.strerror or str(error)).lower()}", reason="FILE_NOT_FOUND") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{path}"
        raise config_error(f"{at}: not valid YAML: {getattr(error, 'problem', None) or error}") from None


def _entries(node: yaml.Node | None, path: Path) -> dict[str, tuple[str, yaml.Node]]:
    """Returns for each key its position ("config.yaml:3:5") and its value."""
    if not isinstance(node, yaml.MappingNode):
        raise config_error(f"{path}: expected fields (name: value)")
    entries: dict[str, tuple[str, yaml.Node]] = {}
    for key, value in node.value:
        at = f"{path}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        if str(key.value) in entries:
            raise config_error(f"{at}: {key.value}: given twice")
        entries[str(key.value)] = (at, value)
    return entries
