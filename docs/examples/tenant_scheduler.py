"""A scheduler subclass as people write them: it counts each tenant's requests, in the hook through which all of them leave."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class ForgetfulTenants(Scheduler):
    """Counts the open requests of each tenant. The tenant is the part of the request id before the first dash."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.open: Counter[str] = Counter()

    def add_request(self, request: Any) -> None:
        self.open[request.request_id.split("-")[0]] += 1
        super().add_request(request)

    def _free_request(self, request: Any, delay_free_blocks: bool = False) -> Any:
        self.open[request.request_id.split("-")[0]] -= 1
        return super()._free_request(request)


class Tenants(ForgetfulTenants):
    """The same, with the argument passed on."""

    def _free_request(self, request: Any, delay_free_blocks: bool = False) -> Any:
        self.open[request.request_id.split("-")[0]] -= 1
        return Scheduler._free_request(self, request, delay_free_blocks)
