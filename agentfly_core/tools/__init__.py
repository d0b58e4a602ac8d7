"""Tools: ``@tool`` on a function, ``SchemaTool`` from a JSON Schema, and the built-in ones."""

from agentfly_core.tools.answer import answer
from agentfly_core.tools.base import CallableTool
from agentfly_core.tools.calculator import calculator
from agentfly_core.tools.configurable import configurable
from agentfly_core.tools.from_schema import SchemaTool
from agentfly_core.tools.function import FunctionTool, tool

__all__ = ["CallableTool", "FunctionTool", "SchemaTool", "answer", "calculator", "configurable", "tool"]
