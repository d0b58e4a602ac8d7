"""Whether an agent keeps its contract (``types.Agent``)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from agentfly_core.testing.characters import CharacterTemplate
from agentfly_core.testing.report import Report, show
from agentfly_core.testing.samples import HOSTILE_TEXTS, sample_arguments
from agentfly_core.types import (
    Agent,
    AssistantTurn,
    CallError,
    CallErrorKind,
    CallTools,
    Continue,
    Decision,
    Observation,
    StepResult,
    Task,
    Tool,
    ToolCall,
    ToolContext,
    ToolOutcome,
    ToolStatus,
    text_of,
)

TASK = Task("check", ({"role": "user", "content": "Go."},), {"answer": "42"})
TAGS = ("action", "answer", "search", "think", "tool_call")
TEXTS = (
    *("Just words.", "```python\n1 + 1\n```", "```python\nnever closed", *HOSTILE_TEXTS),
    *(f"<{tag}>x</{tag}>" for tag in TAGS),
    *(f"<{tag}>never closed" for tag in TAGS),
    *(f"</{tag}><{tag}>" for tag in TAGS),
)
"""What a model may write in a turn."""
MARK = "zebra"


def check_agent(
    agent: Agent, *, tools: Sequence[Tool] = (), turns: Sequence[AssistantTurn | str] = (), task: Task = TASK
) -> None:
    """Check an agent's opening, its decisions on odd turns, and what it shows the model. Runs no tool and no model.

    Args:
        tools: what the agent is given, its environment's too.
        turns: parsed turns, or just texts, besides the odd ones that are always tried.
        task: that it opens with.

    Raises:
        ConformanceError: with every violation found.
    """
    report = Report(f"agent {getattr(agent, 'name', agent)!r}")
    lacking = [m for m in ("name", "start", "decide", "observe", "observe_step") if not hasattr(agent, m)]
    fix = "implement agentfly_core.types.Agent (a class is built first)"
    if report.expect(
        not lacking and not isinstance(agent, type), f"it lacks {', '.join(lacking)}", where="the agent", fix=fix
    ):
        _Check(report, agent, {tool.name: tool for tool in tools}).all(task, turns)
    report.finish()


class _Check:
    def __init__(self, report: Report, agent: Agent, tools: Mapping[str, Tool]) -> None:
        self.report, self.agent, self.tools = report, agent, tools

    def all(self, task: Task, turns: Sequence[AssistantTurn | str]) -> None:
        self._members()
        for observation in (None, Observation(f"A {MARK}.")):
            self._start(task, observation)
        given = [AssistantTurn(turn) if isinstance(turn, str) else turn for turn in turns]
        for turn in (*given, *map(AssistantTurn, TEXTS), *self._turns_with_calls()):
            for cut in (False, True):
                self._decide(replace(turn, cut=cut))
        for outcomes in (self._outcomes[:1], self._outcomes):
            self._observe(outcomes)
        where, fix = "observe_step", "hand the observation's text back"
        messages = self._messages(lambda: self.agent.observe_step(StepResult(f"A {MARK}.")), where)
        self.report.expect(MARK in _text(messages), "the model is not shown the observation", where=where, fix=fix)

    def _members(self) -> None:
        agent: Any = self.agent
        good = isinstance(agent.name, str) and bool(agent.name)
        self.report.expect(good, f"{agent.name!r} is no name", where="name", fix="give a short text")
        for member in ("show_tools", "continues"):
            value = getattr(agent, member, False)
            self.report.expect(isinstance(value, bool), f"it is {show(value)}", where=member, fix="give True or False")
        texts = getattr(agent, "stop_texts", ())
        good = isinstance(texts, tuple) and all(isinstance(text, str) and text for text in texts)
        self.report.expect(good, f"they are {show(texts)}", where="stop_texts", fix="give a tuple of texts, none empty")
        if hasattr(agent, "check_tools"):
            with self.report.guard("check_tools", "pass `tools` that the agent can work with, or accept these"):
                agent.check_tools(self.tools)

    def _start(self, task: Task, observation: Observation | None) -> None:
        where = "start" if observation is None else "start with an observation"
        before = copy.deepcopy(task)
        messages = self._messages(lambda: self.agent.start(task, observation, self.tools), where)
        fix = "return new messages and leave the task as it is: other chains of its group share it"
        self.report.expect(task == before, "it changed the task", where=where, fix=fix)
        again = self._messages(lambda: self.agent.start(task, observation, self.tools), where)
        fix = "keep nothing from one chain to the next: one agent opens all of them"
        self.report.expect(messages == again, "a second call opens otherwise", where=where, fix=fix)
        if observation is not None:
            fix = "put the observation's content into the messages"
            shown = MARK in _text(messages)
            self.report.expect(shown, "the model is not shown the observation", where=where, fix=fix)

    def _decide(self, turn: AssistantTurn) -> None:
        where = f"decide on {show(turn)}"
        fix = "decide on any turn: what cannot be acted upon is a Continue with a hint, or a Finish"
        with self.report.guard(where, fix):
            decision = self.agent.decide(turn, self.tools, ToolContext())
            again = self.agent.decide(turn, self.tools, ToolContext())
            fix = "keep nothing from one turn to the next: context.state is the chain's"
            self.report.expect(decision == again, "a second call decides otherwise", where=where, fix=fix)
            fix = "return a CallTools, StepEnvironment, Continue or Finish"
            good = isinstance(decision, get_args(Decision))
            if not self.report.expect(good, f"it returned {show(decision)}", where=where, fix=fix):
                return
            if isinstance(decision, CallTools):
                self._calls(decision, where)
            elif isinstance(decision, Continue):
                self._messages(lambda: list(decision.messages), where)

    def _calls(self, decision: CallTools, where: str) -> None:
        self.report.expect(bool(decision.calls), "it calls nothing", where=where, fix="call, or decide otherwise")
        for call in decision.calls:
            good = isinstance(call, CallError) or (isinstance(call, ToolCall) and call.name in self.tools)
            fix = "turn calls of tools that do not exist into CallErrors (agents.tool_calling.resolve does)"
            self.report.expect(good, f"it calls {show(call)}", where=where, fix=fix)

    def _observe(self, outcomes: Sequence[ToolOutcome]) -> None:
        where = f"observe of {len(outcomes)} outcomes"
        text = _text(self._messages(lambda: self.agent.observe(outcomes), where))
        shown = all(text_of(outcome.content) in text for outcome in outcomes)
        fix = "hand back the content of every outcome, of failed ones too"
        self.report.expect(shown, "the model is not shown every outcome", where=where, fix=fix)

    def _messages(self, make: Callable[[], Any], where: str) -> list[Any]:
        """What it makes, if it is a list of messages that a template can render."""
        fix = "return a list of {'role': ..., 'content': ...}, with at least one message"
        with self.report.guard(where, fix):
            messages: list[Any] = make()
            good = isinstance(messages, list) and bool(messages)
            if self.report.expect(good, f"it gave {show(messages)}", where=where, fix=fix):
                CharacterTemplate().encode_prompt(messages)
                return messages
        return []

    @property
    def _outcomes(self) -> list[ToolOutcome]:
        return [
            ToolOutcome("one", ToolStatus.OK, f"a {MARK}", call_id="1"),
            ToolOutcome("two", ToolStatus.FAILED, "Error: no luck", call_id="2"),
        ]

    def _turns_with_calls(self) -> list[AssistantTurn]:
        error = CallError(CallErrorKind.INVALID_JSON, "Error: no JSON")
        calls: list[ToolCall | CallError] = [ToolCall("no_such_tool", {}), ToolCall("", {"x": None}), error]
        for name, tool in self.tools.items():
            calls += [ToolCall(name, sample_arguments(tool.parameters) or {}), ToolCall(name, {"no_such_argument": 1})]
        return [AssistantTurn("", calls=(call,)) for call in calls] + [AssistantTurn("And.", calls=tuple(calls))]


def _text(messages: Sequence[Any]) -> str:
    return "\n".join(text_of(message["content"]) for message in messages)
