"""A home for classes that cannot be imported by their own name, such as one made inside a test.

The explorer and vLLM's connector factory load classes by `module:name`; a class is given a name in this module for that.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

_NUMBERS = count(1)


def give(cls: type[Any]) -> str:
    """A name by which the class can be loaded in this process; the same one each time."""
    home = sys.modules[__name__]
    for name, there in vars(home).items():
        if there is cls:
            return f"{__name__}:{name}"
    name = cls.__name__ if not hasattr(home, cls.__name__) else f"{cls.__name__}_{next(_NUMBERS)}"
    setattr(home, name, cls)
    return f"{__name__}:{name}"
