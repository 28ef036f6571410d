"""`tools/bench powercut`: power cuts on a block device whose cache is lost, under a real ext4 or XFS.

`cache` is the disk with its volatile cache, `device` serves it to the kernel as a file (FUSE), over which a loop device
is a block device; `machine` has the file system on it, the processes, and the cut. `ledger` knows every answer that was
given and compares; `mail`, `commands` and `workloads` are what runs when the power goes; `cuts` does one after the
other, and `report` counts. Linux alone, as root: everything is in namespaces of its own (unshare(1)), so that mounts,
loop devices and processes are gone when the first process is, whatever ends it.
"""
