"""The verified scheduler is offered on the releases it is bound to, and refused in one line on every other one."""

from importlib import import_module

import pytest

from vllm_lifecycle.adapters.vllm.verified import ADAPTERS, __all__

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("name", __all__)
def test_a_class_is_for_the_installed_release_or_refused(name: str) -> None:
    release = pytest.importorskip("vllm").__version__.partition("+")[0]
    package = import_module("vllm_lifecycle.adapters.vllm")
    if release in ADAPTERS:
        cls = getattr(package, name)
        assert release == cls.RELEASE
        assert not cls.__abstractmethods__
    else:
        with pytest.raises(
            ImportError, match=rf"^{name} runs inside vLLM .*, and this is {release}: [^\n]*$"
        ):
            getattr(package, name)
