"""vLLM's own scheduler and connector tests, run with another scheduler class in the place of vLLM's."""
