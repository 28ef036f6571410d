"""What the commands do to the store. The modules are the same families as in `imap.wire`; `dispatch` joins both.

Each command is a coroutine of a session and a command's value. It returns the tagged reply, or raises a refusal
(`imap.states`).
"""
