"""What the fuzzers of all packages share: the driver, inputs made by choices, counted work."""
