"""``@reward``: a reward from a function or method."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, overload

from agentfly_core.calls import invoke
from agentfly_core.functions import FunctionObject
from agentfly_core.rewards.results import to_reward_result
from agentfly_core.types.errors import UsageError
from agentfly_core.types.tools import RewardResult, ToolContext
from agentfly_core.types.trajectories import Trajectory

DEFAULT_TIMEOUT = 60.0
RESERVED = ("trajectory", "final_response", "messages", "environment", "context")
"""Parameters with a meaning of their own; a data-set column of such a name is found in ``context.fields``."""


class FunctionReward(FunctionObject):
    """A reward that is still the function it was made from.

    Attributes:
        name: what recipes and metrics call it.
        timeout: seconds a call may take; None sets no limit.
    """

    __agentfly_kind__ = "rewards"

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        fields: Iterable[str] = (),
        timeout: float | None = DEFAULT_TIMEOUT,
        frame: FrameType | None = None,
    ) -> None:
        """``fields`` are data-set fields that are needed beside those the signature names."""
        FunctionObject.__init__(self, function, frame)
        self.name: str = name or str(getattr(self._function, "__name__", ""))
        self.description = (inspect.getdoc(self._function) or "").split("\n\n")[0]
        self.timeout = timeout
        self._fields = frozenset(fields)
        if timeout is not None and not timeout > 0:
            raise UsageError(f"reward {self.name!r}: timeout must be greater than 0, got {timeout}")

    def __repr__(self) -> str:
        return f"<FunctionReward {self.name}>"

    @property
    def fields(self) -> frozenset[str]:
        """Data-set fields without which it cannot score: parameters without a default."""
        named = {p.name for p in self._own() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
        return self._fields | (named - set(RESERVED))

    async def score(self, trajectory: Trajectory, context: ToolContext) -> RewardResult:
        """Call the function with what it names.

        Raises:
            UsageError: a field that it needs is missing. CallFailed, CallTimedOut: as they say.
            TypeError, ValueError: what it returned is no reward.
        """
        arguments = self._collect(trajectory, context)
        value = await invoke(functools.partial(self._target, **arguments), timeout=self.timeout)
        return to_reward_result(value, turns=len(trajectory.turns))

    def _own(self) -> list[inspect.Parameter]:
        parameters = self._signature()
        for parameter in parameters:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise UsageError(f"reward {self.name!r}: {parameter.name!r} must not be positional-only")
        return parameters

    def _collect(self, trajectory: Trajectory, context: ToolContext) -> dict[str, Any]:
        fields = trajectory.task.fields
        if missing := sorted(self.fields - fields.keys()):
            raise UsageError(
                f"reward {self.name!r} needs the data-set field{'s' if len(missing) > 1 else ''} "
                f"{', '.join(map(repr, missing))}; task {trajectory.task.id!r} has "
                f"{', '.join(map(repr, sorted(fields))) or 'none'}"
            )
        arguments: dict[str, Any] = {}
        parameters = self._own()
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                named = {p.name for p in parameters}
                arguments.update((key, value) for key, value in fields.items() if key not in named)
            elif parameter.name in RESERVED:
                arguments.update(self._reserved(parameter, trajectory, context))
            elif parameter.name in fields:
                arguments[parameter.name] = fields[parameter.name]
        return arguments

    def _reserved(self, parameter: inspect.Parameter, trajectory: Trajectory, context: ToolContext) -> dict[str, Any]:
        name = parameter.name
        if name == "environment" and context.environment is None:
            if parameter.default is parameter.empty:
                raise UsageError(f"reward {self.name!r} needs an environment; the recipe has none")
            return {}
        values = {
            "trajectory": trajectory,
            "final_response": trajectory.response,
            "messages": list(trajectory.messages),
            "environment": context.environment,
            "context": context,
        }
        return {name: values[name]}


@overload
def reward(function: Callable[..., Any], /) -> FunctionReward: ...
@overload
def reward(
    *, name: str | None = None, fields: Iterable[str] = (), timeout: float | None = DEFAULT_TIMEOUT
) -> Callable[[Callable[..., Any]], FunctionReward]: ...
def reward(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function, sync or async, or a method into a reward, with or without options.

    It gets what its parameters name: ``trajectory``, ``final_response`` (text), ``messages``, ``environment``,
    ``context`` (a ``ToolContext``), or any data-set field; ``**kwargs`` gets all other fields. A field whose
    parameter has a default may be missing. A reward with options is a function that takes them and returns a
    decorated one.

    It returns a number, a mapping of named numbers (the one named ``score`` is the score and the others are
    components; without it their sum is), or a ``RewardResult``.

    Args:
        name: the function's name if not given.
        fields: data-set fields that it needs and takes from ``context.fields`` or ``trajectory.task.fields``.
        timeout: seconds a call may take.
    """
    frame = sys._getframe(1)
    if function is not None:
        return FunctionReward(function, frame=frame, **options)
    return lambda function: FunctionReward(function, frame=frame, **options)
