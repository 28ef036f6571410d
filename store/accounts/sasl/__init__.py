"""What SASL mechanisms say and prove (RFC 4422): SCRAM, SASLprep, bearer tokens. Pure.

`store.accounts.mechanisms` makes mechanisms of it; `saslprep` and the keys of SCRAM also serve passwords.
"""
