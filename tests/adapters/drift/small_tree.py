"""A source tree with just enough of a scheduler that everything the adapters need is found in it.

Names that the adapters only import are there too, as names of nothing.
"""

from __future__ import annotations

from pathlib import Path

from vllm_lifecycle.adapters.drift.known import known
from vllm_lifecycle.adapters.drift.seams import CONNECTOR

REQUEST = """
import enum

class RequestStatus(enum.IntEnum):
    WAITING = enum.auto()
    WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR = enum.auto()
    WAITING_FOR_REMOTE_KVS = enum.auto()
    WAITING_FOR_STREAMING_REQ = enum.auto()
    RUNNING = enum.auto()
    PREEMPTED = enum.auto()
    FINISHED_STOPPED = enum.auto()
    FINISHED_LENGTH_CAPPED = enum.auto()
    FINISHED_ABORTED = enum.auto()
    FINISHED_IGNORED = enum.auto()
    FINISHED_ERROR = enum.auto()
    FINISHED_REPETITION = enum.auto()

class Request:
    def __init__(self):
        self.status = RequestStatus.WAITING
        self.num_computed_tokens = 0

    @property
    def num_tokens(self):
        return 1
"""
POOL = """
class Queue:
    def get_all_free_blocks(self):
        return []

class BlockPool:
    def __init__(self, blocks):
        self.blocks = blocks
        self.null_block = blocks[0]
        self.free_block_queue = Queue()

    def get_num_free_blocks(self) -> int:
        return 0
"""
MANAGER = """
from vllm.v1.core.block_pool import BlockPool

class Coordinator:
    def __init__(self):
        self.block_pool = BlockPool([])

def make() -> Coordinator:
    return Coordinator()

class KVCacheManager:
    def __init__(self):
        self.coordinator = make()
        self.block_pool = self.coordinator.block_pool

    def get_block_ids(self, request_id):
        return ()
"""
INTERFACE = """
class SchedulerInterface:
    def has_requests(self):
        return False

    def has_unfinished_requests(self):
        return False
"""
SCHEDULER = """
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.interface import SchedulerInterface
from vllm.v1.request import Request, RequestStatus

class Scheduler(SchedulerInterface):
    def __init__(self, config):
        self.requests: dict[str, Request] = {}
        self.running = []
        self.waiting = []
        self.finished_req_ids: set[str] = set()
        self.kv_cache_manager = KVCacheManager()
        self.pause_state = None

    def schedule(self, throttle_prefills=False):
        for request in self.waiting:
            request.status = RequestStatus.RUNNING
        return self._victims()

    def _victims(self):
        return []

    def update_from_output(self, scheduler_output, model_runner_output):
        return {}

    def update_draft_token_ids(self, draft_token_ids):
        pass

    def add_request(self, request):
        self.requests[request.request_id] = request

    def finish_requests(self, request_ids, finished_status):
        for request in request_ids:
            request.status = finished_status
        return []

    def reset_prefix_cache(self, reset_running_requests=False, reset_connector=False):
        return True

    def set_pause_state(self, pause_state):
        self.pause_state = pause_state
"""
ASYNC = """
from vllm.v1.core.sched.scheduler import Scheduler

class AsyncScheduler(Scheduler):
    pass
"""
RESULTS = {"nothing": "return", "a value": "return 1", "2 values": "return 1, 2", "a generator": "yield"}


def _connector() -> str:
    """A connector with the shape that is recorded of the real one."""
    lines = ["class KVConnectorBase_V1:"]
    for name, method in known("0.32.0").classes[CONNECTOR].items():
        shown = [f"{p}None" if p.endswith("=") else p for p in ("self", *method.parameters)]
        lines.append(f"    def {name}({', '.join(shown)}):")
        lines += [f"        if self: {RESULTS[shape]}" for shape in method.returns]
    return "\n".join((*lines, ""))


FILES = {
    "vllm/_version.py": "__version__ = version = '0.32.0'\n",
    "vllm/distributed/kv_transfer/kv_connector/v1/base.py": _connector(),
    "vllm/v1/request.py": REQUEST,
    "vllm/v1/core/block_pool.py": POOL,
    "vllm/v1/core/kv_cache_manager.py": MANAGER,
    "vllm/v1/core/sched/interface.py": INTERFACE,
    "vllm/v1/core/sched/scheduler.py": SCHEDULER,
    "vllm/v1/core/sched/async_scheduler.py": ASYNC,
}


def write(folder: Path, *edits: tuple[str, str, str]) -> Path:
    """The tree in a folder, with edits (file, old text, new text)."""
    texts = dict(FILES)
    for imported in known("0.32.0").names:
        module, _, name = imported.partition(":")
        file = f"{module.replace('.', '/')}.py"
        if f" {name}" not in texts.get(file, ""):
            texts[file] = texts.get(file, "") + f"\n{name} = None\n"
    for name, old, new in edits:
        assert old in texts[name], f"{name} has no {old!r}"
        texts[name] = texts[name].replace(old, new)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
