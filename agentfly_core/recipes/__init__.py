"""The recipe: its schema, reading, checking and putting its parts together."""
