"""What was fetched, on disk: one file a request, named by it."""

from __future__ import annotations

import gzip
import hashlib
import json
import secrets
import zlib
from pathlib import Path

from agentfly_core.runs.files import TEMPORARY, replacing, writing
from agentfly_core.types import ResourceError, UsageError
from agentfly_tools_web.fetching.errors import FetchError
from agentfly_tools_web.fetching.settings import Reply, Request


class Recording:
    """Replies and errors by request, in a folder that many processes may share.

    What goes wrong with the folder is no answer for the model: it raises ``ResourceError``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Find out now whether something can be recorded.

        Raises:
            UsageError: nothing can.
        """
        trial = self.folder / f"{TEMPORARY}{secrets.token_hex(6)}"
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            trial.touch()
            trial.unlink()

    def read(self, request: Request) -> Reply | FetchError | None:
        """What was recorded for the request, or None.

        Raises:
            ResourceError: the file is damaged or cannot be read.
        """
        path = self._path(request)
        try:
            head, _, body = gzip.decompress(path.read_bytes()).partition(b"\n")
            found = json.loads(head)
            if "error" in found:
                return FetchError(found["error"], transient=found["transient"])
            return Reply(found["url"], found["status"], found["content_type"], body)
        except FileNotFoundError:
            return None
        except gzip.BadGzipFile as error:
            raise _damaged(path, error) from error
        except OSError as error:
            raise ResourceError(f"the recorded file {path} cannot be read: {error.strerror or error}") from error
        except (EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error

    def write(self, request: Request, result: Reply | FetchError) -> None:
        """Record a result, instead of an earlier one. Headers of the request are not written.

        Raises:
            ResourceError: it cannot be written.
        """
        asked = {"asked": request.url, **({} if request.body is None else {"sent": request.body})}
        body = b""
        if isinstance(result, FetchError):
            head = {**asked, "error": str(result), "transient": result.transient}
        else:
            head = {**asked, "url": result.url, "status": result.status, "content_type": result.content_type}
            body = result.body
        path = self._path(request)
        try:
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                temporary.write_bytes(gzip.compress(json.dumps(head).encode() + b"\n" + body, mtime=0))
        except UsageError as error:
            raise ResourceError(str(error)) from error

    def _path(self, request: Request) -> Path:
        asked = json.dumps([request.url, request.body])
        name = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / name[:2] / f"{name}.gz"


def _damaged(path: Path, error: Exception) -> ResourceError:
    return ResourceError(f"the recorded file {path} is damaged ({error}): delete it")
