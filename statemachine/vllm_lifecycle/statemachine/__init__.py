"""What runs: the machines built from the specification's tables, and what watches them. Imports `spec`, never `adapters`."""
