"""vLLM's OpenAI-compatible server, but `--async-scheduling` is kept on a CPU: the same command line."""

import runpy

from tests.inference import cpu_async

if __name__ == "__main__":
    cpu_async.allow()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
