"""One pass: which requests take part in the next step, with how many tokens and which blocks."""
