"""Builds a real vLLM scheduler on CPU from a `Scope`: no model weights, no tokenizer, no worker.

The only module, with `connector`, that imports vLLM; it does so when a `Workshop` is made.  A tiny Llama configuration
in a temporary folder serves as the model.  The configuration objects are made once per scope and shared by all
schedulers of an exploration; a scheduler is made anew for each replay (measured: 0.07 ms, against 1 ms and more for a
deep copy and 5 ms for a fork, so replay is how the search goes back).
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .encoder import Sizes, images, with_encoder
from .extension import extension_of
from .scope import Scope
from .verdicts import Judge

STOP_TOKEN = 99
SENTINEL_TOKEN = 98
"""The token that triggers a hand-off to a next stage."""
STOCK = "vllm.v1.core.sched.scheduler:Scheduler"
SHORT = {
    "vllm": STOCK,
    "vllm:async": "vllm.v1.core.sched.async_scheduler:AsyncScheduler",
    "vllm:omni": "vllm_omni.core.sched.omni_ar_scheduler:OmniARScheduler",
}
"""Short names of schedulers that others wrote."""
SCRIPTED = "vllm_lifecycle.adapters.vllm.connector:ScriptedConnector"
STATE_CACHE = "align"
"""How the state of state-space layers is cached: at block boundaries."""
_TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "torch_dtype": "float32",
}


class Unusable(Exception):
    """The target or the environment cannot be explored; the message is one line with the repair."""


def vllm_version() -> str:
    """The release installed; raises Unusable when there is none."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        import vllm
    except ImportError as error:
        raise Unusable(f"vllm is not installed: run scripts/vllm-env 0.32.0 ({error})") from None
    return str(vllm.__version__)


def load(target: str) -> type[Any]:
    """The class named `pkg.mod:Class` or `pkg.mod.Class`; raises Unusable when there is none."""
    module, _, name = target.partition(":") if ":" in target else target.rpartition(".")
    if not module or not name:
        raise Unusable(f"{target!r} names no class: write pkg.mod:Class")
    try:
        found = getattr(importlib.import_module(module), name)
    except AttributeError:
        raise Unusable(f"{module} has no class {name}") from None
    except Exception as error:
        raise Unusable(f"cannot import {module}: {type(error).__name__}: {error}") from None
    if not inspect.isclass(found):
        raise Unusable(f"{target} is a {type(found).__name__}, not a class: name a class")
    return found


def load_class(target: str) -> type[Any]:
    """The scheduler class of that name; raises Unusable when it is none."""
    found = load(target)
    missing = [
        n
        for n in ("add_request", "schedule", "update_from_output", "finish_requests")
        if not hasattr(found, n)
    ]
    if missing:
        raise Unusable(f"{target} is not a scheduler: it lacks {', '.join(missing)}")
    return found


def fitting(function: Any, **values: Any) -> Any:
    """Call with those of the keyword arguments that the function takes (releases differ)."""
    names = _parameters(function)
    return function(**{k: v for k, v in values.items() if k in names})


def _parameters(function: Any) -> set[str]:
    """Names of the keyword arguments; a constructor that passes on `**kwargs` takes those of its base too."""
    found: set[str] = set()
    makers = [function, *(inspect.getmro(function)[1:] if inspect.isclass(function) else ())]
    for maker in makers:
        parameters = inspect.signature(maker).parameters.values()
        found |= {p.name for p in parameters}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found


def _for_class(cls: type[Any], scope: Scope) -> Scope:
    """The scope as the class needs it: an asynchronous scheduler runs one step ahead of its worker.

    It derives from vLLM's own, or says so of itself by a true `AHEAD`.
    """
    base = importlib.import_module("vllm.v1.core.sched.async_scheduler").AsyncScheduler
    ahead = issubclass(cls, base) or getattr(cls, "AHEAD", None)
    return replace(scope, asynchronous=True, depth=2) if ahead else scope


def _speculation(c: Any, scope: Scope) -> Any:
    """Speculative decoding by a method that the release knows; raises ValueError when it knows none."""
    options = {"num_speculative_tokens": scope.drafts, "prompt_lookup_max": 2, "prompt_lookup_min": 1}
    if scope.asynchronous:
        with suppress(ValueError):
            return c.SpeculativeConfig(method="ngram_gpu", **options)
    return c.SpeculativeConfig(method="ngram", **options)


class Workshop:
    """Makes schedulers, requests and worker outputs of the installed release for one scope."""

    def __init__(self, target: str, scope: Scope) -> None:
        self.version = vllm_version()
        for name in ("vllm", "vllm.v1.core.sched.scheduler", "vllm_lifecycle"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self.cls = load_class(target)
        self.extension = extension_of(self.cls)
        self.scope = _for_class(self.cls, scope)
        self._sampling: dict[tuple[int, bool], Any] = {}
        try:
            self.vllm_config = self._vllm_config()
        except (ValueError, NotImplementedError) as error:
            lines = [line.strip() for line in str(error).splitlines()]
            raise Unusable(f"vLLM refuses the configuration: {' '.join(lines[:3])}") from None
        self.kv_cache_config = self._kv_cache_config()
        self.structured = self._structured_output()
        self.hasher = self._hasher()
        request = importlib.import_module("vllm.v1.request")
        self.request_cls, self.status = request.Request, request.RequestStatus
        self._request_names = _parameters(request.Request)
        outputs = importlib.import_module("vllm.v1.outputs")
        self.answer_cls, self.report_cls = outputs.ModelRunnerOutput, outputs.KVConnectorOutput
        self.draft_cls = outputs.DraftTokenIds
        self._answer_names = set(inspect.signature(self.answer_cls).parameters)
        self._report_names = set(inspect.signature(self.report_cls).parameters)

    @cached_property
    def offers(self) -> frozenset[str]:
        """Optional features of the installed release that the class does not refuse: pause, sessions, failures by request."""
        seams = {
            "pause": hasattr(self.cls, "set_pause_state"),
            "sessions": "resumable" in self._request_names,
            "failed receives": "failed_recving" in self._report_names,
        }
        refused = getattr(self.cls, "REFUSES", ())
        return frozenset(name for name, there in seams.items() if there and name not in refused)

    @cached_property
    def judge(self) -> Judge:
        """The claims of the specification, ready for this scope."""
        return Judge(self.scope, frozenset(self.extension.bound))

    def _vllm_config(self) -> Any:
        c = importlib.import_module("vllm.config")
        s = self.scope
        folder = Path(tempfile.mkdtemp(prefix="vllm-lifecycle-"))
        (folder / "config.json").write_text(json.dumps(_TINY_LLAMA))
        model = c.ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=s.model_length
        )
        if s.encoder:
            model = with_encoder(model, s.encoder == "encoder-decoder")
        scheduler = fitting(
            c.SchedulerConfig,
            max_num_seqs=s.slots,
            max_num_batched_tokens=s.token_budget,
            max_model_len=s.model_length,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            async_scheduling=s.asynchronous,
            policy=s.policy,
        )
        if s.encoder:
            scheduler.encoder_cache_size = scheduler.max_num_encoder_input_tokens = s.encoder_tokens
        cache = fitting(c.CacheConfig, block_size=s.block_size, enable_prefix_caching=True, swap_space=0)
        cache.num_gpu_blocks = s.blocks + 1
        if s.state_space:
            if not hasattr(cache, "mamba_cache_mode"):
                raise Unusable("this release does not cache the state of state-space layers per block")
            cache.mamba_cache_mode = STATE_CACHE
        stages = 1 if s.asynchronous else s.depth
        parts: dict[str, Any] = {
            "model_config": model,
            "cache_config": cache,
            "scheduler_config": scheduler,
            "device_config": c.DeviceConfig("cpu"),
            "parallel_config": c.ParallelConfig(pipeline_parallel_size=stages),
        }
        if s.connector:
            module, _, name = (s.connector_class or SCRIPTED).partition(":")
            parts["kv_transfer_config"] = fitting(
                c.KVTransferConfig,
                kv_connector=name,
                kv_connector_module_path=module,
                kv_role="kv_both",
                **({"kv_load_failure_policy": s.load_failures} if s.load_failures else {}),
            )
        if s.adapters:
            parts["lora_config"] = fitting(c.LoRAConfig, max_loras=1, max_lora_rank=16, lora_dtype="auto")
        if s.drafts:
            parts["speculative_config"] = _speculation(c, s)
            if parts["speculative_config"].method == "ngram":  # refused together; the driver plays the drafts
                scheduler.async_scheduling = False
        config = c.VllmConfig(**parts)
        config.scheduler_config.async_scheduling = s.asynchronous  # the CPU platform switches it off
        if s.state_space:
            config.cache_config.mamba_cache_mode = (
                STATE_CACHE  # vLLM takes it from the model, which has no such layers here
            )
        if s.look_ahead:  # what a drafting model would ask for; none is loaded
            object.__setattr__(config.speculative_config, "method", "eagle")
        self.extension.configure(config, s)
        return config

    def _kv_cache_config(self) -> Any:
        i = importlib.import_module("vllm.v1.kv_cache_interface")
        import torch

        def spec(group: int) -> Any:
            shape = {
                "block_size": self.scope.block_size,
                "num_kv_heads": 1,
                "head_size": 1,
                "dtype": torch.float32,
            }
            if group and self.scope.state_space:
                state = {"shapes": ((1,),), "dtypes": (torch.float32,), "mamba_cache_mode": STATE_CACHE}
                return fitting(i.MambaSpec, block_size=self.scope.block_size, **state)
            if group:
                return fitting(
                    i.SlidingWindowSpec, **shape, sliding_window=self.scope.block_size * 4, use_mla=False
                )
            return fitting(i.FullAttentionSpec, **shape, use_mla=False)

        groups = [i.KVCacheGroupSpec([f"layer{g}"], spec(g)) for g in range(self.scope.groups)]
        return i.KVCacheConfig(num_blocks=self.scope.blocks + 1, kv_cache_tensors=[], kv_cache_groups=groups)

    def _structured_output(self) -> Any:
        return importlib.import_module("vllm.v1.structured_output").StructuredOutputManager(self.vllm_config)

    def _hasher(self) -> Any:
        utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        for module in ("vllm.utils.hashing", "vllm.utils"):
            function = getattr(importlib.import_module(module), "sha256", None)
            if function is not None:
                break
        else:
            raise Unusable(
                "cannot find the prefix-cache hash: looked for vllm.utils.hashing.sha256, vllm.utils.sha256"
            )
        utils.init_none_hash(function)
        return utils.get_request_block_hasher(self.scope.block_size, function)

    def scheduler(self) -> Any:
        """A fresh scheduler; raises Unusable when the class refuses the configuration."""
        try:
            with self.extension.building():
                return fitting(
                    self.cls,
                    vllm_config=self.vllm_config,
                    kv_cache_config=self.kv_cache_config,
                    structured_output_manager=self.structured,
                    block_size=self.scope.block_size,
                    log_stats=False,
                    **({"mm_registry": Sizes()} if self.scope.encoder else {}),
                )
        except Exception as error:
            raise Unusable(f"{self.cls.__name__}.__init__ raised {type(error).__name__}: {error}") from error

    def sampling(self, answer: int, grammar: bool) -> Any:
        """Sampling parameters of a request (shared: schedulers do not write to them)."""
        key = (answer, grammar)
        if key not in self._sampling:
            p = importlib.import_module("vllm.sampling_params")
            extra = {"structured_outputs": p.StructuredOutputsParams(regex="a")} if grammar else {}
            self._sampling[key] = p.SamplingParams(max_tokens=answer, stop_token_ids=[STOP_TOKEN], **extra)
        return self._sampling[key]

    def request(self, rid: str, tokens: list[int], answer: int, order: int, **more: Any) -> Any:
        """A request; `more` may hold priority, resumable, grammar, pooling, lora_request, mm_features."""
        pooling, grammar = bool(more.pop("pooling", False)), bool(more.pop("grammar", False))
        values = {
            "request_id": rid,
            "external_req_id": rid,
            "prompt_token_ids": tokens,
            "sampling_params": None if pooling else self.sampling(answer, grammar),
            "pooling_params": self.pooling if pooling else None,
            "eos_token_id": None,
            "arrival_time": float(order),
            "block_hasher": self.hasher,
            **more,
        }
        return self.request_cls(**{k: v for k, v in values.items() if k in self._request_names})

    @cached_property
    def pooling(self) -> Any:
        """Parameters of a pooling request: its output is one vector when its prompt is computed."""
        return importlib.import_module("vllm.pooling_params").PoolingParams(task="embed")

    @cached_property
    def vector(self) -> Any:
        """The output of a pooling request."""
        import torch

        return torch.zeros(1)

    def adapter(self, number: int) -> Any:
        """A LoRA adapter by number."""
        request = importlib.import_module("vllm.lora.request").LoRARequest
        return request(lora_name=f"adapter{number}", lora_int_id=number, lora_path="none")

    def images(self, count: int, family: int, picture: int) -> list[Any]:
        """Encoder inputs of a request: of its prompt's own, or from that picture of the gallery on."""
        first = "picture {}" if picture else f"image {{}} of {family}"
        names = [first.format(picture + i) for i in range(count)]
        return images(names, self.scope.encoder == "encoder-decoder")

    def answer(self, sampled: dict[str, list[int]], report: Any, pooled: frozenset[str] = frozenset()) -> Any:
        """A worker's answer for the ids of `sampled`, in that order; those of `pooled` have their vector."""
        values = {
            "req_ids": list(sampled),
            "req_id_to_index": {rid: i for i, rid in enumerate(sampled)},
            "sampled_token_ids": list(sampled.values()),
            "logprobs": None,
            "prompt_logprobs_dict": {},
            "pooler_output": [self.vector if rid in pooled else None for rid in sampled] if pooled else None,
            "kv_connector_output": report,
        }
        return self.answer_cls(**{k: v for k, v in values.items() if k in self._answer_names})

    def report(self, sent: set[str], received: set[str], failed: set[str], bad: set[int]) -> Any:
        """The connector part of a worker's answer."""
        values = {
            "finished_sending": sent,
            "finished_recving": received,
            "failed_recving": failed,
            "invalid_block_ids": bad,
        }
        return self.report_cls(**{k: v for k, v in values.items() if k in self._report_names and v})
