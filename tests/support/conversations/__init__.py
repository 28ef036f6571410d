"""Conversations written as text (tests/scripts): players in memory and on sockets."""
