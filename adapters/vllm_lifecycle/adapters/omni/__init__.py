"""What vllm-omni adds to the explorer: hand-offs to a next stage and input in chunks from a former one.

Recognised by the target's class (see `vllm.extension`); importing this package needs neither vLLM nor vllm-omni.
"""
