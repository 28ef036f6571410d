"""`onecopy standby`: a second machine that follows this one (`store/standby`): a module for each command."""
