"""`tools/bench compare`: onecopy beside Dovecot and Cyrus, each of them real, under one load on one machine; and
`tools/bench scaling`: onecopy alone, with more and more of everything.

`disks` gives each server a file system of its own, `starting` starts a server and ends it with all of its processes;
`dovecotpeer`, `cyruspeer` and `ourselves` say how each is set up, `variants` which there are and which are like which.
`inturn` measures one workload on one server after the other; `ratios` makes a table of it with the ratio to the better
peer, `bars` and `curves` draw, and `speedpage` puts all into docs/speed.md. `growth` and `grown` are what scaling
measures. As root on Linux, in a mount namespace of its own: mounts are gone when the last process is.
"""
