"""OpenAI-compatible server without SGLang (the `wrapper` engine)."""
