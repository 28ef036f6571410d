"""Combinations of users and rights, what RFC 4314 grants in each, and conversations that must show nothing else."""
