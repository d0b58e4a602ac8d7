"""Actions of an environment as tools."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agentfly_core.types import (
    InvalidArguments,
    StepResult,
    ToolContext,
    ToolOutcome,
    ToolSchema,
    ToolStatus,
)


@dataclass(frozen=True)
class ActionTool:
    """A tool that steps the chain's environment: ``ActionTool("go", "Walk.", {"direction": {...}}, "go {direction}")``.

    It holds no environment but uses the one in its context, so an environment in a worker can offer it too.

    Attributes:
        name: what the model calls.
        description: what the model is told.
        properties: JSON Schema of each argument; all are required.
        action: the text action, with the arguments as ``{argument}``.
    """

    name: str
    description: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    action: str = ""
    exclusive: bool = True
    """Actions of one turn run one after another, in order."""

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return {"type": "object", "properties": dict(self.properties), "required": list(self.properties)}

    def schema(self) -> ToolSchema:
        """What the model is shown."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def check_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments, if they fit.

        Raises:
            InvalidArguments: with a text from which the model can correct itself.
        """
        import jsonschema

        strict = {**self.parameters, "additionalProperties": False}
        errors = sorted(jsonschema.Draft202012Validator(strict).iter_errors(dict(arguments)), key=str)
        if errors:
            raise InvalidArguments(f"Error: invalid arguments for {self.name}: {'; '.join(e.message for e in errors)}")
        return arguments

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Step the environment; an episode that is over ends the chain."""
        began = time.perf_counter()
        outcome = partial(self._outcome, began)
        try:
            action = (self.action or self.name).format(**self.check_arguments(arguments))
        except InvalidArguments as error:
            return outcome(ToolStatus.INVALID_ARGUMENTS, str(error))
        if context.environment is None:
            return outcome(ToolStatus.FAILED, f"Error: {self.name} needs an environment, and this chain has none")
        try:
            result: StepResult = await context.environment.step(action)
        except Exception as error:
            return outcome(ToolStatus.FAILED, f"Error: {self.name} failed: {type(error).__name__}: {error}")
        return outcome(ToolStatus.OK, result.observation, final=result.done)

    def _outcome(self, began: float, status: ToolStatus, content: Any, *, final: bool = False) -> ToolOutcome:
        return ToolOutcome(self.name, status, content, time.perf_counter() - began, final=final)
