"""``python -m agentfly_core``."""

from agentfly_core.cli import main

if __name__ == "__main__":
    main()
