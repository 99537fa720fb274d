"""Calls for people, projects, roles, tokens and shares (docs/people.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from trainyard import _rpc as rpc
from trainyard import v1
from trainyard._connection import project_id
from trainyard._pages import pages
from trainyard.errors import InvalidArgumentError


def _role(kind: Any, role: int | str, allowed: Iterable[str]) -> Any:
    """Returns the role's number. It may be given as such, or as its name in any case."""
    if not isinstance(role, str):
        return role
    if role.upper() not in allowed:
        raise InvalidArgumentError(f"role: '{role}', expected {', '.join(name.lower() for name in allowed)}",
                                   reason="FIELD_UNKNOWN_VALUE")
    return kind.Value(role.upper())


class PeopleCalls:
    """The calls of `Client` for people, projects, tokens and shares. A project may be given by its name, its full name
    (`projects/vision`) or as the message itself; without one, the client's project is meant."""

    _channel: rpc.Channel
    _name: Callable[[str, Any], str]
    _model_name: Callable[[Any], str]

    def whoami(self) -> v1.WhoAmIResponse:
        """Returns who the server takes you for: `person`, `server_role`, and `memberships` with your role in each of your
        projects; also the token's name and when it expires."""
        return self._channel.call(rpc.WHO_AM_I, v1.WhoAmIRequest())

    def people(self, *, limit: int | None = None) -> list[v1.Person]:
        """Returns the people and services that the server knows, by name, at most `limit`. For admins."""
        def page(token: str, size: int) -> tuple[Iterable[v1.Person], str]:
            answer = self._channel.call(rpc.LIST_PEOPLE, v1.ListPeopleRequest(page_size=size, page_token=token))
            return answer.people, answer.next_page_token
        return pages(page, limit)

    def set_person(self, person: str, *, role: v1.ServerRole | str | None = None, service: bool = False) -> v1.Person:
        """Adds a person, or with `service` a service, or changes the role on the server: "user", "operator", "admin". For
        admins. ConflictError / LAST_ADMIN if no admin would be left."""
        request = v1.SetPersonRequest(name=person, service=service)
        if role is not None:
            request.server_role = _role(v1.ServerRole, role, ("USER", "OPERATOR", "ADMIN"))
        return self._channel.call(rpc.SET_PERSON, request)

    def remove_person(self, person: str, *, give_to: str = "") -> None:
        """Removes a person with all tokens, roles and shares; `give_to` gets the jobs, datasets and models. For admins.
        ConflictError / PERSON_OWNS_RESOURCES if there are some and `give_to` is empty."""
        self._channel.call(rpc.REMOVE_PERSON, v1.RemovePersonRequest(name=person, give_to=give_to))

    def projects(self, *, limit: int | None = None) -> list[v1.Project]:
        """Returns the projects that you may see, by name, at most `limit`; `role` is yours."""
        def page(token: str, size: int) -> tuple[Iterable[v1.Project], str]:
            answer = self._channel.call(rpc.LIST_PROJECTS, v1.ListProjectsRequest(page_size=size, page_token=token))
            return answer.projects, answer.next_page_token
        return pages(page, limit)

    def create_project(self, name: str) -> v1.Project:
        """Creates a project. For admins. ConflictError / PROJECT_EXISTS."""
        return self._channel.call(rpc.CREATE_PROJECT, v1.CreateProjectRequest(project_id=name))

    def delete_project(self, project: str | v1.Project) -> None:
        """Deletes a project without jobs, datasets and models. For admins. ConflictError / PROJECT_NOT_EMPTY."""
        self._channel.call(rpc.DELETE_PROJECT, v1.DeleteProjectRequest(name=self._project_name(project)))

    def set_project_devices(self, project: str | v1.Project, devices: Iterable[str]) -> v1.Project:
        """Says which devices the project's jobs may use: names, or "gpu" for all GPUs; none means all devices. For
        operators."""
        return self._channel.call(rpc.SET_PROJECT_DEVICES, v1.SetProjectDevicesRequest(
            name=self._project_name(project), devices=devices))

    def members(self, project: str | v1.Project | None = None, *, limit: int | None = None) -> list[v1.Member]:
        """Returns the members of a project and their roles, by name, at most `limit`."""
        parent = self._project_name(project)

        def page(token: str, size: int) -> tuple[Iterable[v1.Member], str]:
            answer = self._channel.call(rpc.LIST_MEMBERS, v1.ListMembersRequest(
                parent=parent, page_size=size, page_token=token))
            return answer.members, answer.next_page_token
        return pages(page, limit)

    def set_member(self, person: str, role: v1.ProjectRole | str, *,
                   project: str | v1.Project | None = None) -> v1.Member:
        """Gives a person a role in a project: "viewer", "member" or "maintainer"; "none" takes it away. For maintainers of
        the project. NotAllowedError / ROLE_REQUIRED for others."""
        wanted = _role(v1.ProjectRole, role, ("NONE", "VIEWER", "MEMBER", "MAINTAINER"))
        return self._channel.call(rpc.SET_MEMBER, v1.SetMemberRequest(
            parent=self._project_name(project), person=person, role=wanted))

    def create_token(self, name: str, *, person: str = "", valid_seconds: int = 0, never_expires: bool = False,
                     may_act_for: Iterable[str] = ()) -> v1.CreateTokenResponse:
        """Creates a token. `text` of the result is the only copy: the server keeps a digest.

        name           what it is for, unique for the person: "laptop"
        person         whose rights it has, default yours. For admins
        valid_seconds  60 to 315360000; 0 means 90 days
        never_expires  excludes `valid_seconds`. For admins
        may_act_for    the people for whom a service's token may act; "*" means all but admins and operators. For admins
        """
        return self._channel.call(rpc.CREATE_TOKEN, v1.CreateTokenRequest(
            name=name, person=person, valid_seconds=valid_seconds, never_expires=never_expires, may_act_for=may_act_for))

    def rotate_token(self, token: str | v1.Token, *, overlap_seconds: int = 0,
                     valid_seconds: int = 0) -> v1.CreateTokenResponse:
        """Replaces the text of a token, given by ID or as the message. The old text stays valid for `overlap_seconds`, at
        most 604800; the new one for `valid_seconds`, by default as long as the token was valid at first."""
        return self._channel.call(rpc.ROTATE_TOKEN, v1.RotateTokenRequest(
            id=_token_id(token), overlap_seconds=overlap_seconds, valid_seconds=valid_seconds))

    def revoke_token(self, token: str | v1.Token) -> None:
        """Revokes a token, given by ID or as the message, at once: calls and streams that came with it end.
        NotFoundError / TOKEN_NOT_FOUND."""
        self._channel.call(rpc.REVOKE_TOKEN, v1.RevokeTokenRequest(id=_token_id(token)))

    def tokens(self, *, person: str = "", all: bool = False, limit: int | None = None) -> list[v1.Token]:
        """Returns tokens without their texts, at most `limit`: yours, or for admins those of `person`, or `all`."""
        def page(token: str, size: int) -> tuple[Iterable[v1.Token], str]:
            answer = self._channel.call(rpc.LIST_TOKENS, v1.ListTokensRequest(
                person=person, all=all, page_size=size, page_token=token))
            return answer.tokens, answer.next_page_token
        return pages(page, limit)

    def share_dataset(self, dataset: str | v1.Dataset, project: str | v1.Project) -> v1.ShareEntry:
        """Lets another project read a dataset, without a version all of its versions, and use it in its jobs. For the
        dataset's owner and for maintainers; safe to repeat."""
        return self._channel.call(rpc.SHARE, v1.ShareRequest(
            name=self._name("datasets", dataset), with_project=self._project_name(project)))

    def share_model(self, model: str | v1.Model | v1.Job, project: str | v1.Project) -> v1.ShareEntry:
        """Lets another project read a model and use it in its jobs. For the model's owner and for maintainers; safe to
        repeat."""
        return self._channel.call(rpc.SHARE, v1.ShareRequest(
            name=self._model_name(model), with_project=self._project_name(project)))

    def unshare_dataset(self, dataset: str | v1.Dataset, project: str | v1.Project) -> None:
        """Ends the sharing of a dataset; jobs that use it keep it. NotFoundError / SHARE_NOT_FOUND."""
        self._channel.call(rpc.UNSHARE, v1.ShareRequest(
            name=self._name("datasets", dataset), with_project=self._project_name(project)))

    def unshare_model(self, model: str | v1.Model | v1.Job, project: str | v1.Project) -> None:
        """Ends the sharing of a model; jobs that use it keep it. NotFoundError / SHARE_NOT_FOUND."""
        self._channel.call(rpc.UNSHARE, v1.ShareRequest(
            name=self._model_name(model), with_project=self._project_name(project)))

    def shares(self, project: str | v1.Project | None = None) -> v1.ListSharesResponse:
        """Returns what a project shares (`given`) and what others share with it (`received`)."""
        return self._channel.call(rpc.LIST_SHARES, v1.ListSharesRequest(parent=self._project_name(project)))

    def _project_name(self, project: str | v1.Project | None) -> str:
        if project is None:
            return self._channel.parent
        return "projects/" + project_id(project if isinstance(project, str) else project.name)


def _token_id(token: str | v1.Token) -> str:
    return token if isinstance(token, str) else token.id
