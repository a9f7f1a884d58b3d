"""Tool calls and reasoning: what is asked of the model, and what its text turns out to be."""
