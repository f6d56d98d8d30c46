"""Encoder inputs without an encoder: a tiny text model that says it takes images, and a registry that says how large.

The scheduler asks its model configuration whether there are encoder inputs and its multimodal registry (a constructor
argument) for their size; both answers are given here.  Rejected: a real multimodal model folder (seconds of start-up,
processors and torchvision) for two numbers.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

IMAGE_TOKENS = 4


def with_encoder(model: Any, encoder_decoder: bool) -> Any:
    """The same model configuration, which now says that it takes images."""
    base = type(model)
    multimodal = importlib.import_module("vllm.config").MultiModalConfig()
    answers = {
        "supports_multimodal_inputs": True,
        "is_multimodal_model": True,
        "is_encoder_decoder": encoder_decoder,
        "get_multimodal_config": lambda self: multimodal,
    }
    model.__dict__.pop("is_encoder_decoder", None)
    object.__setattr__(model, "__class__", type(base.__name__, (base,), answers))
    return model


class Sizes:
    """A multimodal registry that knows one modality."""

    supported_mm_limits: ClassVar[dict[str, int | None]] = {"image": None}
    allowed_mm_limits: ClassVar[dict[str, int]] = {"image": 4}

    @property
    def info(self) -> Sizes:
        return self

    def create_processor(self, model: Any, *args: Any, **kwargs: Any) -> Sizes:
        self.ctx = SimpleNamespace(model_config=model)
        return self

    def supports_multimodal_inputs(self, *args: Any, **kwargs: Any) -> bool:
        return True

    def get_mm_max_tokens_per_item(self, *args: Any, **kwargs: Any) -> dict[str, int]:
        return {"image": IMAGE_TOKENS}

    def processor_only_cache_from_config(self, *args: Any, **kwargs: Any) -> None:
        return None

    get_max_tokens_per_item_by_modality = get_mm_max_tokens_per_item
    get_max_tokens_per_item_by_nonzero_modality = get_mm_max_tokens_per_item


def images(names: Sequence[str], encoder_decoder: bool) -> list[Any]:
    """Features of the images of that name, one behind the other."""
    inputs = importlib.import_module("vllm.multimodal.inputs")
    return [
        inputs.MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=name,
            mm_position=inputs.PlaceholderRange(
                offset=0 if encoder_decoder else 1 + i * IMAGE_TOKENS, length=IMAGE_TOKENS
            ),
        )
        for i, name in enumerate(names)
    ]
