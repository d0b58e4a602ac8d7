"""What a recipe may set, and what is asked for and answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.recipes.schema import Section

Mode = Literal["live", "record", "replay"]
"""``live``: from the network. ``record``: from the recording, else from the network and into the recording.
``replay``: from the recording alone."""

Seconds = Annotated[float, Field(gt=0)]


class HttpOptions(Section):
    """The option ``http`` of the web tools."""

    allow_hosts: tuple[str, ...] = ()
    """Hosts (``host`` or ``host:port``) that may be reached at private addresses; all others may not."""
    timeout: Seconds = 30.0
    """Seconds a fetch may take, with its redirects, retries and waits."""
    connect_timeout: Seconds = 10.0
    max_bytes: Annotated[int, Field(ge=1)] = 10_000_000
    """Largest body, compressed or not."""
    max_redirects: Annotated[int, Field(ge=0)] = 5
    retries: Annotated[int, Field(ge=0)] = 2
    """Of what may pass: no connection, a broken answer, status 429, 500, 502, 503 and 504."""
    backoff: Seconds = 0.5
    """Seconds before the first retry, doubled for each further one; a server's Retry-After goes before."""
    requests_per_second: Seconds = 2.0
    """To one host, over all chains of this process."""
    robots: bool = True
    """Obey robots.txt."""
    user_agent: Annotated[str, Field(min_length=1, pattern=r"^[\x20-\x7e]+$")] = "agentfly"
    """Sent with each request, and looked for in robots.txt."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        headers: added to the client's own; secrets in them are never recorded.
        body: JSON text of a POST; None makes it a GET.
        api: a service that the recipe names: its host may be private, and robots.txt does not matter.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    api: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, decompressed. ``url`` is where the last redirect led."""

    url: str
    status: int
    content_type: str
    body: bytes
