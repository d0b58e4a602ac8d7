from __future__ import annotations

import subprocess
import sys

import pytest

from agentfly_core import hookspecs
from agentfly_core.plugins import PluginRecord, Plugins, discover, summary
from agentfly_core.types import UnknownName

GOOD = """
from agentfly_core.hookspecs import hookimpl

def make(**options):
    "Makes one."
    return options

@hookimpl
def register_environments(register):
    register(make, name="{name}")
"""


def record(plugins: Plugins, name: str) -> PluginRecord:
    return next(r for r in plugins.records if r.name == name)


def test_a_plugin_is_found_loaded_and_attributed(site):
    site.add("dist-a", GOOD.format(name="maze"), entry="mazes")
    plugins = Plugins.load()
    found = plugins.registry("environments").find("maze")
    assert (found.plugin, found.distribution, found.summary) == ("mazes", "dist-a", "Makes one.")
    assert plugins.registry("environments").get("mazes:maze")(a=1) == {"a": 1}
    row = next(r for r in summary(plugins) if r["name"] == "mazes")
    assert (row["state"], row["version"], row["provides"]["environments"]) == ("loaded", "1.5", ["maze"])


def test_the_builtins_are_a_plugin_like_any_other():
    plugins = Plugins.load(warn=False)
    assert plugins.records[0].name == "core"
    assert plugins.records[0].state == "loaded"
    assert plugins.registry("tools").find("core:calculator").distribution == "agentfly-core"


def test_metadata_alone_runs_no_code(site):
    module = site.add("dist-a", "raise RuntimeError('ran')", entry="loud")
    found = {r.name: r for r, _ in discover()}
    assert (found["loud"].state, found["loud"].target) == ("found", module)
    assert module not in sys.modules


BROKEN = {
    "raises at import": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "exits at import": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "syntax error": ("def (", "SyntaxError"),
    "absent import": ("import af_no_such_module", "af_no_such_module"),
    "error without a message": (
        "class Bad(Exception):\n    def __str__(self): raise ValueError\nraise Bad",
        "Bad: (its message cannot be shown)",
    ),
    "raises in a hook": (
        GOOD.format(name="fine") + "@hookimpl\ndef register_tools(register): raise KeyError('x')\n",
        "KeyError: 'x'",
    ),
    "exits in a hook": (
        "from agentfly_core.hookspecs import hookimpl\n@hookimpl\ndef register_tools(register): raise SystemExit(1)",
        "SystemExit: 1",
    ),
    "junk": (
        "from agentfly_core.hookspecs import hookimpl\n"
        "@hookimpl\ndef register_tools(register): register(42, name='forty_two')",
        "'forty_two' must be a Tool",
    ),
    "a bare function as a tool": (
        "from agentfly_core.hookspecs import hookimpl\n"
        "def f(): pass\n@hookimpl\ndef register_tools(register): register(f, name='f')",
        "decorate the function with @tool",
    ),
    "no name": (
        "from agentfly_core.hookspecs import hookimpl\n"
        "@hookimpl\ndef register_environments(register): register(lambda: 0)",
        "needs a name",
    ),
    "colon in the name": (GOOD.format(name="a:b"), "without ':'"),
    "white space in the name": (GOOD.format(name="a b"), "white space"),
    "one name twice": (GOOD.format(name="n") + "    register(make, name='n')\n", "registers 'n' twice"),
    "bad import path": (
        "from agentfly_core.hookspecs import hookimpl\n"
        "@hookimpl\ndef register_tools(register): register('os.path', name='p')",
        "module:attribute",
    ),
    "wrong argument name": (
        "from agentfly_core.hookspecs import hookimpl\n@hookimpl\ndef register_tools(registrar): pass",
        "registrar",
    ),
    "misspelt hook": (
        "from agentfly_core.hookspecs import hookimpl\n@hookimpl\ndef register_tolls(register): pass",
        "did you mean 'register_tools'?",
    ),
    "hook without the marker": ("def register_tools(register): pass", "lacks @hookimpl"),
    "async hook": (
        "from agentfly_core.hookspecs import hookimpl\n@hookimpl\nasync def turn_finished(turn): pass",
        "must be a plain function",
    ),
    "wrapper": (
        "from agentfly_core.hookspecs import hookimpl\n"
        "@hookimpl(wrapper=True)\ndef register_tools(register):\n    return (yield)",
        "hook wrapper",
    ),
    "no hook at all": ("x = 1", "implements no hook"),
    "odd API version": (GOOD.format(name="n") + "AGENTFLY_API = '1'\n", "AGENTFLY_API must be a pair"),
    "API range upside down": (GOOD.format(name="n") + "AGENTFLY_API = (2, 1)\n", "AGENTFLY_API must be a pair"),
}


@pytest.mark.parametrize(("code", "cause"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plugin_is_reported_and_harms_no_other(site, code, cause):
    site.add("aa-first", GOOD.format(name="before"))
    site.add("mm-broken", code)
    site.add("zz-last", GOOD.format(name="after"))
    with pytest.warns(UserWarning, match="plugin 'mm-broken'"):
        plugins = Plugins.load()
    broken = record(plugins, "mm-broken")
    assert broken.state == "failed"
    assert cause in broken.error
    assert "\n" not in broken.error
    assert "Traceback" in broken.traceback
    assert broken.registrations == []
    names = plugins.registry("environments").names()
    assert {"before", "after"} <= set(names)
    assert {"fine", "n"}.isdisjoint(names)
    assert "mm-broken (mm-broken)" not in [name for name, _ in plugins.manager.list_name_plugin()]


def test_an_interrupt_during_import_is_not_held_back(site):
    site.add("dist-a", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        Plugins.load()


INSTANCE = """
from agentfly_core.hookspecs import hookimpl

class Plugin:
    @hookimpl
    def register_environments(self, register):
        register(self.make, name="bound")

    def make(self):
        return 7

plugin = Plugin()
"""


def test_an_instance_is_a_plugin_and_its_class_is_not(site):
    site.add("dist-a", INSTANCE, entry="good", value="{m}:plugin")
    site.add("dist-b", INSTANCE, entry="bad", value="{m}:Plugin")
    site.add("dist-c", INSTANCE + "Plugin.__hash__ = None\n", entry="unhashable", value="{m}:plugin")
    site.add("dist-d", INSTANCE, entry="absent", value="{m}:other")
    plugins = Plugins.load(warn=False)
    assert plugins.registry("environments").get("bound")() == 7
    assert "a plugin is a module or an instance" in record(plugins, "bad").error
    assert "must be hashable" in record(plugins, "unhashable").error
    assert "other" in record(plugins, "absent").error


def test_two_entry_points_to_one_object_leave_the_first_alone(site):
    site.add(
        "dist-a", GOOD.format(name="maze") + "@hookimpl\ndef update_finished(step): seen.append(step)\nseen = []\n"
    )
    module = next(r.target for r, _ in discover() if r.name == "dist-a")
    site.metadata("dist-b", f"[agentfly]\nzz-again = {module}\n")
    plugins = Plugins.load(warn=False)
    assert record(plugins, "zz-again").error.endswith("loaded already as plugin dist-a (dist-a)")
    plugins.notify("update_finished", step=3, metrics={})
    assert sys.modules[module].seen == [3]
    assert plugins.registry("environments").find("maze").plugin == "dist-a"


def test_a_malformed_entry_points_file_harms_no_other(site):
    site.metadata("dist-bad", "[agentfly]\nnonsense\n")
    site.metadata("dist-unrelated", "[console_scripts]\nnonsense\n")
    site.add("dist-a", GOOD.format(name="maze"))
    plugins = Plugins.load(warn=False)
    assert "maze" in plugins.registry("environments").names()
    assert "dist-unrelated" not in {r.distribution for r in plugins.records}
    if bad := [r for r in plugins.records if r.distribution == "dist-bad"]:  # newer Pythons skip such lines
        assert bad[0].state == "failed"
        assert "entry_points.txt is malformed" in bad[0].error


@pytest.mark.parametrize(
    ("declared", "ours", "state", "side"),
    [
        ("(2, 3)", 1, "incompatible", "upgrade agentfly-core"),
        ("(1, 1)", 2, "incompatible", "upgrade dist-a"),
        ("(1, 2)", 2, "loaded", ""),
        (None, 1, "loaded", ""),
        (None, 2, "incompatible", "upgrade dist-a"),
    ],
)
def test_the_api_version_decides_and_says_which_side_to_upgrade(site, monkeypatch, declared, ours, state, side):
    monkeypatch.setattr(hookspecs, "PLUGIN_API_VERSION", ours)
    site.add("dist-a", GOOD.format(name="maze") + (f"AGENTFLY_API = {declared}\n" if declared else ""))
    plugins = Plugins.load(warn=False)
    found = record(plugins, "dist-a")
    assert found.state == state
    assert side in found.error
    assert ("maze" in plugins.registry("environments").names()) == (state == "loaded")


def test_environment_variables_limit_what_loads(site, monkeypatch):
    for name in ("one", "two"):
        site.add(f"dist-{name}", GOOD.format(name=name), entry=name)

    def states() -> dict[str, str]:
        return {r.name: r.state for r in Plugins.load(warn=False).records if r.name in ("core", "one", "two")}

    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "two")
    assert states() == {"core": "loaded", "one": "loaded", "two": "disabled"}
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "all")
    assert states() == {"core": "loaded", "one": "disabled", "two": "disabled"}
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "")
    monkeypatch.setenv("AGENTFLY_LOAD_PLUGINS", " two , ")
    assert states() == {"core": "loaded", "one": "disabled", "two": "loaded"}
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "two")
    assert states() == {"core": "loaded", "one": "disabled", "two": "disabled"}
    with pytest.raises(UnknownName, match=r"plugin 'two' .* is disabled"):
        Plugins.load(warn=False).registry("environments").find("two")
    monkeypatch.setenv("AGENTFLY_LOAD_PLUGINS", "tow")
    with pytest.warns(UserWarning, match="no installed plugin has the name 'tow'"):
        Plugins.load()


def test_listing_plugins_imports_nothing_heavy():
    code = (
        "import sys; from agentfly_core.plugins import Plugins; Plugins.load();"
        "print([m for m in ('torch','transformers','ray','vllm','numpy','pyarrow','tokenizers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"
