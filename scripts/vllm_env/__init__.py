"""Makes the virtual environment in which one scheduler release imports and runs on a CPU."""
