"""TLS of every listener: certificates, session tickets, channel binding.

The supervisor makes the TLS contexts that hold the keys of session tickets (`tickets`), one for each day ahead; a
connection begins from today's and is then given the one with the certificates for the host name that it asks for
(`contexts`). So any process takes up any session, also after a reload. When the keys made at the start are used up,
after 100 days, each process makes its own.
"""
