"""The recipes ``scienceworld:qwen`` and ``scienceworld:smoke``."""
