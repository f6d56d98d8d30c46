"""Policies choose among what the kernel allows: the order of the waiting queue, and whom to preempt."""
