"""The explorer of real vLLM scheduler classes (layer L4).

A scheduler class is built on CPU, the environment is played through its public API, its state is read through one
correspondence table, and properties are judged against the driver's own truth.  Importing this package needs no vLLM;
modules that do need it import it when they are used.
"""
