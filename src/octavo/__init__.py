"""Octavo: an LLM inference engine whose KV cache is paged."""
