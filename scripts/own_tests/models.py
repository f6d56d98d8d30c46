"""Stand-ins for the hub models that vLLM's tests name: a cache folder with a configuration and a tokenizer each, no weights.

The sizes matter only where a scheduler looks (context length, image tokens); everything else is small.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_TEXT = {
    "vocab_size": 50272,
    "max_position_embeddings": 32768,
    "torch_dtype": "float16",
    "hidden_act": "silu",
}
_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}


def _llama(kind: str, architecture: str) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": kind,
        "intermediate_size": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        **_TEXT,
        **_SMALL,
    }


_OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "ffn_dim": 64,
    "word_embed_proj_dim": 64,
    "do_layer_norm_before": True,
    "activation_function": "relu",
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    **_TEXT,
    **_SMALL,
    "max_position_embeddings": 2048,
}
_LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "image_token_index": 32000,
    "image_token_id": 32000,
    "image_seq_length": 576,
    "projector_hidden_act": "gelu",
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
    "torch_dtype": "float16",
    "text_config": {
        **_llama("llama", "LlamaForCausalLM"),
        "max_position_embeddings": 4096,
        "vocab_size": 32064,
    },
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 336,
        "patch_size": 14,
        "projection_dim": 64,
    },
}
CONFIGS: dict[str, dict[str, Any]] = {
    "facebook/opt-125m": _OPT,
    "facebook/opt-350m": _OPT,
    "google/gemma-3-1b-it": _llama("llama", "LlamaForCausalLM"),
    "hmellor/tiny-random-LlamaForCausalLM": _llama("llama", "LlamaForCausalLM"),
    "Qwen/Qwen1.5-7B": _llama("qwen2", "Qwen2ForCausalLM"),
    "Qwen/Qwen3-0.6B": _llama("qwen3", "Qwen3ForCausalLM") | {"head_dim": 32},
    "meta-llama/Llama-3.2-1B-Instruct": _llama("llama", "LlamaForCausalLM"),
    "Qwen/Qwen2.5-VL-3B-Instruct": _LLAVA,  # its own class imports torchvision, and the tests want any with images
    "llava-hf/llava-1.5-7b-hf": _LLAVA,
}
_PROCESSOR = {
    "processor_class": "LlavaProcessor",
    "image_token": "<image>",
    "patch_size": 14,
    "vision_feature_select_strategy": "default",
    "num_additional_image_tokens": 1,
}
_IMAGES = {
    "image_processor_type": "CLIPImageProcessor",
    "processor_class": "LlavaProcessor",
    "crop_size": {"height": 336, "width": 336},
    "size": {"shortest_edge": 336},
    "do_resize": True,
    "do_center_crop": True,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "do_convert_rgb": True,
    "resample": 3,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def make_hub(hub: Path) -> None:
    """Write the stand-ins into a hub cache; needs the package tokenizers."""
    for name, config in CONFIGS.items():
        folder = hub / f"models--{name.replace('/', '--')}"
        snapshot = folder / "snapshots" / "stub"
        snapshot.mkdir(parents=True, exist_ok=True)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(snapshot.name)
        _write(snapshot / "config.json", config)
        _write(snapshot / "generation_config.json", {})
        if config is _LLAVA:
            _write(snapshot / "processor_config.json", _PROCESSOR)
            _write(snapshot / "preprocessor_config.json", _IMAGES)
        _tokenizer(snapshot)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def _tokenizer(snapshot: Path) -> None:
    """One token per byte, and a few special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    special = {"<s>": 256, "</s>": 257, "<pad>": 258, "<image>": 32000}
    made = Tokenizer(models.BPE({**letters, **special}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*special])
    made.save(str(snapshot / "tokenizer.json"))
    _write(
        snapshot / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "image_token": "<image>",
            "extra_special_tokens": {"image_token": "<image>"},
            "model_max_length": 2048,
        },
    )
