from __future__ import annotations

import inspect
import re
from pathlib import Path

from agentfly_core import hookspecs
from agentfly_core.registry import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")
SPECS = {n: f for n, f in vars(hookspecs).items() if inspect.isfunction(f) and hasattr(f, "agentfly_spec")}


def test_every_hook_is_in_the_docs_with_its_exact_arguments_and_no_other_is():
    expected = {f"{name}({', '.join(inspect.signature(f).parameters)})" for name, f in SPECS.items()}
    documented = set(re.findall(r"^\| `(\w+\([^)]*\))` \|", PAGE, re.MULTILINE))
    assert documented == expected


def test_every_hook_is_in_the_lifecycle_diagram():
    diagram = PAGE.split("## Life of a plugin")[1].split("```")[1]
    for name in SPECS:
        if not name.startswith("register_"):
            assert name in diagram


def test_there_is_one_registration_hook_a_kind():
    assert {name for name in SPECS if name.startswith("register_")} == {f"register_{kind}" for kind in KINDS}


def test_the_callback_is_documented_as_it_is():
    parameters = list(inspect.signature(hookspecs.Register.__call__).parameters.values())[1:]
    text = f"register({parameters[0].name}, *, {', '.join(f'{p.name}={p.default!r}' for p in parameters[1:])})"
    assert text.replace("''", '""') in PAGE
