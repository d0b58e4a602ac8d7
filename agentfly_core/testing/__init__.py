"""For authors of plugins: checks of what they write against its contract, and parts to try it with.

Each ``check_*`` raises one ``ConformanceError`` that lists all it found: what, where, how to mend it. Nothing heavy is
imported before a check needs it.
"""

from agentfly_core.backends.scripted import ScriptedBackend, ScriptedTurn
from agentfly_core.testing.agents import check_agent
from agentfly_core.testing.algorithms import check_algorithm
from agentfly_core.testing.backends import check_backend
from agentfly_core.testing.characters import CharacterTemplate, CharacterTokenizer
from agentfly_core.testing.coordinators import check_coordinator
from agentfly_core.testing.environments import check_environment
from agentfly_core.testing.playing import call, play
from agentfly_core.testing.plugins import check_plugin
from agentfly_core.testing.report import ConformanceError, Violation
from agentfly_core.testing.rewards import check_reward, finished_chain
from agentfly_core.testing.templates import check_template
from agentfly_core.testing.tools import check_tool

__all__ = [
    "CharacterTemplate",
    "CharacterTokenizer",
    "ConformanceError",
    "ScriptedBackend",
    "ScriptedTurn",
    "Violation",
    "call",
    "check_agent",
    "check_algorithm",
    "check_backend",
    "check_coordinator",
    "check_environment",
    "check_plugin",
    "check_reward",
    "check_template",
    "check_tool",
    "finished_chain",
    "play",
]
