"""The step loop, text from tokens, and the synchronous and asynchronous fronts. No numpy, no HTTP."""
