"""A standby's other side, at the machine that serves: what it sends (`copysource.Source`), and which standbys have all
of it on disk, so that answers may go out (`instep.InStep`)."""
