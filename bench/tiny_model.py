"""A Llama of 300 KB, made on the spot: the model of the runs with real inference.

Weights are drawn from one seed, large enough that a token depends on all before it (a wrong KV block changes the text) and
that the best two candidates are seldom near: with float32 and temperature 0, runs whose batches are composed differently
still agree. The tokenizer has one token per byte, the printable ASCII characters first, and four special ones, so any text
and any grammar can be encoded.

Rejected: a model from a hub (no network in CI), and vLLM's dummy weights (all within a thousandth of zero: log probabilities
of all tokens are nearly equal and attention has no effect).
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LAYERS = 2
HIDDEN = 64
HEADS = 2
INNER = 128
SPECIAL = ("<s>", "</s>", "<pad>", "<unk>")
VOCABULARY = 256 + len(SPECIAL)
BOS, EOS, PAD = 256, 257, 258
MAX_LENGTH = 512


def _config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HIDDEN // HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": MAX_LENGTH,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "torch_dtype": "float32",
    }


def _weights(seed: int) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)

    def drawn(rows: int, columns: int, scale: float = 1.5) -> NDArray[np.float32]:
        return np.asarray(random.standard_normal((rows, columns)) * scale / columns**0.5, np.float32)

    ones = np.ones(HIDDEN, np.float32)
    named = {
        "model.embed_tokens.weight": drawn(VOCABULARY, HIDDEN, 8.0),
        "model.norm.weight": ones,
        "lm_head.weight": drawn(VOCABULARY, HIDDEN, 4.0),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        named |= {at + f"self_attn.{part}_proj.weight": drawn(HIDDEN, HIDDEN) for part in "qkvo"}
        named |= {at + f"mlp.{part}_proj.weight": drawn(INNER, HIDDEN) for part in ("gate", "up")}
        named |= {at + "mlp.down_proj.weight": drawn(HIDDEN, INNER)}
        named |= {at + "input_layernorm.weight": ones, at + "post_attention_layernorm.weight": ones}
    return named


def make(folder: Path, seed: int = 0) -> Path:
    """Writes the model into `folder`, made if need be, and returns it; needs `safetensors` and `transformers`."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config()), encoding="utf-8")
    save_file(_weights(seed), folder / "model.safetensors", metadata={"format": "pt"})
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    names = dict(zip(("bos_token", "eos_token", "pad_token", "unk_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder
