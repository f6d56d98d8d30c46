"""The verified scheduler inside vllm-omni 0.16.0: vLLM 0.16.0's behaviour (v016.py), hand-offs and chunks (scheduler.py)."""
