"""The tests that come with the scheduler: a search, and a test of the author's own that is watched."""

from __future__ import annotations

from docs.examples.tenant_scheduler import Tenants

from vllm_lifecycle.adapters.pytest_plugin import Watch, lifecycle_check
from vllm_lifecycle.adapters.vllm import Scope
from vllm_lifecycle.adapters.vllm.config import Workshop


def test_tenants_keep_the_lifecycle() -> None:
    lifecycle_check(Tenants, scope="loads", seconds=10)


def test_a_tenant_is_counted(lifecycle_monitor: Watch) -> None:
    shop = Workshop("docs.examples.tenant_scheduler:Tenants", Scope("small", blocks=4))
    scheduler = shop.scheduler()
    lifecycle_monitor(scheduler)
    scheduler.add_request(shop.request("acme-1", [1, 2, 3], 2, 1))
    assert scheduler.open["acme"] == 1
    step = scheduler.schedule()
    scheduler.update_from_output(step, shop.answer({"acme-1": [99]}, None))  # its stop token
    assert scheduler.open["acme"] == 0
