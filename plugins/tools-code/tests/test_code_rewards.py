"""``code_tests`` and ``program_output`` on honest, wrong and hostile code, in real sandboxes."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from agentfly_tools_code.interpreter import code_interpreter
from agentfly_tools_code.rewards import code_tests, program_output

from agentfly_core.calls import CallFailed
from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.testing import call, check_reward, play
from agentfly_core.types import ChainStatus, RewardResult, SamplingParams, Task, ToolContext, Trajectory, UsageError

ADD = "def add(a, b):\n    return a + b"
TESTS = ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"]
LONG = SamplingParams(max_tokens=200_000)


def trajectory(response: str, **fields: Any) -> Trajectory:
    return Trajectory(Task("t", (), fields), 0, "g", "train", ChainStatus.COMPLETED, final_response=response)


class Scored:
    """Scores code with ``code_tests``."""

    def __init__(self, resources: ResourceManager) -> None:
        self._resources = resources

    def __call__(self, code: str, options: dict[str, Any] | None = None, **fields: Any) -> RewardResult:
        reward = code_tests(**{"call_timeout": 5.0, **(options or {})})
        chain = trajectory(f"Here it is:\n```python\n{code}\n```", **{"tests": TESTS, **fields})
        return asyncio.run(reward.score(chain, ToolContext(resources=self._resources)))


@pytest.fixture
def scored(resources: ResourceManager) -> Scored:
    return Scored(resources)


GOOD = {
    "asserts": (ADD, {}),
    "one text": (ADD, {"tests": "\n".join(TESTS)}),
    "JSON": (ADD, {"tests": '["assert add(1, 2) == 3"]'}),
    "check": (ADD, {"tests": "def check(candidate):\n    assert candidate(1, 2) == 3", "entry_point": "add"}),
    "check called": (ADD, {"tests": "def check(f):\n    assert f(1, 2) == 3\ncheck(add)"}),
    "functions": (
        ADD,
        {"tests": "def test_a():\n    assert add(1, 2) == 3\ndef test_b():\n    assert add([], [])==[]"},
    ),
    "cases": (
        "def half(n):\n    if n % 2: raise ValueError(n)\n    return n // 2",
        {
            "tests": "import unittest\nclass T(unittest.TestCase):\n    def setUp(self): self.n = 4\n"
            "    def test_even(self): self.assertEqual(half(self.n), 2)\n"
            "    def test_odd(self):\n        with self.assertRaises(ValueError): half(3)"
        },
    ),
    "imported": (ADD, {"tests": "from solution import add as plus\nassert plus(1, 2) == 3"}),
    "module": (ADD, {"tests": "import solution\nassert solution.add(1, 2) == 3"}),
    "star": (ADD, {"tests": "from solution import *\nassert add(1, 2) == 3"}),
    "loop": (ADD, {"tests": "for i in range(3):\n    assert add(i, 1) == i + 1"}),
    "class": (
        "class Solution:\n    def __init__(self): self.seen = []\n"
        "    def put(self, x): self.seen.append(x); return self\n"
        "    def total(self): return sum(self.seen)",
        {"tests": "s = Solution()\nassert s.put(1).put(2).total() == 3\nassert s.seen == [1, 2]"},
    ),
    "in place": (
        "def grow(xs, d): xs.append(3); d['k'] = 1",
        {"tests": "xs, d = [1], {}\ngrow(xs, d)\nassert xs == [1, 3]\nassert d == {'k': 1}"},
    ),
    "generator": ("def count(n):\n    yield from range(n)", {"tests": "assert list(count(3)) == [0, 1, 2]"}),
    "values": (
        "def echo(x): return x",
        {
            "tests": "import math\nassert echo((1, [2.5, None], {3: {4}}, b'b', 1j, frozenset())) == "
            "(1, [2.5, None], {3: {4}}, b'b', 1j, frozenset())\nassert math.isnan(echo(math.nan))\n"
            "assert echo(10**5000) == 10**5000\nassert echo('\\ud800') == '\\ud800'\nassert type(echo(True)) is bool"
        },
    ),
    "own exception": (
        "class Bad(KeyError): pass\ndef f(): raise Bad('x')",
        {"tests": "try:\n    f()\n    assert False\nexcept KeyError:\n    pass"},
    ),
    "prints": ("print('loading')\ndef f():\n    print('x')\n    return 1", {"tests": "assert f() == 1"}),
    "setup": (ADD, {"tests": ["assert add(ONE, 2) == 3"], "before": "ONE = 1"}),
    "program": (
        "print(int(input()) * 2)",
        {"tests": [{"input": "3\n", "output": "6"}, {"input": "4", "output": "8\n"}]},
    ),
    "program lists": ("print(int(input()) * 2)", {"tests": {"inputs": ["3"], "outputs": ["6"]}}),
}


@pytest.mark.parametrize("name", GOOD)
def test_right_code_passes(scored: Scored, name: str) -> None:
    code, fields = GOOD[name]
    options = {"setup": "before"} if "before" in fields else {}
    assert scored(code, options, **fields) == RewardResult(1.0, {"tests_passed": 1.0})


BAD = {
    "wrong": "def add(a, b): return 3",
    "missing": "def other(): pass",
    "syntax": "def add(",
    "fails to load": "raise RuntimeError\ndef add(a, b): return a + b",
    "exits": "import os\nos._exit(0)",
    "leaves": "import sys\nsys.exit(0)",
    "exits in a call": "import os\ndef add(a, b): os._exit(0)",
    "hangs": "def add(a, b):\n    while True: pass",
    "equals everything": (
        "class E:\n    def __eq__(self, o): return True\n    __hash__ = None\ndef add(a, b): return E()"
    ),
    "int that equals everything": "class E(int):\n    def __eq__(self, o): return True\ndef add(a, b): return E(7)",
    "text that equals everything": "class E(str):\n    def __eq__(self, o): return True\ndef add(a, b): return E('x')",
    "raises NameError": "def add(a, b): raise NameError('tests')",
    "raises ImportError": "def add(a, b): raise ImportError('tests')",
    "raises SyntaxError": "def add(a, b): raise SyntaxError('tests')",
    "raises SkipTest": "import unittest\ndef add(a, b): raise unittest.SkipTest('x')",
    "raises an exit": "def add(a, b): raise SystemExit(0)",
    "deep value": "def add(a, b):\n    x = []\n    for _ in range(5000): x = [x]\n    return x",
    "value in itself": "def add(a, b):\n    x = []\n    x.append(x)\n    return x",
    "huge value": "def add(a, b): return 'x' * 17_000_000",
    "huge number": "def add(a, b): return 1 << 100_000_000",
    "shadowed builtins": "def len(x): return 3\ndef add(a, b): return [a, b]",
    "forged frames": (
        "import json, os, struct\nfor fd in range(3, 64):\n"
        "    for m in ({'passed': 'x'}, {'end': True}, {'value': 3}):\n"
        "        data = json.dumps(m).encode()\n        try: os.write(fd, struct.pack('>I', len(data)) + data)\n"
        "        except OSError: pass\ndef add(a, b): return 0"
    ),
    "raw junk": "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 100)\n    except OSError: pass",
    "malformed value": (
        "import json\nkept = json.dumps\njson.dumps = lambda m: kept({'value': ['l', 5], 'changed': [[0, 1]]})\n"
        "def add(a, b): return a + b"
    ),
    "parent of all": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\ndef add(a, b): return 0",
    "kills everything": "import os, signal\ndef add(a, b): os.kill(-1, signal.SIGKILL)",
    "looks for the tests": (
        "import gc, os, sys\nfound = [o for o in gc.get_objects() if isinstance(o, str) and 'assert add' in o]\n"
        "def add(a, b): return eval(found[0].split('==')[1]) if found else 0"
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_or_hostile_code_scores_nothing(scored: Scored, name: str) -> None:
    assert scored(BAD[name], {"call_timeout": 1.0}).score == 0.0


def test_code_that_hangs_on_loading_is_tried_once(scored: Scored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfly_tools_code.testing_code.START_SECONDS", 2.0)
    assert scored("while True: pass", {"call_timeout": 1.0, "timeout": 60.0}).score == 0.0


def test_code_that_is_missing_scores_nothing(resources: ResourceManager) -> None:
    for response in ("no code", "```python\nunclosed", "```sql\nSELECT 1\n```", "```python\n\n```"):
        chain = trajectory(response, tests=TESTS)
        assert asyncio.run(code_tests().score(chain, ToolContext(resources=resources))).score == 0.0


def test_the_last_block_counts(resources: ResourceManager) -> None:
    chain = trajectory(f"```python\ndef add(a, b): return 0\n```\nBetter:\n```python\n{ADD}\n```\n", tests=TESTS)
    assert asyncio.run(code_tests().score(chain, ToolContext(resources=resources))).score == 1.0


BROKEN = {
    "syntax": ({"tests": ["assert add(1, 2) =="]}, "SyntaxError"),
    "no test": ({"tests": "x = 1"}, "there is no test in it"),
    "nothing": ({"tests": []}, "holds no tests"),
    "other form": ({"tests": [1]}, "holds no tests"),
    "import": ({"tests": "import a_module_that_is_not\nassert add(1, 2) == 3"}, "ModuleNotFoundError"),
    "name": ({"tests": ["assert add(1, 2) == three"], "entry_point": "add"}, "name 'three' is not defined"),
    "before any call": ({"tests": "x = 1 / 0\nassert add(1, 2) == 3"}, "ZeroDivisionError"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_test_is_an_error_and_no_score(scored: Scored, name: str) -> None:
    fields, says = BROKEN[name]
    with pytest.raises(CallFailed, match="its tests are broken") as raised:
        scored(ADD, **fields)
    assert says in str(raised.value)


def test_tests_that_hang_by_themselves_are_broken_and_on_what_they_got_are_failed(scored: Scored) -> None:
    with pytest.raises(CallFailed, match="before they used the code"):
        scored(ADD, {"timeout": 1.0}, tests="while True: pass\nassert add(1, 2) == 3")
    endless = "def add(a, b): return 10**18"
    assert (
        scored(endless, {"timeout": 5.0}, tests="for _ in range(add(1, 2)): pass\nassert add(1, 2) == 3").score == 0.0
    )


def test_partial_credit_is_the_share_of_tests(scored: Scored) -> None:
    picky = "def add(a, b):\n    while a == 'a': pass\n    return a + b"
    assert scored(
        picky, {"partial": True, "call_timeout": 3.0}, tests=[*TESTS, "assert add(2, 2) == 4"]
    ).score == pytest.approx(2 / 3)
    assert scored(picky, {"call_timeout": 3.0}).components == {"tests_passed": 0.5}


def test_a_reference_tells_a_broken_test_from_wrong_code(scored: Scored) -> None:
    wrong = "def add(a, b): return 0"
    assert scored(wrong, {"reference": "solution"}, solution=ADD).score == 0.0
    with pytest.raises(CallFailed, match="its own reference fails them"):
        scored(wrong, {"reference": "solution"}, solution="def add(a, b): return 7")


def test_tests_in_the_process_of_the_code_are_marked_weak(scored: Scored) -> None:
    both = {"tests_passed": 1.0, "weak": 1.0}
    point = "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x"
    assert scored(point, {"in_process": True}, tests=["assert P(1) == P(1)"]) == RewardResult(1.0, both)
    assert scored("import os\nos._exit(0)", {"in_process": True}).score == 0.0
    assert scored("import sys\nsys.exit(0)", {"in_process": True}).score == 0.0
    forged = "import unittest\nclass A: pass\ndef add(a, b): return 0"
    assert scored(forged, {"in_process": True}).components == {"tests_passed": 0.0, "weak": 1.0}


def test_the_two_sandboxes_have_nothing_in_common(resources: ResourceManager) -> None:
    """Each sees its own user (where this is root), its own processes and its own files."""
    identity = "import os\ndef me(): return [os.getuid(), sorted(p for p in os.listdir('/proc') if p.isdigit())]"
    leave = "def leave():\n    open('/tmp/mark', 'w').write('x'); open('mark', 'w').write('x')"
    tests = (
        "import os\nuid, processes = me()\nleave()\n"
        f"assert os.getuid() != uid or {os.getuid()} != 0\n"
        "assert not os.path.exists('mark') and not os.path.exists('/tmp/mark')"
    )
    chain = trajectory(f"```python\n{identity}\n{leave}\n```", tests=tests)
    assert asyncio.run(code_tests().score(chain, ToolContext(resources=resources))).score == 1.0


def test_code_from_the_workspace_and_the_chains_sandbox_is_free_before_two_more_are_leased(
    resources: ResourceManager,
) -> None:
    small = ResourceManager(InProcessCoordinator({"process": 2}), resources._instances.providers)
    try:
        played = play(
            [call("code_interpreter", code=f"open('solution.py', 'w').write({ADD!r})"), "I wrote it."],
            Task("t", ({"role": "user", "content": "Go."},), {"tests": TESTS}),
            tools=[code_interpreter],
            reward=code_tests(file="solution.py"),
            resources=small,
            sampling=LONG,
        )
        assert (played.reward, played.scored, played.unscored_reason) == (1.0, True, None)
    finally:
        asyncio.run(small.close())


def test_two_rewards_cannot_both_read_the_workspace(resources: ResourceManager) -> None:
    class Both:
        name = "both"
        fields = frozenset({"tests"})

        async def score(self, trajectory: Trajectory, context: ToolContext) -> RewardResult:
            await code_tests(file="f.py").score(trajectory, context)
            return await code_tests(file="f.py").score(trajectory, context)

    task = Task("t", ({"role": "user", "content": "Go."},), {"tests": TESTS})
    turns = [call("code_interpreter", code=f"open('f.py', 'w').write({ADD!r})"), "Done."]
    tools = [code_interpreter]
    played = play(turns, task, tools=tools, reward=Both(), resources=resources, sampling=LONG)
    assert "another reward gave the chain's workspace back" in str(played.unscored_reason)


def test_a_broken_test_leaves_the_chain_unscored(resources: ResourceManager) -> None:
    task = Task("t", ({"role": "user", "content": "Go."},), {"tests": "assert ("})
    played = play([f"```python\n{ADD}\n```"], task, reward=code_tests(), resources=resources, sampling=LONG)
    assert not played.scored
    assert "its tests are broken: SyntaxError" in str(played.unscored_reason)


def test_many_rewards_at_once_share_few_sandboxes_and_none_waits_for_ever(resources: ResourceManager) -> None:
    small = ResourceManager(InProcessCoordinator({"process": 2}), resources._instances.providers)

    async def main() -> list[float]:
        context = ToolContext(resources=small)
        chain = trajectory(f"```python\n{ADD}\n```", tests=TESTS)
        results = await asyncio.gather(*(code_tests().score(chain, context) for _ in range(5)))
        await small.close()
        return [result.score for result in results]

    assert asyncio.run(main()) == [1.0] * 5


OUTPUT = {
    "same": ("print('a  ')\nprint('b')", "a\nb\n", {}, 1.0),
    "other": ("print('a')", "b", {}, 0.0),
    "number": ("print('The answer is $1,234.50.')", 1234.5, {"compare": "number"}, 1.0),
    "gsm8k": ("print(7 * 6)", "6 * 7 = 42\n#### 42", {"compare": "number"}, 1.0),
    "no number": ("print('none')", 3, {"compare": "number"}, 0.0),
    "input": ("print(input()[::-1])", "cba", {"input_field": "given"}, 1.0),
    "fails": ("print(3)\n1/0", "3", {}, 0.0),
    "hangs": ("print(3, flush=True)\nwhile True: pass", "3", {"timeout": 1.0}, 0.0),
    "floods": ("while True: print('x' * 1000)", "x", {"timeout": 2.0}, 0.0),
}


@pytest.mark.parametrize("name", OUTPUT)
def test_program_output(resources: ResourceManager, name: str) -> None:
    code, answer, options, wanted = OUTPUT[name]
    chain = trajectory(f"```python\n{code}\n```", answer=answer, given="abc")
    reward = program_output(**options)
    assert asyncio.run(reward.score(chain, ToolContext(resources=resources))).score == wanted


def test_an_answer_that_is_no_number_is_refused(resources: ResourceManager) -> None:
    chain = trajectory("```python\n1\n```", answer="many")
    with pytest.raises(CallFailed, match="holds no number"):
        asyncio.run(program_output(compare="number").score(chain, ToolContext(resources=resources)))


def test_fields_and_options_are_checked() -> None:
    assert code_tests(setup="s", reference="r").fields == {"tests", "s", "r"}
    assert program_output(input_field="i").fields == {"answer", "i"}
    with pytest.raises(UsageError, match="timeout must be greater than 0"):
        code_tests(timeout=0)
    check_reward(program_output(), fields={"answer": "3"})
