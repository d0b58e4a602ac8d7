from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentfly_core.plugins import Plugins
from agentfly_core.registry import Registration, import_target
from agentfly_core.types import UnknownName, UsageError

GOOD = """
from agentfly_core.hookspecs import hookimpl

def make(**options):
    "Makes one."
    return options

@hookimpl
def register_environments(register):
    register(make, name="{name}")
"""


def test_a_name_that_two_plugins_have_needs_the_qualified_form(site):
    site.add("dist-a", GOOD.format(name="maze"), entry="one")
    site.add("dist-b", GOOD.format(name="maze"), entry="two")
    registry = Plugins.load().registry("environments")
    with pytest.raises(UsageError, match=r"'one:maze' \(dist-a\) or 'two:maze' \(dist-b\)"):
        registry.find("maze")
    assert registry.find("two:maze").distribution == "dist-b"


def test_equal_entry_point_names_are_told_apart_by_distribution(site):
    site.add("dist-a", GOOD.format(name="maze"), entry="same")
    site.add("dist-b", GOOD.format(name="maze"), entry="same")
    registry = Plugins.load().registry("environments")
    with pytest.raises(UsageError, match=r"'dist-a:maze' .* 'dist-b:maze'"):
        registry.find("same:maze")
    assert registry.find("dist-b:maze").distribution == "dist-b"


def test_one_object_under_one_name_is_no_collision(site, tmp_path):
    module = site.add("dist-a", GOOD.format(name="maze"))
    own = tmp_path / "own.py"
    own.write_text(
        f"from {module} import make\nfrom agentfly_core.hookspecs import hookimpl\n"
        f"@hookimpl\ndef register_environments(register): register('{module}:make', name='maze')\n"
    )
    plugins = Plugins.load()
    plugins.load_path(own)
    assert plugins.registry("environments").find("maze").distribution == "dist-a"


def test_an_unknown_name_says_which_plugin_would_have_it(site):
    tail = "    raise RuntimeError('late')\n"
    site.add("dist-a", GOOD.format(name="maze") + tail, entry="mazes")
    registry = Plugins.load(warn=False).registry("environments")
    for name in ("maze", "mazes:maze"):
        with pytest.raises(UnknownName, match=r"it would come from: plugin 'mazes' \(dist-a\) is failed.*late"):
            registry.find(name)
    with pytest.raises(UnknownName, match="may provide it: plugin 'mazes'"):
        registry.find("swamp")


def test_an_unknown_name_says_what_is_near_and_what_to_install(monkeypatch):
    monkeypatch.setenv("AGENTFLY_LOAD_PLUGINS", "core")
    plugins = Plugins.load(warn=False)
    with pytest.raises(UnknownName, match="did you mean 'calculator'"):
        plugins.registry("tools").find("calculater")
    with pytest.raises(UnknownName, match="pip install agentfly-plugin-learner-openrlhf"):
        plugins.registry("learners").find("openrlhf")


def test_a_lazy_path_that_is_broken_names_its_plugin_when_used(site):
    lines = [
        "from agentfly_core.hookspecs import hookimpl",
        "@hookimpl",
        "def register_environments(register):",
        "    register('af_no_such_module:f', name='gone')",
        "    register('os.path:nothing', name='hollow')",
        "    register('os.path:sep', name='junk')",
        "    register('collections:OrderedDict.fromkeys', name='dotted')",
    ]
    site.add("dist-a", "\n".join(lines), entry="lazy")
    registry = Plugins.load().registry("environments")
    for name, cause in (("gone", "af_no_such_module"), ("hollow", "nothing")):
        with pytest.raises(UsageError, match=f"'lazy:{name}' of dist-a cannot be imported.*{cause}"):
            registry.get(name)
    with pytest.raises(UsageError, match="'junk' must be a factory of environments"):
        registry.get("junk")
    assert registry.get("dotted")("a") == {"a": None}


AGENT = """
from agentfly_core.hookspecs import hookimpl


class Agent:
    {decorator}
    def start({parameters}): ...
    def decide(self, turn, tools, context): ...
    def observe(self, outcomes): ...
    def observe_step(self, result): ...


@hookimpl
def register_agents(register):
    register(Agent, name="mine")
"""


@pytest.mark.parametrize(
    ("decorator", "parameters", "good"),
    [
        ("", "self, task, observation, tools", True),
        ("@staticmethod", "*anything", True),
        ("", "self, task, observation, tools, style=''", True),
        ("", "self, task, observation", False),
        ("@staticmethod", "task, observation", False),
        ("", "self, task, observation, tools, style", False),
    ],
)
def test_an_agent_must_be_able_to_open_with_the_tools(site, decorator, parameters, good):
    site.add("dist-a", AGENT.format(decorator=decorator, parameters=parameters), entry="shop")
    plugins = Plugins.load(warn=False)
    (record,) = [r for r in plugins.records if r.name == "shop"]
    assert (record.state == "loaded") == good
    assert good or "start(self, task, observation, tools)" in (record.error or "")


def test_a_file_plugin_loads_once_and_its_functions_can_be_found_from_another_process(site, tmp_path):
    own = tmp_path / "my_world.py"
    own.write_text(GOOD.format(name="mine"))
    plugins = Plugins.load()
    first = plugins.load_path("my_world.py", base=tmp_path)
    assert plugins.load_path(own) is first
    target = plugins.registry("environments").find("my_world:mine").target
    assert target == f"{own}:make"
    code = f"from agentfly_core.registry import import_target; print(import_target({target!r})(x=1))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "{'x': 1}"
    assert import_target(target).__module__ == plugins.registry("environments").get("mine").__module__


def test_a_failing_file_plugin_is_an_error_each_time_until_it_is_mended(site, tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("x = 1\nraise RuntimeError('broken')\n")
    plugins = Plugins.load()
    for _ in range(2):
        with pytest.raises(UsageError, match=r"mine\.py: RuntimeError: broken \(line 2\)$"):
            plugins.load_path(own)
    own.write_text(GOOD.format(name="mended") + "# longer, so that no stale byte code is taken\n")
    assert plugins.load_path(own).state == "loaded"
    assert "mended" in plugins.registry("environments").names()
    assert [r.target for r in plugins.records].count(str(own)) == 1
    with pytest.raises(UsageError, match=r"absent\.py does not exist"):
        plugins.load_path(tmp_path / "absent.py")
    with pytest.raises(UsageError, match="ModuleNotFoundError"):
        plugins.load_path("af_no_such_module")


def test_a_disabled_plugin_asked_for_by_module_is_an_error(site, monkeypatch):
    module = site.add("dist-a", GOOD.format(name="maze"), entry="one")
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "one")
    with pytest.raises(UsageError, match=f"plugin {module} is disabled"):
        Plugins.load().load_path(module)


def test_a_registration_that_is_an_instance_has_no_target():
    with pytest.raises(UsageError, match="another process cannot find it"):
        _ = Registration("tools", "x", SimpleNamespace(), "p", "d").target


def test_threads_that_import_one_file_at_once_all_get_it_whole(tmp_path: Path) -> None:
    file = tmp_path / "slow_to_import.py"
    file.write_text("import time\ntime.sleep(0.2)\ndef thing(): ...\n")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(import_target, [f"{file}:thing"] * 8))
    assert {f.__name__ for f in found} == {"thing"}
    assert len(set(map(id, found))) == 1
