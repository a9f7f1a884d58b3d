"""What travels over HTTP, as pydantic models: the OpenAI API's names, and vLLM's where that has none."""
