from agentfly_core import hookimpl


@hookimpl
def register_tools(register):
    register(42, name="forty_two")
