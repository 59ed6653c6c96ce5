"""An agent: a model that works through turns, its prompt, its answers and what they cost."""
