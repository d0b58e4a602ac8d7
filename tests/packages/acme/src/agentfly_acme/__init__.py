"""A shop: a tool, a reward, an agent and an algorithm, as another author would write them."""

from agentfly_core import hookimpl

AGENTFLY_API = (1, 1)


@hookimpl
def register_tools(register):
    from agentfly_acme.shop import price

    register(price)


@hookimpl
def register_rewards(register):
    from agentfly_acme.shop import right_price

    register(right_price)


@hookimpl
def register_agents(register):
    register("agentfly_acme.agent:ShopAgent", name="shop", summary="Calls tools as a shop assistant.")


@hookimpl
def register_algorithms(register):
    register("agentfly_acme.algorithm:MeanBaseline", name="mean-baseline", summary="Reward minus the batch mean.")
