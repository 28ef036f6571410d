"""SASL mechanisms as state machines, without I/O (RFC 4422), and the proofs that they need."""
