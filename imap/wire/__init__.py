"""IMAP on the wire: octets to frozen values and back. Pure: no I/O, no Twisted, no open store.

`framer` finds lines and literals, `scanner` reads the elements of a command, a module for each family of commands makes
its value, `writer` and `responses` write the answers. `commands` is the one table of commands.

Lenient in what is read where every other server is and nothing is gained by refusing; never in what is sent
(docs/clients.md). The places say why; `tests/scripts/imap/lenient.txt` has them side by side.
"""
