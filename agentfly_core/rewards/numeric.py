"""A reward that compares numbers."""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import Any

from agentfly_core.rewards.function import FunctionReward
from agentfly_core.rewards.numbers import Quantity, final_number
from agentfly_core.types.errors import UsageError
from agentfly_core.types.trajectories import Trajectory


def numeric_match(*, field: str = "answer", tolerance: float = 1e-9, math_verify: bool = False) -> FunctionReward:
    """1 if the final response ends with the right number.

    The response's number is the one after its last ``####``, or else in its last ``\\boxed{}``, or else its last; the
    answer is a number, or text that is read in the same way (GSM8K's whole solutions, say).

    Args:
        field: the data-set field with the answer.
        tolerance: largest difference relative to the larger number, absolute below 1.
        math_verify: where no two equal numbers are found, let the package math-verify compare the two as LaTeX.
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise UsageError(f"reward 'numeric_match': tolerance must be 0 or more, got {tolerance}")
    verify = None
    if math_verify:
        from agentfly_core.rewards.verifier import Verifier

        verify = Verifier()

    def score(trajectory: Trajectory, final_response: str) -> bool:
        answer = trajectory.task.fields[field]
        wanted, found = as_quantity(answer), final_number(final_response)
        if wanted is None and verify is None:
            raise UsageError(f"field {field!r} of task {trajectory.task.id!r} holds no number: {answer!r:.100}")
        if wanted is not None and found is not None and found.equals(wanted, tolerance):
            return True
        return verify is not None and verify(str(answer), final_response)

    return FunctionReward(score, name="numeric_match", fields={field})


def as_quantity(answer: Any) -> Quantity | None:
    """The number that a data-set field holds or ends with."""
    if isinstance(answer, numbers.Rational):
        return Quantity(Fraction(answer))
    if isinstance(answer, numbers.Real):
        return Quantity(Fraction(str(float(answer)))) if math.isfinite(answer) else None
    return final_number(str(answer))
