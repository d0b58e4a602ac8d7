"""Token-in, token-out generation. The backends are in ``hf`` and ``scripted``; nothing heavy is imported here."""
