"""Builds schedulers, requests and answers of the installed vLLM from a `Setup`: no weights, no tokenizer, no worker.

Configurations are made once per setup and shared by the two sides (schedulers do not write to them); everything that holds
state (scheduler, connectors, structured output manager, requests) is made for each side.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.differential.grammar import Manager
from tests.differential.settings import Add, Setup

from vllm_lifecycle.adapters.vllm.config import fitting
from vllm_lifecycle.adapters.vllm.encoder import Sizes, images, with_encoder

END_TOKEN, STOP_TOKEN = 98, 99
CONNECTOR = "tests.differential.connectors:PairedConnector"
ENCODER_CONNECTOR = "tests.differential.connectors:PairedEncoderConnector"
_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "torch_dtype": "float32",
}


class Publisher:
    """Takes the place of vLLM's publishers of cache events; the newest one belongs to the newest scheduler."""

    made: Publisher | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.batches: list[Any] = []
        Publisher.made = self

    def publish(self, events: Any) -> None:
        self.batches.append(events)

    def shutdown(self) -> None:
        """Nothing to shut down."""


@cache
def _names(function: Any) -> frozenset[str]:
    """What may be given by name; a class that passes on what it does not know takes what its bases take."""
    names: dict[str, inspect.Parameter] = {}
    for base in getattr(function, "__mro__", (function,)):
        own = inspect.signature(base).parameters
        names |= own
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in own.values()):
            break
    return frozenset(names)


def _only(function: Any, values: Mapping[str, Any]) -> Any:
    """Call with those of the arguments that the release has."""
    names = _names(function)
    return function(**{k: v for k, v in values.items() if k in names})


@cache
def model_folder() -> str:
    """A folder that serves as model: a configuration, no weights."""
    folder = Path(tempfile.mkdtemp(prefix="vllm-lifecycle-"))
    (folder / "config.json").write_text(json.dumps(_MODEL))
    return str(folder)


class Factory:
    """Makes what one setup needs."""

    def __init__(self, setup: Setup, connector: str = CONNECTOR) -> None:
        self.setup = setup
        self.connector = connector
        self.config = self._config()
        self.cache_config = self._cache_config()
        request = importlib.import_module("vllm.v1.request")
        self.request_cls, self.status = request.Request, request.RequestStatus
        self.outputs = importlib.import_module("vllm.v1.outputs")
        self.parameters = importlib.import_module("vllm.sampling_params")
        self.hasher = self._hasher()

    def _config(self) -> Any:
        c, s = importlib.import_module("vllm.config"), self.setup
        model = c.ModelConfig(
            model=model_folder(), skip_tokenizer_init=True, dtype="float32", max_model_len=s.model_length
        )
        if s.encoder:
            model = with_encoder(model, s.encoder == "encoder-decoder")
        scheduler = fitting(
            c.SchedulerConfig,
            max_num_seqs=s.slots,
            max_num_batched_tokens=s.budget,
            max_model_len=s.model_length,
            is_encoder_decoder=False,
            enable_chunked_prefill=s.chunked,
            long_prefill_token_threshold=s.long_prefill,
            disable_chunked_mm_input=s.whole_images,
            async_scheduling=s.asynchronous,
            policy=s.policy,
        )
        scheduler.enable_chunked_prefill = s.chunked
        if s.encoder:
            scheduler.encoder_cache_size = scheduler.max_num_encoder_input_tokens = s.encoder_tokens
        cache_config = fitting(
            c.CacheConfig, block_size=s.block_size, enable_prefix_caching=s.caching, swap_space=0
        )
        cache_config.num_gpu_blocks = s.blocks
        parts: dict[str, Any] = {
            "model_config": model,
            "cache_config": cache_config,
            "scheduler_config": scheduler,
            "device_config": c.DeviceConfig("cpu"),
            "parallel_config": c.ParallelConfig(pipeline_parallel_size=s.stages),
        }
        if s.connector:
            module, _, name = self.connector.partition(":")
            parts["kv_transfer_config"] = fitting(
                c.KVTransferConfig,
                kv_connector=name,
                kv_connector_module_path=module,
                kv_role="kv_both",
                kv_load_failure_policy=s.load_failures,
            )
        if s.adapters:
            parts["lora_config"] = fitting(c.LoRAConfig, max_loras=s.adapters, max_lora_rank=16)
        if s.drafts:
            parts["speculative_config"] = c.SpeculativeConfig(
                method="ngram", num_speculative_tokens=s.drafts, prompt_lookup_max=2, prompt_lookup_min=1
            )
            scheduler.async_scheduling = False  # refused together with this method; the drafts are played
        if s.events:
            parts["kv_events_config"] = c.KVEventsConfig(enable_kv_cache_events=True, publisher="zmq")
        config = c.VllmConfig(**parts)
        config.scheduler_config.async_scheduling = s.asynchronous  # the CPU platform switches it off
        if s.look_ahead:  # what a drafting model would ask for; none is loaded
            object.__setattr__(config.speculative_config, "method", "eagle")
        if s.encoder_connector:
            module, _, name = ENCODER_CONNECTOR.partition(":")
            config.ec_transfer_config = c.ECTransferConfig(
                ec_connector=name, ec_connector_module_path=module, ec_role="ec_consumer"
            )
        return config

    def _cache_config(self) -> Any:
        i = importlib.import_module("vllm.v1.kv_cache_interface")
        import torch

        shape = {
            "block_size": self.setup.block_size,
            "num_kv_heads": 1,
            "head_size": 1,
            "dtype": torch.float32,
            "use_mla": False,
        }
        specs = [fitting(i.FullAttentionSpec, **shape)]
        if self.setup.window:
            window = self.setup.window * self.setup.block_size
            specs.append(fitting(i.SlidingWindowSpec, **shape, sliding_window=window))
        if self.setup.encoder == "encoder-decoder":
            specs.append(fitting(i.CrossAttentionSpec, **shape))
        groups = [i.KVCacheGroupSpec([f"layer{g}"], spec) for g, spec in enumerate(specs)]
        return i.KVCacheConfig(num_blocks=self.setup.blocks, kv_cache_tensors=[], kv_cache_groups=groups)

    def _hasher(self) -> Any:
        utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        sha256 = importlib.import_module("vllm.utils.hashing").sha256
        utils.init_none_hash(sha256)
        return utils.get_request_block_hasher(self.setup.block_size, sha256)

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """The event publisher, and the runner that vLLM reads from the environment, in place while a scheduler is built."""
        factory = importlib.import_module("vllm.distributed.kv_events").EventPublisherFactory
        kept, runner = dict(factory._registry), os.environ.get("VLLM_USE_V2_MODEL_RUNNER")
        factory._registry.update(zmq=Publisher)
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(self.setup.second_runner))
        try:
            yield
        finally:
            factory._registry.update(kept)
            del os.environ["VLLM_USE_V2_MODEL_RUNNER"]
            if runner is not None:
                os.environ["VLLM_USE_V2_MODEL_RUNNER"] = runner

    def scheduler(self, cls: type[Any], manager: Manager) -> tuple[Any, Publisher | None]:
        """A fresh scheduler of the class, and where its cache events go."""
        Publisher.made = None
        with self._environment():
            made = fitting(
                cls,
                vllm_config=self.config,
                kv_cache_config=self.cache_config,
                structured_output_manager=manager,
                block_size=self.setup.block_size,
                include_finished_set=self.setup.finished_sets,
                log_stats=self.setup.log_stats,
                **({"mm_registry": Sizes()} if self.setup.encoder else {}),
            )
        return made, Publisher.made

    def shared(self, add: Add) -> dict[str, Any]:
        """The objects of a request that both sides are given."""
        made: dict[str, Any] = {"sampling_params": None, "pooling_params": None}
        if add.pooling:
            made["pooling_params"] = self._pooling()
            if add.skip_cache:
                made["pooling_params"].skip_reading_prefix_cache = True
        else:
            made["sampling_params"] = self._sampling(add)
        if add.adapter:
            made["lora_request"] = self._adapter(add.adapter)
        if add.images:
            names = [f"image-{add.picture}-{i}" for i in range(add.images)]
            made["mm_features"] = images(names, self.setup.encoder == "encoder-decoder")
        return made

    def _sampling(self, add: Add) -> Any:
        p = self.parameters
        more: dict[str, Any] = {}
        if add.grammar:
            more["structured_outputs"] = p.StructuredOutputsParams(regex="a")
        if add.logprobs:
            more |= {"logprobs": 1, "prompt_logprobs": 1}
        if add.skip_cache:
            more["skip_reading_prefix_cache"] = True
        made = p.SamplingParams(
            max_tokens=add.answer,
            min_tokens=min(add.min_answer, add.answer),
            stop_token_ids=[STOP_TOKEN],
            ignore_eos=add.ignore_eos,
            **more,
        )
        if "eos_token_id" not in _names(self.request_cls) and not add.ignore_eos:
            made.update_from_generation_config({}, END_TOKEN)
        return made

    def _pooling(self) -> Any:
        return importlib.import_module("vllm.pooling_params").PoolingParams(task="embed")

    def _adapter(self, number: int) -> Any:
        return importlib.import_module("vllm.lora.request").LoRARequest(
            lora_name=f"adapter{number}", lora_int_id=number, lora_path="none"
        )

    def request(self, add: Add, shared: Mapping[str, Any]) -> Any:
        """A request object of one side."""
        return _only(
            self.request_cls,
            {
                "request_id": add.rid,
                "prompt_token_ids": prompt(add),
                "eos_token_id": END_TOKEN,
                "client_index": add.client,
                "arrival_time": float(add.arrival),
                "priority": add.priority,
                "cache_salt": add.salt or None,
                "block_hasher": self.hasher,
                "trace_headers": None,
                **shared,
            },
        )

    @cached_property
    def answer_cls(self) -> Any:
        """The class of the worker's answers."""
        return self.outputs.ModelRunnerOutput

    def answer(self, **values: Any) -> Any:
        """A worker's answer."""
        return _only(self.answer_cls, values)

    def report(self, **values: Any) -> Any:
        """The connector part of an answer."""
        return _only(self.outputs.KVConnectorOutput, values)

    def drafts(self, ids: list[str], tokens: list[list[int]]) -> Any:
        """Drafts for the next step."""
        return self.outputs.DraftTokenIds(ids, tokens)


def prompt(add: Add) -> list[int]:
    """The prompt: the family's common start, then tokens that no other request has."""
    mine = crc32(add.rid.encode())
    return [1000 + add.family * 50 + i % 50 for i in range(add.shared)] + [
        2000 + (mine + i * 7) % 20000 for i in range(add.own)
    ]


def token(add: Add, position: int) -> int:
    """What the model samples at an output position: requests of one family say the same."""
    if position == add.eos:
        return END_TOKEN
    if position == add.stop:
        return STOP_TOKEN
    return 200 + (add.family * 17 + position * 3) % 400


@cache
def factory(setup: Setup) -> Factory:
    """The factory of a setup, made once."""
    return Factory(setup)
