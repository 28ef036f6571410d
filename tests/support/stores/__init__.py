"""Stores and mail for tests: small and quick ones, whole ones made at random, messages, Maildirs."""
