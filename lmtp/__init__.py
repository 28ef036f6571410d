"""The LMTP server (RFC 2033): takes messages from a relay and hands them to the store, one reply a recipient."""
