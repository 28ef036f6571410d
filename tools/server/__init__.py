"""The daemon: the supervisor, its workers, sockets, privileges, logs.

Front door: `start.serve`. `worker` builds every object of a process and hands it settings, clock and reactor.

`supervisor` claims the store, opens the listening sockets and starts the keeper, which recovers the store and keeps
house. By default the keeper serves everything; with `[workers]` it serves nothing, and the workers follow, which
inherit the sockets. A `Listening` has a `Purpose`, which goes with its descriptor to the worker. Processes share the
environments through Berkeley DB's own locks. Workers are forks of the supervisor (`fork`), which has loaded neither
reactor nor servers; they die with it (prctl).

A process killed inside Berkeley DB may leave locks on which all others hang. So when one of the server's dies, or a
command line tool is found dead inside (the supervisor looks every second), all leave the store: the server's processes
are killed, other tools are ended (`process.clearing`), and all starts again from the keeper. The sockets stay open;
clients see a dropped connection, for some 1 to 3 seconds. The pause between restarts doubles, and after
`workers.restarts` in ten minutes the supervisor gives up; dead tools do not count.

Signals. SIGUSR1 (`onecopy drain`): whoever has not logged in is told, new connections are answered and closed, LMTP
ends between transactions; when the last user has left, or after `workers.drain_time`, the server stops. SIGTERM: accept
no more, tell the sessions, wait `workers.stop_time`, leave the store clean (what `store.idx` cannot be written in three
seconds `store.recovery.userareacheck` writes after the next start). SIGHUP: every process, and the supervisor for those
it starts later, reads the configuration and certificates again; `process.reloadable` says which options are taken over.
"""
