from agentfly_core import hookimpl

AGENTFLY_API = (99, 100)


@hookimpl
def register_tools(register):
    raise AssertionError("a plugin of another API version must not be asked for anything")
