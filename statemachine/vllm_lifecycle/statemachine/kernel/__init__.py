"""The custody kernel: requests, blocks with their holders, transfers and steps in flight; it refuses what is not enabled."""
