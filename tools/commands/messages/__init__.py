"""`onecopy messages`: an administrator finds, reads, marks, copies, moves and removes messages of any users.

`searchwords` reads which messages are meant, `chosenmessages` finds them; a module for each kind of command.
"""
