from agentfly_core.agents.tool_calling import ToolCallingAgent


class ShopAgent(ToolCallingAgent):
    """The tool-calling agent under a name of its own, which opens with the names of its tools."""

    name = "shop"

    def start(self, task, observation, tools):
        greeting = {"role": "system", "content": f"You work in a shop. Tools: {', '.join(tools)}."}
        return [greeting, *super().start(task, observation, tools)]
