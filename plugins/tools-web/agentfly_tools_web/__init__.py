"""Searching the web, reading pages, and retrieving from a local corpus."""

from __future__ import annotations

AGENTFLY_API = (1, 1)
