"""SASL mechanisms as state machines, without I/O (RFC 4422), and the proofs that they need.

`mechanisms` has each mechanism as a generator of challenges and of questions to the directory; a protocol only carries
the challenges. `tools.server.tls.channelbinding` names the TLS channel for SCRAM-PLUS. Tokens (`tokens`) are remembered
no longer than they hold.
"""
