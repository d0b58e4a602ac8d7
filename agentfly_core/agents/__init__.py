"""How a model's output becomes actions. The agents are in ``tool_calling`` and ``text_action``."""
