"""The recipes ``alfworld:qwen`` and ``alfworld:smoke``."""
