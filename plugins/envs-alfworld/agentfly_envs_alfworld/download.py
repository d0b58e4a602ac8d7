"""Fetching a large file over connections that break, and unpacking it."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from agentfly_core.runs.files import writing
from agentfly_core.types import AgentFlyError, UsageError

CHUNK = 1 << 20
RETRIES = 8
"""Broken connections in a row that got no further than those before, after which to give up."""
Progress = Callable[[int, "int | None"], None]
"""Told of the bytes that are there and of the whole, None where the server does not say."""


class DownloadFailed(AgentFlyError):
    """The file could not be had whole; what came of it is kept for the next attempt."""


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    progress: Progress = lambda done, total: None,
    timeout: float = 60.0,
    pause: float = 1.0,
    notice: Callable[[str], None] = lambda text: None,
) -> str:
    """Download to ``target`` and return its SHA-256. A broken download goes on where it broke, in this run or the next.
    A file that is there already is only checked.

    What was received lies beside the target (``.part``, and what the server said of the file in ``.part.json``) and
    is only used if the server still has the same file.

    Args:
        sha256: what it must be; None takes what comes, whole.
        timeout: seconds that the server may be silent.
        pause: seconds before the first new attempt; each further one without progress waits twice as long.
        notice: told why there is a new attempt.

    Raises:
        DownloadFailed: the server refuses, breaks off again and again, or the file is not the one expected.
        UsageError: the address is none, or the file cannot be written.
    """
    part, notes = target.with_name(target.name + ".part"), target.with_name(target.name + ".part.json")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        found = _digest(target)
        if sha256 is not None and found != sha256.lower():
            raise DownloadFailed(f"{target} is there already, but its SHA-256 is {found}, not {sha256}; remove it")
        return found
    failures, most = 0, _size(part)
    while True:
        try:
            if _receive(url, part, notes, progress, timeout):
                break
            reason = "the connection was closed early"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 and error.code not in (408, 429):
                raise DownloadFailed(f"{url}: the server answers {error.code} {error.reason}") from error
            reason = f"the server answers {error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            reason = f"{type(error).__name__}: {error}"
        failures = 0 if _size(part) > most else failures + 1
        most = max(most, _size(part))
        if failures >= RETRIES:
            raise DownloadFailed(f"{url}: {reason}; {_size(part)} bytes are kept in {part}: run the command again")
        wait = pause * 2 ** max(0, failures - 1)
        notice(f"{reason}; trying again in {wait:g} s")
        time.sleep(wait)
    found = _digest(part)
    if sha256 is not None and found != sha256.lower():
        part.unlink()
        notes.unlink(missing_ok=True)
        raise DownloadFailed(f"{url}: its SHA-256 is {found}, not {sha256}; it was removed")
    os.replace(part, target)
    notes.unlink(missing_ok=True)
    return found


def unpack(archive: Path, folder: Path) -> int:
    """Unpack a zip file, each member checked against its CRC; the number of files.

    A member appears whole or not at all, and one that is there already in its right size and CRC is left alone.

    Raises:
        DownloadFailed: it is damaged or encrypted, or a member leads out of the folder.
        UsageError: it cannot be written there, or needs more room than there is.
    """
    try:
        with zipfile.ZipFile(archive) as source:
            members = [m for m in source.infolist() if not m.is_dir()]
            needed, free = sum(member.file_size for member in members), shutil.disk_usage(folder).free
            if needed > free:
                raise UsageError(f"{archive} holds {needed >> 20} MiB, and {folder} has room for {free >> 20}")
            for member in members:
                with writing(folder / member.filename):
                    _extract(source, member, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadFailed(f"{archive} is damaged: {error}; remove it and download it again") from error
    return len(members)


def _receive(url: str, part: Path, notes: Path, progress: Progress, timeout: float) -> bool:
    """Append what the server still has to give; whether the file is whole."""
    have, known = _size(part), _known(notes)
    headers = {"User-Agent": "agentfly", "Accept-Encoding": "identity"}
    if have and known.get("validator"):
        headers |= {"Range": f"bytes={have}-", "If-Range": str(known["validator"])}
    else:
        have = 0
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        error.close()
        if have == known.get("total"):
            return True  # it was whole already
        part.unlink()  # there is no such part: begin anew
        return False
    except ValueError as error:
        raise UsageError(f"{url!r} is no address to download from: {error}") from error
    with response:
        resumed = response.status == 206 and _starts_at(response.headers.get("Content-Range")) == have
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdecimal() else None
        with writing(notes):
            notes.write_text(json.dumps({"validator": _validator(response.headers), "total": total}), encoding="utf-8")
            file = open(part, "ab" if resumed else "wb")  # noqa: SIM115 - closed below
        with file:
            while chunk := response.read1(CHUNK):
                with writing(part):  # the next attempt would not fare better
                    file.write(chunk)
                have += len(chunk)
                progress(have, total)
    return total is None or have == total


def _validator(headers: Mapping[str, str]) -> str | None:
    """What tells this version of the file from another; weak tags do not."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _starts_at(content_range: str | None) -> int | None:
    """``bytes 5-9/10`` starts at 5."""
    start = (content_range or "").removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdecimal() else None


def _known(notes: Path) -> dict[str, object]:
    try:
        known = json.loads(notes.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _extract(source: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    name = PurePosixPath(member.filename)
    if name.is_absolute() or ".." in name.parts or "\\" in member.filename:
        raise DownloadFailed(f"{source.filename}: its member {member.filename!r} leads out of the folder")
    target = folder / name
    if _size(target) == member.file_size and target.exists() and zlib.crc32(target.read_bytes()) == member.CRC:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(target.name + ".part")
    try:
        with source.open(member) as packed, open(half, "wb") as file:
            shutil.copyfileobj(packed, file, CHUNK)
        os.replace(half, target)
    finally:
        half.unlink(missing_ok=True)
