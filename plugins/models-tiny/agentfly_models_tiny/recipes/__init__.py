"""The recipes ``tiny:calculator`` and ``tiny:rooms``, and those that made the model."""
