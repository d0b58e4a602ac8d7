"""What was fetched, on disk: one file a request, named by it."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from pathlib import Path

from agentfly_core.runs.files import replacing
from agentfly_core.types import UsageError
from agentfly_tools_web.fetching.errors import FetchError
from agentfly_tools_web.fetching.settings import Reply, Request


class Recording:
    """Replies and errors by request, in a folder that many processes may share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, request: Request) -> Reply | FetchError | None:
        """What was recorded for the request, or None.

        Raises:
            UsageError: the file is damaged.
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
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"the recorded file {path} is damaged ({error}): delete it") from error

    def write(self, request: Request, result: Reply | FetchError) -> None:
        """Record a result, instead of an earlier one. Headers of the request are not written."""
        asked = {"asked": request.url, **({} if request.body is None else {"sent": request.body})}
        body = b""
        if isinstance(result, FetchError):
            head = {**asked, "error": str(result), "transient": result.transient}
        else:
            head = {**asked, "url": result.url, "status": result.status, "content_type": result.content_type}
            body = result.body
        path = self._path(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(gzip.compress(json.dumps(head).encode() + b"\n" + body, mtime=0))

    def _path(self, request: Request) -> Path:
        asked = json.dumps([request.url, request.body])
        name = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / name[:2] / f"{name}.gz"
