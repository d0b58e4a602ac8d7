"""Whether a reward keeps its contract (``types.Reward``)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentfly_core.testing.report import Report, run_async, show, show_error
from agentfly_core.testing.samples import HOSTILE_TEXTS
from agentfly_core.types import ChainStatus, Reward, RewardResult, Task, ToolContext, Trajectory

RESPONSES = ("", "42", "The answer is \\boxed{42}.", *HOSTILE_TEXTS)


def check_reward(
    reward: Reward,
    *,
    fields: Mapping[str, Any] | None = None,
    responses: Sequence[str] = (),
    trajectories: Sequence[Trajectory] = (),
    context: ToolContext | None = None,
    timeout: float = 60.0,
) -> None:
    """Check a reward on finished chains: finite scores, for odd responses too, from the fields it declares.

    Args:
        fields: data-set fields of the task whose responses are scored.
        responses: final responses to score besides the odd ones that are always tried.
        trajectories: whole chains to score as they are, for rewards that look at turns or messages.
        context: what the reward gets; an empty ``ToolContext`` if not given.
        timeout: seconds that one score may take.

    Raises:
        ConformanceError: with every violation found.
    """
    report = Report(f"reward {getattr(reward, 'name', reward)!r}")
    lacking = [member for member in ("name", "fields", "score") if not hasattr(reward, member)]
    fix = "decorate the function with @reward, or implement agentfly_core.types.Reward (a factory is called first)"
    if report.expect(not lacking, f"it lacks {', '.join(lacking)}", where="the reward", fix=fix):
        _Check(report, reward, context or ToolContext(), timeout).all(fields or {}, responses, trajectories)
    report.finish()


class _Check:
    def __init__(self, report: Report, reward: Reward, context: ToolContext, timeout: float) -> None:
        self.report, self.reward, self.context, self.timeout = report, reward, context, timeout

    def all(self, fields: Mapping[str, Any], responses: Sequence[str], trajectories: Sequence[Trajectory]) -> None:
        name, wanted = self.reward.name, self.reward.fields
        good = isinstance(name, str) and bool(name)
        self.report.expect(good, f"{name!r} is no name", where="name", fix="give a short text")
        good = isinstance(wanted, frozenset) and all(isinstance(field, str) for field in wanted)
        fix = "give a frozenset of the names of the data-set fields that it cannot do without"
        if not self.report.expect(good, f"they are {show(wanted)}", where="fields", fix=fix):
            return
        missing = sorted(wanted - fields.keys())
        if missing and (responses or not trajectories):
            fix = "pass `fields` with a value for each field that the reward declares"
            self.report.add(f"no value was given for {', '.join(missing)}", where="the call of this check", fix=fix)
        elif responses or not trajectories:
            for response in (*responses, *RESPONSES):
                self._score(finished_chain(response, fields), f"score of the response {show(response)}")
        for number, trajectory in enumerate(trajectories):
            self._score(trajectory, f"score of trajectories[{number}]")

    def _score(self, trajectory: Trajectory, where: str) -> None:
        given = trajectory.task.fields
        declared = {name: value for name, value in given.items() if name in self.reward.fields}
        if self._result(trajectory, where) is not None and declared.keys() != given.keys():
            bare = replace(trajectory, task=replace(trajectory.task, fields=declared))
            fix = "name every field that it needs: parameters of the function, or @reward(fields=[...])"
            self._result(bare, f"{where}, with no other fields than {sorted(declared)}", fix)

    def _result(self, trajectory: Trajectory, where: str, fix: str = "") -> RewardResult | None:
        fields = copy.deepcopy(dict(trajectory.task.fields))
        context = replace(self.context, fields=self.context.fields or trajectory.task.fields, state={})
        try:
            result = run_async(lambda: self.reward.score(trajectory, context), seconds=self.timeout)
        except (Exception, SystemExit) as error:
            fix = fix or "score odd responses low: a model must not be able to escape its score"
            self.report.add(f"it raised {show_error(error)}", where=where, fix=fix)
            return None
        fix = "leave the task as it is: other chains of its group share it"
        self.report.expect(dict(trajectory.task.fields) == fields, "it changed the task", where=where, fix=fix)
        if not isinstance(result, RewardResult):
            self.report.add(f"it returned {show(result)}", where=where, fix="return a RewardResult")
            return None
        fix = "guard divisions and logarithms: a number that is not finite leaves the chain unscored"
        self.report.expect(result.is_finite(), f"the score is not finite: {show(result)}", where=where, fix=fix)
        turns = result.turn_rewards
        good = turns is None or len(turns) == len(trajectory.turns)
        what = f"{len(turns or ())} turn rewards for {len(trajectory.turns)} turns"
        self.report.expect(good, what, where=where, fix="give one number for each of trajectory.turns")
        return result


def finished_chain(response: str, fields: Mapping[str, Any] | None = None) -> Trajectory:
    """A chain without turns that ended with a response, for tests of rewards."""
    messages = ({"role": "user", "content": "Go."}, {"role": "assistant", "content": response})
    task = Task("check", messages[:1], dict(fields or {}))  # type: ignore[arg-type]
    return Trajectory(
        task,
        0,
        "check",
        "train",
        ChainStatus.COMPLETED,
        messages=messages,  # type: ignore[arg-type]
        final_response=response,
    )
