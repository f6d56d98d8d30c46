"""Lifecycle documents: Markdown with Mermaid, written from the specification, and checked against what is committed.

A page is a function of the specification (as one release sees it, see `view`) and of the recorded evidence: what the engines
answered, with the digest of the specification that they answered for. Nothing about a status is written by hand; a page of
evidence for another specification says so, and `docs check` fails. Rejected: the Mermaid engine of `transitions` (it prints
the condition of every row on every arrow, and cannot split a diagram), and running the engines in each build (1.5 minutes).
"""
