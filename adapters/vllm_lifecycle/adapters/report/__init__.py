"""Reports for people and for CI: one value (`model`), one file for each form. Knows nothing of vLLM and of the command line."""
