"""The users of an LDAP directory (RFC 4511): connections, searches, and what entries mean.

Only `ldapwire` imports ldap3.
"""
