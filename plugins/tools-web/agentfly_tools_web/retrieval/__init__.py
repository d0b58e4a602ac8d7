"""Local search: a corpus is built into an index folder once; every chain and process shares it through memory maps."""

from agentfly_tools_web.retrieval.build import build_index
from agentfly_tools_web.retrieval.corpus import Columns, read_corpus
from agentfly_tools_web.retrieval.index import Index, open_index
from agentfly_tools_web.retrieval.store import Passage

__all__ = ["Columns", "Index", "Passage", "build_index", "open_index", "read_corpus"]
