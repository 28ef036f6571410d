"""A command that a server elsewhere carries out (`onecopy --server`), and what its arguments are called there; files of
commands, which are carried out here or there."""
