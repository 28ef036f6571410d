"""Commands that show what the store does, and what leaves it: a module for each."""
