"""`onecopy check --engine spark`: every message file and every `store.idx` read and compared."""
