"""The worked examples of the documentation, carried out: what the pages say is found is found, and the fixed classes pass."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from vllm_lifecycle.adapters.cli.main import main
from vllm_lifecycle.adapters.pytest_plugin import Watch, lifecycle_check

pytest.importorskip("vllm")
from docs.examples import test_shelf, test_tenants

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CHECK = "vllm-lifecycle check docs.examples.tenant_scheduler:ForgetfulTenants --scope loads --seconds 15 --save findings"
SAVED = "findings/a_free_block_is_not_touched_by_a_transfer_in_free_request_blocks.json"
REPLAYS = (
    "vllm-lifecycle replay findings/a_free_block_is_not_touched_by_a_transfer_in_free_request_blocks.json",
    "vllm-lifecycle replay findings/a_free_block_is_not_touched_by_a_transfer_in_free_request_blocks.json --on vllm==0.32.0",
)
CONNECTOR = "vllm-lifecycle check vllm --connector docs.examples.shelf_connector:HastyShelf --scope loads --seconds 15"
REFUTED = 2


def run(command: str) -> int:
    """The exit code of a command of the pages."""
    return main(shlex.split(command)[1:])


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [
        body for found, body in FENCE.findall((DOCS / page).read_text(encoding="utf-8")) if found == language
    ]


@pytest.mark.parametrize("page", ["check-your-scheduler.md", "check-your-connector.md"])
def test_the_code_of_a_page_stands_in_its_examples(page: str) -> None:
    sources = "\n".join(p.read_text(encoding="utf-8") for p in (DOCS / "examples").glob("*.py"))
    for body in blocks(page, "python"):
        assert body.strip("\n") in sources, body


def test_the_defect_of_the_scheduler_is_found_saved_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(DOCS.parent))
    monkeypatch.chdir(tmp_path)
    assert run(CHECK) == REFUTED
    capsys.readouterr()
    for command in REPLAYS:
        assert run(command) == REFUTED
        told = capsys.readouterr().out
        [page] = blocks("check-your-scheduler.md", "text")
        for line in page.splitlines():
            assert re.sub(r"^ *\d+ ", "", line).strip() in told, line
    fixed = Path(SAVED).read_text(encoding="utf-8").replace(":ForgetfulTenants", ":Tenants")
    Path("fixed.json").write_text(fixed, encoding="utf-8")
    assert run("vllm-lifecycle replay fixed.json") == 0


def test_the_defect_of_the_connector_is_found_where_the_page_says() -> None:
    from docs.examples.shelf_connector import HastyShelf

    with pytest.raises(pytest.fail.Exception) as failed:
        lifecycle_check(connector=HastyShelf, scope=test_shelf.PROMPTS, seconds=10)
    [page] = blocks("check-your-connector.md", "text")
    for line in page.splitlines():
        assert line.strip() in str(failed.value), line


def test_the_command_with_a_connector_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DOCS.parent)
    run(CONNECTOR)
    told = capsys.readouterr().out
    assert "with docs.examples.shelf_connector:HastyShelf" in told
    assert "fault: connector" not in told


def test_the_tests_of_the_examples_pass(lifecycle_monitor: Watch) -> None:
    test_tenants.test_tenants_keep_the_lifecycle()
    test_tenants.test_a_tenant_is_counted(lifecycle_monitor)
    test_shelf.test_the_shelf_keeps_its_contract()
