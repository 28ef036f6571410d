"""Sieve (RFC 5228): the language in which users say what becomes of a message when it is delivered.

A script goes through three steps, each a pure function of what it is given:

1. `syntax.parse`: characters to commands, tests and arguments, each with its line and column (RFC 5228 §8).
2. `compiling.compile_script`: to a frozen tree of nodes. Names, arguments and `require` are checked by the forms that
   `language` lists; a problem is a `ScriptProblem` that says where.
3. `scriptrun.run`: the tree, one message (`receivedmail.ReceivedMail`), its envelope and the site around it
   (`surroundings.Surroundings`) to a `scriptoutcome.Outcome`: mailboxes with flags, what is to be sent, what is
   refused.

Nothing here writes, sends or waits, and no script can take long: `scriptlimits.Limits` bounds the size and depth of a
script, the steps of a run, the octets that its tests look at, and its actions. Whoever runs it carries the outcome out.

A command is a `commandforms.Form`: which arguments it takes, which capability it needs, the function that carries it
out. The forms of one theme stand in one module of `actions/` or `conditions/` beside these functions; `language` joins
them. A new extension is one more module there, and a line in `language.CAPABILITIES`.
"""
