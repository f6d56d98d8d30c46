"""What is never the case (each claim a sentence, with its interesting case that must be reachable) and what comes to pass.

`ids` are the names of the defect catalogues: P1-P12 for the vLLM scheduler, PIN ... NOCRASH for the omni AR scheduler. Rows
with `lemma=True` say how the scheduler's bookkeeping fits together; the proof needs them, and they are checked like the rest.
"""
