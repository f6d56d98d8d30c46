"""What others read from a scheduler of ours on vLLM 0.32.0, beyond what every release has, and may set."""

from __future__ import annotations

from typing import Any

from vllm_lifecycle.adapters.vllm.verified.v032_outputs import Outputs
from vllm_lifecycle.adapters.vllm.verified.v032_update import Answers032
from vllm_lifecycle.adapters.vllm.verified.world import build_meta
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.scheduling.loop import Scheduling


class Readings032:
    """The attributes that vLLM 0.32.0's `Scheduler` has beside those of all releases."""

    observability_config: Any
    defer_block_free: bool = True
    """Blocks of a step in flight are held until its answer, always: setting it changes nothing."""
    dynamic_sd_lookup: None = None
    """Numbers of drafts by batch size: none, for they are refused (see limits032.py)."""
    _kernel: Kernel
    _outputs: Outputs
    _answers: Answers032
    _pass: Scheduling

    @property
    def use_v2_model_runner(self) -> bool:
        """Outputs are those that the second model runner reads."""
        return self._outputs.second_runner

    @use_v2_model_runner.setter
    def use_v2_model_runner(self, second: bool) -> None:
        self._outputs.second_runner = second

    def _build_kv_connector_meta(self, connector: Any, scheduler_output: Any) -> Any:
        """What the connector has for its workers' side; plugins put their own in this one's place."""
        return build_meta(connector, scheduler_output)

    @property
    def sched_step_seq(self) -> int:
        """The number of the newest step."""
        return self._kernel.steps.number

    @property
    def processed_step_seq(self) -> int:
        """The number up to which all steps are answered."""
        steps = self._kernel.steps
        return next(iter(steps.outstanding), steps.number + 1) - 1

    @property
    def requires_kv_delivery(self) -> bool:
        """What a preempted request has in flight is dropped, for the connector is still to hand its blocks on."""
        return self._pass.limits.drops_output

    @property
    def return_sampling_mask(self) -> bool:
        """Clients hear which tokens the sampler could choose from."""
        return self._answers.masks

    @return_sampling_mask.setter
    def return_sampling_mask(self, told: bool) -> None:
        self._answers.masks = told

    @property
    def spec_decode_metrics_level(self) -> str:
        """How much is counted of each request's drafts."""
        level: str = self.observability_config.per_request_spec_decode_metrics
        return level
