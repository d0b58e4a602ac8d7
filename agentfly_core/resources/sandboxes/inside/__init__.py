"""What runs inside a sandbox. Standard library only, Python 3.9 or newer; sent over as source (``..bundle``)."""
