"""TLS of every listener: certificates, session tickets, channel binding."""
