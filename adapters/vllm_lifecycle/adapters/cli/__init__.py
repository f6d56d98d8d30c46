"""The command line `vllm-lifecycle`: thin, and light to import (no engine, solver or vLLM before a command needs it)."""
