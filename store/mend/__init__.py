"""Everything that `store/check` finds, put right: a module for each group of faults, and the rounds that go on until
the check finds nothing, or nothing moves. The front doors are `correctionrounds.mend` and `correctionrounds.correct`.

The evidence decides, in this order: what two of the list, the figures, the records and `store.idx` say of each other;
what `messages.db` has counted; what the message files are. Nothing of which evidence is left is removed.
"""
