"""Known defects, and which of them an exploration found by itself.

The rows come from public reports (see `docs/corpus.md`).  Only this package knows them: nothing in the driver, its scopes or
its properties refers to a row.
"""
