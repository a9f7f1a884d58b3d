"""Requests, and who runs in a step: continuous batching over the cache. Standard library only."""
