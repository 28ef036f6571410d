"""What is known of a store and its server as figures: gathered, with advice, and given out as Prometheus reads it.

`figures.gather` asks the databases, the volumes, files of the store and each process of the server. `metriclist` has
every metric in one list: its name, kind, labels, help, and how it follows from what was gathered;
docs/administration.md has it too, and a test compares them. `exposition.text` is the front door of what is given out,
and the only module that loads prometheus_client: no process that serves mail does.

What a process counts begins at 0 with it, and has its name as the label `process`. All processes of a server end and
begin together, under the same names, so each series falls to 0 and grows again: that is what rate() and increase()
expect of a counter. Sum after them: sum(rate(...)), never rate(sum(...)). `process_start_timestamp_seconds` says when.
No label has a value that clients choose: none has users, addresses or domains.
"""
