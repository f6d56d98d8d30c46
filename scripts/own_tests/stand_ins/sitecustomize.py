"""Lets the torchvision of an index be imported beside a torch for CPUs, in every process that vLLM's tests start.

Its compiled part does not fit there and stays out; the operations that it describes without it are declared before.
"""

import importlib.abc
import sys


class Before(importlib.abc.MetaPathFinder):
    """Finds nothing; declares the operations when torchvision is looked for."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """Nothing is found here."""
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            for name in ("nms", "qnms"):
                torch.library.define(
                    f"torchvision::{name}", "(Tensor boxes, Tensor scores, float most) -> Tensor"
                )


sys.meta_path.insert(0, Before())
