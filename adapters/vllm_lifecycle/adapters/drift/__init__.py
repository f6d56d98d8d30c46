"""Drift: a vLLM source tree against what the specification and the adapters know of vLLM, by its syntax trees alone.

Nothing of vLLM is imported or run, so a tree of any release can be looked at anywhere. What is looked for is taken from its one
home: statuses from the profiles, transitions from the specification, observed facts from the correspondence tables, calls
from the adapters' own source, hooks from the supported classes. Known releases are recorded facts (`releases/`), never source.
"""
