from agentfly_core import hookimpl, tool


@tool(name="price")
def other_price(thing: str) -> str:
    """The price of a thing, elsewhere."""
    return f"{thing} is free here"


@hookimpl
def register_tools(register):
    register(other_price)
