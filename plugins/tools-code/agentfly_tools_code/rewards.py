"""``code_tests`` and ``program_output``: rewards for code that a model wrote, run in fresh sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from agentfly_core.calls import Limit
from agentfly_core.rewards import FunctionReward
from agentfly_core.rewards.numbers import final_number
from agentfly_core.rewards.numeric import as_quantity
from agentfly_core.types import ResourceSpec, RewardResult, Sandbox, ToolContext, Trajectory, UsageError
from agentfly_tools_code.fences import answer_block
from agentfly_tools_code.sandboxes import STATE, ChainSandbox, read_spec
from agentfly_tools_code.testing_code import BrokenTests, Report, run_tests

MAX_CODE = 200_000
PROGRAM = "main.py"

_leasing = Limit(1)
"""One reward of this process at a time waits for sandboxes: two that each hold one and wait for another would wait for
ever."""


def code_tests(
    *,
    field: str = "tests",
    entry_point: str | None = "entry_point",
    setup: str | None = None,
    reference: str | None = None,
    file: str | None = None,
    partial: bool = False,
    in_process: bool = False,
    call_timeout: float = 5.0,
    timeout: float = 30.0,
    sandbox: dict[str, Any] | None = None,
) -> FunctionReward:
    """1 if the code in the final response passes the tests, 0 if it fails, hangs or is missing.

    Tests run in one fresh sandbox, the code in another: its functions are called from the tests through this process,
    which passes on plain data and nothing else. What the verdict is told on never reaches the code. A test that is
    broken itself leaves the chain unscored.

    Args:
        field: data-set field with the tests: text, a list of texts, or a list of ``{"input": ..., "output": ...}`` of
            a whole program's standard input and output.
        entry_point: field with the name of the function under test, where the row has one.
        setup: field with code that goes before the tests.
        reference: field with a solution. If the tests fail that, they are broken.
        file: take the code from this file of the chain's workspace, not from the last Python block of the response.
        partial: the share of tests that passed in place of all or nothing.
        in_process: import the code into the process of the tests, for tests that need its very objects. It can then
            forge the verdict: the component ``weak`` is 1.
        call_timeout, timeout: seconds of one call (or program run), and of all.
        sandbox: options of ``sandbox_spec``.
    """
    spec = read_spec(sandbox)
    _positive("code_tests", call_timeout=call_timeout, timeout=timeout)

    async def check(code: str, fields: Mapping[str, Any], context: ToolContext) -> Report:
        tests = _tests(fields, field, setup)
        async with _sandboxes(context, spec, 1 if in_process or isinstance(tests[0], Mapping) else 2) as boxes:
            if isinstance(tests[0], Mapping):
                return await _run_programs(boxes[0], code, tests, call_timeout, timeout)
            return await run_tests(
                code,
                tests,
                harness=boxes[0],
                candidate=None if in_process else boxes[1],
                entry_point=fields.get(entry_point) if entry_point else None,
                call_seconds=call_timeout,
                seconds=timeout,
            )

    async def score(trajectory: Trajectory, final_response: str, context: ToolContext) -> RewardResult:
        fields = trajectory.task.fields
        code = await _code(final_response, file, context)
        await _give_back(context)
        weak = {"weak": 1.0} if in_process else {}
        if not code:
            return RewardResult(0.0, {"tests_passed": 0.0, **weak})
        try:
            report = await check(code, fields, context)
        except BrokenTests as error:
            raise UsageError(f"task {trajectory.task.id!r}: its tests are broken: {error}") from None
        if reference and not report.good:
            await _check_reference(check, str(fields[reference]), fields, context, trajectory.task.id)
        score = report.fraction if partial else float(report.good)
        return RewardResult(score, {"tests_passed": report.fraction, **weak})

    needed = {field, *(name for name in (setup, reference) if name)}
    return FunctionReward(score, name="code_tests", fields=needed, timeout=None)


def program_output(
    *,
    field: str = "answer",
    compare: Literal["text", "number"] = "text",
    input_field: str | None = None,
    file: str | None = None,
    timeout: float = 10.0,
    sandbox: dict[str, Any] | None = None,
) -> FunctionReward:
    """1 if the program in the final response prints the right answer.

    Args:
        field: data-set field with the answer.
        compare: ``text``: the same lines, white space at their ends aside; ``number``: the last number printed.
        input_field: field with what the program reads from standard input.
        file, sandbox: as in ``code_tests``.
        timeout: seconds that it may run.
    """
    spec = read_spec(sandbox)
    _positive("program_output", timeout=timeout)

    async def score(trajectory: Trajectory, final_response: str, context: ToolContext) -> float:
        fields = trajectory.task.fields
        answer = fields[field]
        wanted = as_quantity(answer) if compare == "number" else None
        if compare == "number" and wanted is None:
            raise UsageError(f"field {field!r} of task {trajectory.task.id!r} holds no number: {answer!r:.100}")
        code = await _code(final_response, file, context)
        await _give_back(context)
        if not code:
            return 0.0
        async with _sandboxes(context, spec, 1) as (box,):
            printed = await _run_program(box, code, str(fields[input_field]) if input_field else "", timeout)
        if printed is None:
            return 0.0
        if wanted is None:
            return float(_same_lines(printed, str(answer)))
        found = final_number(printed)
        return float(found is not None and found.equals(wanted, 1e-9))

    needed = {field, *([input_field] if input_field else [])}
    return FunctionReward(score, name="program_output", fields=needed, timeout=None)


async def _check_reference(check: Any, code: str, fields: Any, context: ToolContext, task: str) -> None:
    try:
        report = await check(code, fields, context)
    except BrokenTests as error:
        raise UsageError(f"task {task!r}: its tests are broken: {error}") from None
    if not report.good:
        why = "; ".join(report.failures[:3])
        raise UsageError(f"task {task!r}: its tests are broken: its own reference fails them: {why}")


def _tests(fields: Mapping[str, Any], field: str, setup: str | None) -> list[Any]:
    """The tests of a row in one of the forms that are understood.

    Raises:
        BrokenTests: they have another form.
    """
    tests = fields[field]
    if isinstance(tests, str) and tests.lstrip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):  # it is code, then
            tests = json.loads(tests)
    if isinstance(tests, Mapping) and {"inputs", "outputs"} <= tests.keys():
        pairs = zip(tests["inputs"], tests["outputs"], strict=False)
        tests = [{"input": given, "output": wanted} for given, wanted in pairs]
    found = [tests] if isinstance(tests, str) else list(tests) if isinstance(tests, Sequence) else []
    programs = [isinstance(t, Mapping) and {"input", "output"} <= t.keys() for t in found]
    if not found or not (all(programs) or all(isinstance(t, str) for t in found)):
        raise BrokenTests(f"field {field!r} holds no tests: {tests!r:.100}")
    return found if all(programs) or not setup else [str(fields[setup]), *found]


async def _code(response: str, file: str | None, context: ToolContext) -> str:
    """What the model handed in; empty where there is nothing."""
    if file is None:
        code = answer_block(response)
    else:
        code = await _from_workspace(file, context)
    return code if code.strip() and len(code) <= MAX_CODE else ""


async def _from_workspace(file: str, context: ToolContext) -> str:
    for chain in _held(context):
        if chain.closed:
            raise UsageError(f"file {file!r}: another reward gave the chain's workspace back; let one of them read it")
        sandbox = chain.held()
        with contextlib.suppress(OSError):  # not in this one
            if sandbox is not None:
                return (await sandbox.read_file(file, max_bytes=MAX_CODE + 1)).decode("utf-8", "replace")
    return ""


def _held(context: ToolContext) -> list[ChainSandbox]:
    return list(context.state.get(STATE, {}).values())


async def _give_back(context: ToolContext) -> None:
    """Free the chain's own sandboxes: many chains that each held one would leave none to score them in."""
    for chain in _held(context):
        await chain.close()


@contextlib.asynccontextmanager
async def _sandboxes(context: ToolContext, spec: ResourceSpec, count: int) -> AsyncIterator[list[Sandbox]]:
    """So many fresh sandboxes."""
    if context.resources is None:
        raise UsageError("code is scored in sandboxes, and there are no resources to lease them from")
    for row in await context.resources.coordinator.status() if count > 1 else ():
        if row.kind in (spec.kind, "*") and row.capacity is not None and row.capacity < count:
            what = "all kinds together" if row.kind == "*" else repr(spec.kind)
            raise UsageError(
                f"the tests and the code run in {count} sandboxes at once, and the capacity of {what} is "
                f"{row.capacity}: raise it to at least {count}"
            )
    async with contextlib.AsyncExitStack() as stack:
        async with _leasing:
            leases = [
                await stack.enter_async_context(context.resources.lease(spec, owner=f"{context.chain}/score-{number}"))
                for number in range(count)
            ]
        yield [lease.resource for lease in leases]


async def _run_programs(
    box: Sandbox, code: str, tests: Sequence[Mapping[str, Any]], seconds: float, total: float
) -> Report:
    """A whole program, once for each input, as long as there is time."""
    report = Report(expected=len(tests))
    clock = asyncio.get_running_loop().time
    end = clock() + total
    for number, test in enumerate(tests, 1):
        if (left := end - clock()) <= 0:
            report.fail(f"they took longer than {total:g} s")
            break
        printed = await _run_program(box, code, str(test["input"]), min(seconds, left))
        if printed is not None and _same_lines(printed, str(test["output"])):
            report.passed += 1
        else:
            report.fail(f"input {number}: {'it failed' if printed is None else f'it printed {printed!r:.200}'}")
    return report


async def _run_program(box: Sandbox, code: str, given: str, seconds: float) -> str | None:
    """What it prints; None if it fails, runs too long or prints too much."""
    await box.write_file(PROGRAM, code.encode("utf-8", "replace"))
    argv = [box.python, "-B", "-X", "utf8", PROGRAM]
    done = await box.run(argv, stdin=given.encode("utf-8", "replace"), timeout=seconds, cwd=box.workspace)
    return None if done.exit_code != 0 or done.truncated else done.stdout.decode("utf-8", "replace")


def _same_lines(a: str, b: str) -> bool:
    return [line.rstrip() for line in a.rstrip().splitlines()] == [line.rstrip() for line in b.rstrip().splitlines()]


def _positive(reward: str, **numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise UsageError(f"reward {reward!r}: {name} must be greater than 0, got {number}")
