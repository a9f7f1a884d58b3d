"""The OpenAI-compatible HTTP server over `AsyncEngine`. HTTP stays in here; no numpy."""
