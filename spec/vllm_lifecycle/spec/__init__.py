"""Everything that is true of the design without running it: language, lifecycles, properties, scopes, checks, mutants."""
