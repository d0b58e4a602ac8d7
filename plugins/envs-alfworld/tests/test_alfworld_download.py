"""Downloading from a server on this machine that misbehaves, and unpacking."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from agentfly_envs_alfworld.command import command
from agentfly_envs_alfworld.download import RETRIES, DownloadFailed, fetch, unpack
from click.testing import CliRunner

from agentfly_core.types import UsageError

BODY = bytes(range(256)) * 400
DIGEST = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves one file.

    Attributes:
        body, tag: of the file.
        drops: bytes after which each coming connection breaks; afterwards they last.
        answers: status codes of the coming requests in place of the file.
        ranges: whether it can send a part.
        seen: the Range header of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.tag, self.ranges = BODY, '"one"', True
        self.drops: list[int] = []
        self.answers: list[int] = []
        self.seen: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.zip"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.seen.append(asked)
        if self.server.answers:
            self.send_error(self.server.answers.pop(0))
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if self.headers.get("If-Range") != self.server.tag:
            start = 0
        body = self.server.body
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("ETag", self.server.tag)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        rest = body[start:]
        self.wfile.write(rest[: self.server.drops.pop(0)] if self.server.drops else rest)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_download_goes_on_where_the_connection_broke(server, tmp_path):
    server.drops = [1000, 0, 5000]
    heard = []
    assert fetch(server.url, tmp_path / "f", progress=lambda *p: heard.append(p), pause=0.001) == DIGEST
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.seen == [None, "bytes=1000-", "bytes=1000-", "bytes=6000-"]
    assert heard[-1] == (len(BODY), len(BODY))
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_the_next_run_goes_on_where_the_last_gave_up(server, tmp_path):
    server.drops = [1000, *[0] * RETRIES]
    with pytest.raises(DownloadFailed, match=r"1000 bytes are kept .*run the command again"):
        fetch(server.url, tmp_path / "f", pause=0.0001)
    assert not (tmp_path / "f").exists()
    server.seen.clear()
    assert fetch(server.url, tmp_path / "f", pause=0.001) == DIGEST
    assert server.seen == ["bytes=1000-"]


def test_a_file_that_changed_meanwhile_is_fetched_from_its_start(server, tmp_path):
    server.drops = [1000, *[0] * RETRIES]
    with pytest.raises(DownloadFailed):
        fetch(server.url, tmp_path / "f", pause=0.0001)
    server.body, server.tag = BODY[::-1], '"two"'
    fetch(server.url, tmp_path / "f", pause=0.001)
    assert (tmp_path / "f").read_bytes() == BODY[::-1]


def test_a_server_that_sends_no_parts_is_asked_for_the_whole(server, tmp_path):
    server.ranges, server.drops = False, [1000]
    assert fetch(server.url, tmp_path / "f", pause=0.001) == DIGEST


def test_a_download_that_was_whole_but_not_finished_ends_at_once(server, tmp_path):
    (tmp_path / "f.part").write_bytes(BODY)
    (tmp_path / "f.part.json").write_text(json.dumps({"validator": '"one"', "total": len(BODY)}))
    assert fetch(server.url, tmp_path / "f", pause=0.001) == DIGEST
    assert server.seen == [f"bytes={len(BODY)}-"]


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "f.part").write_bytes(BODY + b"more")
    (tmp_path / "f.part.json").write_text(json.dumps({"validator": '"one"', "total": None}))
    assert fetch(server.url, tmp_path / "f", pause=0.001) == DIGEST


def test_a_server_that_never_gets_further_is_given_up(server, tmp_path):
    server.ranges, server.drops = False, [3000, *[2000, 3000] * RETRIES]
    with pytest.raises(DownloadFailed, match="closed early"):
        fetch(server.url, tmp_path / "f", pause=0.0001)
    assert len(server.seen) == RETRIES + 1


def test_what_is_left_of_another_file_is_not_trusted(server, tmp_path):
    (tmp_path / "f.part").write_bytes(b"x" * 500)
    (tmp_path / "f.part.json").write_text("{")
    assert fetch(server.url, tmp_path / "f", pause=0.001) == DIGEST


def test_a_busy_server_is_asked_again_and_a_refusal_is_final(server, tmp_path):
    server.answers = [503, 429]
    assert fetch(server.url, tmp_path / "f", pause=0.001) == DIGEST
    server.answers = [404]
    with pytest.raises(DownloadFailed, match="404"):
        fetch(server.url, tmp_path / "g", pause=0.001)
    assert len(server.seen) == 4


def test_a_wrong_checksum_removes_the_file(server, tmp_path):
    with pytest.raises(DownloadFailed, match=f"SHA-256 is {DIGEST}"):
        fetch(server.url, tmp_path / "f", sha256="0" * 64, pause=0.001)
    assert list(tmp_path.iterdir()) == []
    assert fetch(server.url, tmp_path / "f", sha256=DIGEST.upper(), pause=0.001) == DIGEST


def test_a_file_that_is_there_is_checked_and_not_fetched(server, tmp_path):
    (tmp_path / "f").write_bytes(b"tampered with")
    with pytest.raises(DownloadFailed, match="is there already, but its SHA-256 is"):
        fetch(server.url, tmp_path / "f", sha256=DIGEST)
    (tmp_path / "f").write_bytes(BODY)
    assert fetch(server.url, tmp_path / "f", sha256=DIGEST) == DIGEST
    assert server.seen == []


def test_each_new_attempt_is_said(server, tmp_path):
    server.answers = [503]
    said = []
    fetch(server.url, tmp_path / "f", pause=0.001, notice=said.append)
    assert said == ["the server answers 503 Service Unavailable; trying again in 0.001 s"]


def test_where_nothing_can_be_written_is_one_error(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file/f cannot be written: (File exists|Not a directory)"):
        fetch(server.url, tmp_path / "file" / "f", pause=0.001)


def test_what_is_no_address_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no address"):
        fetch("games.zip", tmp_path / "f", pause=0.001)


def archive(members: dict[str, bytes], **options: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", **options) as target:
        for name, content in members.items():
            target.writestr(name, content)
    return data.getvalue()


def release(name: str) -> dict[str, bytes]:
    game = {"pddl_domain": "d", "grammar": "g", "pddl_problem": "p", "solvable": True, "walkthrough": []}
    return {
        f"json_2.1.1/{split}/look_at_obj_in_light-{name}/trial_{n}/game.tw-pddl": json.dumps(game).encode()
        for split, count in (("train", 3), ("valid_seen", 2), ("valid_unseen", 1))
        for n in range(count)
    }


def test_unpacking_again_leaves_good_files_and_mends_bad_ones(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(archive({"x/one": b"1" * 10, "x/two": b"2" * 10}))
    assert unpack(path, tmp_path) == 2
    before = (tmp_path / "x/one").stat().st_mtime_ns
    (tmp_path / "x/two").write_bytes(b"3" * 10)
    assert unpack(path, tmp_path) == 2
    assert (tmp_path / "x/two").read_bytes() == b"2" * 10
    assert (tmp_path / "x/one").stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["../outside", "/outside", "x/../../outside"])
def test_members_that_lead_out_are_refused(tmp_path, name):
    path = tmp_path / "in" / "a.zip"
    path.parent.mkdir()
    path.write_bytes(archive({name: b"1"}))
    with pytest.raises(DownloadFailed, match="leads out"):
        unpack(path, path.parent)
    assert not (tmp_path / "outside").exists()


def test_damage_is_found(tmp_path):
    path = tmp_path / "a.zip"
    whole = archive({"one": b"1" * 1000})
    path.write_bytes(whole.replace(b"1" * 1000, b"1" * 500 + b"2" + b"1" * 499))
    with pytest.raises(DownloadFailed, match="damaged"):
        unpack(path, tmp_path)
    assert not (tmp_path / "one").exists()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DownloadFailed, match="damaged"):
        unpack(path, tmp_path)


def test_members_that_cannot_be_written_and_too_many_are_one_error(tmp_path, monkeypatch):
    path = tmp_path / "a.zip"
    for members in ({"a": b"1", "a/b": b"2"}, {"n" * 300: b"1"}):
        path.write_bytes(archive(members))
        with pytest.raises(UsageError, match="cannot be written: "):
            unpack(path, tmp_path)
    path.write_bytes(archive({"zeros": bytes(1 << 20)}, compression=zipfile.ZIP_DEFLATED))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=(1 << 20) - 1))
    with pytest.raises(UsageError, match=r"holds 1 MiB, and .* has room for 0"):
        unpack(path, tmp_path)
    assert not (tmp_path / "zeros").exists()


def test_encrypted_members_are_named_as_damage(tmp_path):
    data = bytearray(archive({"one": b"1"}))
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DownloadFailed, match=r"damaged: .*encrypted"):
        unpack(tmp_path / "a.zip", tmp_path)


@pytest.mark.parametrize("kept", [False, True])
def test_an_archive_of_something_else_is_no_success(server, tmp_path, kept):
    server.body = archive({"readme.txt": b"hello"})
    if kept:
        (tmp_path / "games.zip").write_bytes(server.body)
    done = CliRunner().invoke(command, ["download", "--data", str(tmp_path), "--url", server.url])
    assert isinstance(done.exception, UsageError), done.output
    assert "has no folder 'json_2.1.1'" in str(done.exception)
    assert (tmp_path / "games.zip").exists()


def test_a_kept_archive_is_checked_as_well(server, tmp_path):
    server.body = archive(release("Mug-None-DeskLamp-1"))
    (tmp_path / "games.zip").write_bytes(archive(release("Pen-None-DeskLamp-1")))
    sha256 = hashlib.sha256(server.body).hexdigest()
    arguments = ["download", "--data", str(tmp_path), "--url", server.url, "--sha256", sha256]
    done = CliRunner().invoke(command, arguments)
    assert isinstance(done.exception, DownloadFailed), done.output
    assert not (tmp_path / "json_2.1.1").exists()


def test_the_command_fetches_unpacks_and_counts(server, tmp_path):
    server.body = archive(release("Mug-None-DeskLamp-1"))
    server.drops = [100]
    folder = tmp_path / "data"
    arguments = ["download", "--data", str(folder), "--url", server.url]
    done = CliRunner().invoke(command, [*arguments, "--sha256", hashlib.sha256(server.body).hexdigest()])
    assert done.exit_code == 0, done.output
    assert "train: 3 games\nvalid_seen: 2 games\nvalid_unseen: 1 games\n" in done.output
    assert f"ALFWORLD_DATA={folder}" in done.output
    assert not list(Path(folder).glob("*.zip*"))
