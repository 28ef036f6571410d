"""The message store: message files, indexes, flags, quota and accounts. It knows no protocol.

The rooms, from the lowest to the highest, are in docs/architecture.md and in `tests/test_layers.py`; imports run
downward only. The modules beside the rooms are small values (`values`, `errors`, `findings`, `progress`, `changes`,
`settings`), `store` (an open store: it looks up and transacts) and `opening` (opens it: processes, recovery,
reconciliation, in order).

The store refuses with StoreError and a `Problem`; each server has one table of replies to problems. Functions of the
store are plain and block. Short ones, microseconds on cached pages, are called in the event loop; what waits for the
disk or takes long is called in a thread, by `net.offload.run`.

Long work counts its steps in a `Progress`. When the client's connection is lost the next step raises `Abandoned`.
"""

VERSION = "0.1.0"
