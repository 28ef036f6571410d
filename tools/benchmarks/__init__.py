"""All benchmarks, and `tools/bench`. Not in the installed package."""
