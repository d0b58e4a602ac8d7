"""What the core itself offers, registered through the hooks that every plugin uses."""

from __future__ import annotations

from typing import Any

from agentfly_core.hookspecs import PLUGIN_API_VERSION, Register, hookimpl

AGENTFLY_API = (PLUGIN_API_VERSION, PLUGIN_API_VERSION)


@hookimpl
def register_tools(register: Register[Any]) -> None:
    register(
        "agentfly_core.tools.calculator:calculator", name="calculator", summary="Evaluate an arithmetic expression."
    )
    register("agentfly_core.tools.answer:answer", name="answer", summary="Give the final answer and stop.")


@hookimpl
def register_rewards(register: Register[Any]) -> None:
    register(
        "agentfly_core.rewards.text:exact_match", name="exact_match", summary="1 if the response equals the answer."
    )
    register(
        "agentfly_core.rewards.numeric:numeric_match", name="numeric_match", summary="1 if the last number is right."
    )
    register("agentfly_core.rewards.text:format_match", name="format", summary="1 if the response has the wanted form.")
    register("agentfly_core.rewards.process:tool_use", name="tool_use", summary="Counts tool calls that worked.")
    register(
        "agentfly_core.rewards.process:environment_return", name="environment_return", summary="Sum of step rewards."
    )


@hookimpl
def register_agents(register: Register[Any]) -> None:
    register("agentfly_core.agents.tool_calling:ToolCallingAgent", name="tool-calling", summary="JSON tool calls.")
    register("agentfly_core.agents.text_action:TextActionAgent", name="text-action", summary="Raw text actions.")


@hookimpl
def register_environments(register: Register[Any]) -> None:
    at = "agentfly_core.environments"
    register(
        f"{at}.gymnasium:GymnasiumEnvironment", name="gymnasium", summary="Any environment with Gymnasium's interface."
    )
    register(f"{at}.textarena:TextArenaEnvironment", name="textarena", summary="A game of TextArena, one seat of it.")


@hookimpl
def register_algorithms(register: Register[Any]) -> None:
    at = "agentfly_core.algorithms"
    register(f"{at}.group:GRPO", name="grpo", summary="Group-relative advantages (2402.03300).")
    register(f"{at}.group:RLOO", name="rloo", summary="Leave-one-out baseline (2402.14740).")
    register(f"{at}.group:DrGRPO", name="dr_grpo", summary="Group mean, not divided (2503.20783).")
    register(f"{at}.reinforce:Reinforce", name="reinforce", summary="Discounted return, no baseline.")
    register(f"{at}.reinforce:ReinforcePlusPlus", name="reinforce++", summary="Whitened returns (2501.03262).")
    register(f"{at}.reinforce:ReinforcePlusPlusBaseline", name="reinforce++-baseline", summary="Group mean, whitened.")
    register(f"{at}.ppo:PPO", name="ppo", summary="Clipped objective with GAE (1707.06347).")
    register(f"{at}.turns:MTPPO", name="mt-ppo", summary="Turn-level credit (2505.11821).")


@hookimpl
def register_backends(register: Register[Any]) -> None:
    register("agentfly_core.backends.hf:HFBackend", name="hf", summary="transformers model in this process.")
    register("agentfly_core.backends.scripted:scripted_backend", name="scripted", summary="Replays given turns.")


@hookimpl
def register_learners(register: Register[Any]) -> None:
    register("agentfly_core.learners.local:LocalLearner", name="local", summary="Everything in one process.")


@hookimpl
def register_resources(register: Register[Any]) -> None:
    register("agentfly_core.resources.local:ObjectProvider", name="object", summary="An object in this process.")
    register("agentfly_core.resources.worker:WorkerProvider", name="worker", summary="An object in a spawned process.")
    register("agentfly_core.resources.sandboxes:ProcessProvider", name="process", summary="A sandboxed process.")
    register("agentfly_core.resources.sandboxes:DockerProvider", name="docker", summary="A Docker container.")


@hookimpl
def register_trackers(register: Register[Any]) -> None:
    register("agentfly_core.runs.trackers:TensorBoardSink", name="tensorboard", summary="TensorBoard event files.")
