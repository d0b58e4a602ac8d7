"""One HTTP client for every tool: safe, polite, repeatable."""

from agentfly_tools_web.fetching.client import WebClient, shared_client
from agentfly_tools_web.fetching.errors import FetchError
from agentfly_tools_web.fetching.settings import HttpOptions, Mode, Reply, Request

__all__ = ["FetchError", "HttpOptions", "Mode", "Reply", "Request", "WebClient", "shared_client"]
