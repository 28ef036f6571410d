"""`onecopy batch`: several commands, one after the other."""
