"""What a session leaves behind that it should not: errors in the log, work that is due."""

import logging


class Loud(logging.Handler):
    """Keeps what is an error, and wants every record to be one line."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.errors = []

    def emit(self, record):
        """Called by `logging`."""
        text = record.getMessage()
        if record.levelno >= logging.ERROR or record.exc_info or not {"\r", "\n", "\0"}.isdisjoint(text):
            self.errors.append(text)


def due(clock):
    """What a clock should have called by now."""
    return [call for call in clock.getDelayedCalls() if call.getTime() <= clock.seconds()]
