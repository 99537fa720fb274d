"""Calls for the server itself: devices, usage and quotas, the audit, backup and garbage collection."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from trainyard import _rpc as rpc
from trainyard import v1
from trainyard._backup import write_backup
from trainyard._pages import pages
from trainyard._upload import Observer
from trainyard.errors import InvalidArgumentError


class Devices(list[v1.Device]):
    """The server's devices. `note` says why there is no GPU and what to install; it may be empty."""

    def __init__(self, devices: Iterable[v1.Device], note: str) -> None:
        super().__init__(devices)
        self.note = note


class ServerCalls:
    """The calls of `Client` for the server."""

    _channel: rpc.Channel

    def devices(self, *, forecasts: bool = False) -> Devices:
        """Returns the devices on which jobs run, with memory in bytes and their current jobs. With `forecasts`,
        `device.forecasts` has the measured rates from which jobs are forecast, and how accurate past forecasts were."""
        answer = self._channel.call(rpc.LIST_DEVICES, v1.ListDevicesRequest(forecasts=forecasts))
        return Devices(answer.devices, answer.note)

    def drain_device(self, device: str | v1.Device, *, reason: str = "", vacate: bool = False) -> v1.Device:
        """Stops the server from starting jobs on the device ("gpu-0") until `resume_device`, also after restarts of the
        server. Jobs on the device continue, or with `vacate` save a checkpoint and return to the queue. Safe to repeat.
        NotFoundError / DEVICE_NOT_FOUND lists the existing devices."""
        return self._channel.call(rpc.DRAIN_DEVICE, v1.DrainDeviceRequest(
            name=_device_name(device), reason=reason, vacate=vacate))

    def resume_device(self, device: str | v1.Device) -> v1.Device:
        """Lets jobs start on a drained device again; no effect on a device that is not drained."""
        return self._channel.call(rpc.RESUME_DEVICE, v1.ResumeDeviceRequest(name=_device_name(device)))

    def server_info(self) -> v1.ServerInfo:
        """Returns the version, numbers of queued and running jobs, limits in bytes, and warnings for the operator."""
        return self._channel.call(rpc.GET_SERVER_INFO, v1.GetServerInfoRequest())

    def audit(self, *, caller: str = "", action: str = "", object: str = "", since: Timestamp | None = None,
              until: Timestamp | None = None, limit: int | None = None) -> list[v1.AuditEntry]:
        """Returns the calls that changed something or handed out a model or a backup, newest first, at most `limit`:
        `number`, `time`, `caller`, `address`, `action` (the method's name), `object` (a resource's name), and `result`
        (OK or the error's reason; empty while the call runs).

        caller, action, object  only entries with this value
        since, until            only entries from this time on, or before it
        """
        def page(token: str, size: int) -> tuple[Iterable[v1.AuditEntry], str]:
            answer = self._channel.call(rpc.LIST_AUDIT, v1.ListAuditRequest(
                page_size=size, page_token=token, caller=caller, action=action, object=object, since_time=since,
                until_time=until))
            return answer.entries, answer.next_page_token
        return pages(page, limit)

    def usage(self, *, project: str = "", person: str = "", since: Timestamp | None = None,
              until: Timestamp | None = None, by: Iterable[str] = ("person", "device")) -> v1.GetUsageResponse:
        """Returns who has used which devices for how long: `rows`, one for each combination of `by`, with
        `device_seconds`, `reserved_device_seconds` (the rest of the forecasts of running jobs), `energy_joules` and
        `cost` as far as they are known, and the days, `first_day` to `end_day`.

        project, person  only jobs of this project ("vision") or person
        since, until     only the days (UTC) from one to the other; default: the last 30 days
        by               "person", "project", "device", "day"
        """
        return self._channel.call(rpc.GET_USAGE, v1.GetUsageRequest(
            project=_project_name(project), person=person, since_time=since, until_time=until,
            by=[_choice("by", name, v1.GetUsageRequest.Dimension) for name in by]))

    def quotas(self, *, limit: int | None = None) -> list[v1.Quota]:
        """Returns your quotas and those of your projects, at most `limit`, with what is `used` of them."""
        def page(token: str, size: int) -> tuple[Iterable[v1.Quota], str]:
            answer = self._channel.call(rpc.LIST_QUOTAS, v1.ListQuotasRequest(page_size=size, page_token=token))
            return answer.quotas, answer.next_page_token
        return pages(page, limit)

    def set_quota(self, quota: str, limit: int | None, *, project: str = "", person: str = "") -> v1.Quota:
        """Sets a quota of a project, a person, or a person in a project; with the limit None it removes the quota. For
        admins.

        quota  "queued_jobs", "devices", "device_hours" (in 30 days), "stored_bytes" or "model_calls" (in a minute)
        """
        return self._channel.call(rpc.SET_QUOTA, v1.SetQuotaRequest(
            kind=_choice("quota", quota, v1.Quota.Kind), project=_project_name(project), person=person, limit=limit,
            remove=limit is None))

    def backup(self, file: str | os.PathLike[str], *, progress: Observer | None = None) -> v1.BackupResponse.Summary:
        """Writes a snapshot of all of the server's state into the tar archive `file`; the server continues to serve. The
        file appears complete or not at all; 'trainyard server restore' creates a state folder from it. `warnings` of the
        result lists what the server lacks or has damaged. ConflictError / BACKUP_BUSY during another backup."""
        with self._channel.stream(rpc.BACKUP, v1.BackupRequest()) as messages:
            return write_backup(messages, file, progress)

    def collect_garbage(self, *, dry_run: bool, older_than_seconds: int = 7 * 24 * 3600,
                        unsuccessful_jobs: bool = False, keep_jobs: v1.KeptJobs | None = None,
                        keep_events_seconds: int | None = None,
                        as_of: Timestamp | None = None) -> v1.CollectGarbageResponse:
        """Removes what nothing needs any more, or with `dry_run` only reports it, with sizes in bytes: checkpoints of
        jobs that SUCCEEDED at least `older_than_seconds` ago and whose model exists, uploads that nothing uses, and
        files that nothing refers to.

        unsuccessful_jobs    also remove checkpoints of FAILED and CANCELLED jobs; their retries then start over
        keep_jobs            selects finished jobs that stay; the others are removed. Default: the server's keep_jobs
        keep_events_seconds  remove logs and past metrics of jobs that ended longer ago. Default: its keep_events
        as_of                the `as_of` of a dry run: removes exactly what it reported, whatever has ended since then

        ConflictError / GC_BUSY during another collection or a backup.
        """
        request = v1.CollectGarbageRequest(dry_run=dry_run, older_than_seconds=older_than_seconds,
                                           unsuccessful_jobs=unsuccessful_jobs, keep_jobs=keep_jobs,
                                           keep_events_seconds=keep_events_seconds, as_of=as_of)
        return self._channel.call(rpc.COLLECT_GARBAGE, request, rpc.GARBAGE_TIMEOUT_S)

    def health(self) -> bool:
        """Returns True if the server is serving, False if it is stopping. Needs no token. UnavailableError if it does
        not respond."""
        return self._channel.check_health()


def _device_name(device: str | v1.Device) -> str:
    name = device if isinstance(device, str) else device.name
    return name if name.startswith("devices/") else f"devices/{name}"


def _project_name(project: str) -> str:
    return project if not project or project.startswith("projects/") else f"projects/{project}"


def _choice(field: str, name: str, choices: Any) -> Any:
    """Returns the number of the enum's value that is named in lower case."""
    names = [key.lower() for key, number in choices.items() if number != 0]
    if name not in names:
        raise InvalidArgumentError(f"{field}: '{name}' is not known, expected {', '.join(names)}",
                                   reason="FIELD_OUT_OF_RANGE")
    return choices.Value(name.upper())
