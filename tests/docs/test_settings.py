"""What an operator may set: each variable that the project reads is in a document, and each one in a document is read."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\bVLLM_LIFECYCLE_[A-Z]+(?:_[A-Z]+)*\b")
PAGES = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
READ = (*(ROOT / "adapters").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").rglob("*"))
OPERATORS = ROOT / "adapters/vllm_lifecycle/adapters/vllm/verified/settings.py"


def _names(*files: Path) -> set[str]:
    return {
        name for file in files if file.is_file() for name in NAME.findall(file.read_text(errors="ignore"))
    }


def test_a_variable_in_a_document_is_read_somewhere() -> None:
    assert _names(*PAGES) - _names(*READ) == set()


def test_what_an_operator_may_set_is_in_the_page_for_operators() -> None:
    assert _names(OPERATORS)
    assert _names(OPERATORS) - _names(ROOT / "docs/run-inside-vllm.md") == set()
