"""The engines, one for each language."""
