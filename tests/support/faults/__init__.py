"""What goes wrong on purpose: disks that fill up or forget, calls that fail, processes that are killed."""
