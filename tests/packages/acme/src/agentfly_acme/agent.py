from agentfly_core.agents.tool_calling import ToolCallingAgent


class ShopAgent(ToolCallingAgent):
    """The tool-calling agent under a name of its own."""

    name = "shop"
