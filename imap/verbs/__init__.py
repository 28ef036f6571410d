"""What the commands do to the store: the same families as in `imap.wire`, joined to them by `dispatch`.

Each is a coroutine of a session and a command's value; it gives the tagged reply or raises a refusal (`imap.states`).
"""
