"""What runs inside a sandbox. Standard library only: the sources are sent there as text (see ``sources``)."""
