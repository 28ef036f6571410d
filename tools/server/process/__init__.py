"""What one process of the server is made of: its configuration, sockets, listeners, log, event loop, housekeeping and
reload.

May import tools/server/tls, tools/front and tools/cli. Front doors: `listeners.Server`, `workerconfig.WorkerConfig`.
"""
