"""One cut after the other, and what comes of each."""

import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random

from attrs import define, field

from tools.benchmarks.powercut import madedisks
from tools.benchmarks.powercut.cache import LEFT
from tools.benchmarks.powercut.ledger import Ledger, State, Who, judge, judge_mail
from tools.benchmarks.powercut.looking import BACKGROUND, Eyes, check
from tools.benchmarks.powercut.machine import CutError, Machine, Site
from tools.benchmarks.powercut.mailclients import Lmtp, RefusedError
from tools.benchmarks.powercut.workloads import MAIN, RECEIVERS, WORKLOADS, Run, Workload
from tools.exits import Failure

MOST_REQUESTS = 2500            # of mail before a cut
START_REQUESTS = 400            # of a mount and a start
LOAD_SECONDS = 20.0             # then the cut comes in any case
LOOK = 0.02
HANGS = 90.0                    # seconds after which it is shown where a cut hangs


@define(eq=False)
class Outcome:
    """What came of one cut."""

    number: int
    workload: str
    file_system: str
    left: str                           # see `cache.LEFT`
    after: int = 0                      # requests of the disk since the load began
    answers: int = 0
    unflushed: int = 0                  # sectors
    dropped: int = 0
    finished_later: bool = False        # the start has finished in the background what was cut off
    by_hand: str = ""                   # a command that had to be repeated, and why
    start_failed: str = ""
    lost: list[str] = field(factory=list)
    found: list[str] = field(factory=list)              # by check
    wrong: list[str] = field(factory=list)              # anything else
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether all is as it must be."""
        return not (self.start_failed or self.lost or self.found or self.wrong)


def cuts(machine: Machine, count: int, seed: int, workloads: Sequence[str], kinds: Sequence[str], seconds: float,
         first: int = 0) -> Iterator[Outcome]:
    """So many, of each workload on each file system in turn; none begins after so many seconds."""
    deadline = time.monotonic() + seconds
    with_move = "user move" in workloads
    places = madedisks.sites(machine)
    for at, kind in enumerate(kinds):
        prepared = madedisks.prepare(machine, kind, places, with_move=with_move)
        share = list(range(first, first + count))[at::len(kinds)]
        typical: dict[str, int] = {}
        until = deadline - (deadline - time.monotonic()) * (len(kinds) - at - 1) / (len(kinds) - at)
        for turn, number in enumerate(share):
            if time.monotonic() > until:
                break
            workload = WORKLOADS[workloads[turn % len(workloads)]]
            cut = _Cut(machine, workload, kind, places, prepared, Random(f"{seed}/{number}"), typical)
            yield cut.do(number)


@define(eq=False)
class _Cut:
    machine: Machine
    workload: Workload
    kind: str
    sites: dict[str, Site]
    base: dict[Who, State]
    random: Random
    typical: dict[str, int]             # requests of the disk while a workload's commands run
    ledger: Ledger = field(factory=Ledger)

    def do(self, number: int) -> Outcome:
        """The whole of it."""
        begun = time.monotonic()
        watch = threading.Timer(HANGS, self.machine.show_processes)
        watch.start()
        outcome = Outcome(number, self.workload.name, self.kind, self.random.choice(LEFT))
        try:
            self.machine.mark()
            self.machine.take(self.kind, self.workload.disk)
            self.machine.power_on()
            run = self._load(outcome)
            if self.workload.twice:
                self._start_cut_off(outcome)
            self._judge(outcome, run)
        except (Failure, OSError, RefusedError) as error:
            outcome.wrong.append(str(error))
        finally:
            self.machine.on_dark = lambda: None
            self.machine.cut()
            self.machine.unmount()
            watch.cancel()
        outcome.answers, outcome.seconds = self.ledger.answers, time.monotonic() - begun
        return outcome

    # The load, and the cut

    def _load(self, outcome: Outcome) -> Run:
        machine, workload = self.machine, self.workload
        run = Run(machine, self.sites, self.ledger, self.base, workload.after, self.random)
        for name in workload.serving:
            machine.serve(self.sites[name])
        machine.on_dark = self.ledger.close
        most = MOST_REQUESTS if workload.steps is None else self.typical.get(workload.name, 0)
        begun = machine.requests()
        self._arm(outcome, most)
        if MAIN in workload.serving:
            run.mail()
        if workload.steps is not None:
            run.load.begin(lambda: self._steps(run))
        deadline = time.monotonic() + LOAD_SECONDS
        while not machine.is_dark.is_set() and not run.finished.is_set() and time.monotonic() < deadline:
            time.sleep(LOOK)
        outcome.after = machine.requests() - begun
        if not most:
            self.typical[workload.name] = outcome.after
        self._power_off(outcome)
        run.load.ended()
        machine.unmount()
        outcome.wrong += run.load.wrong
        return run

    def _steps(self, run: Run) -> None:
        assert self.workload.steps is not None
        try:
            with suppress(CutError):
                self.workload.steps(run)
        except (Failure, OSError) as error:
            if self.ledger.is_open:
                run.load.wrong.append(f"while there was power: {error!r}")
        finally:
            run.finished.set()

    def _power_off(self, outcome: Outcome) -> None:
        self.machine.cut()
        outcome.unflushed += self.machine.loss.unflushed
        outcome.dropped += self.machine.loss.dropped

    def _start_cut_off(self, outcome: Outcome) -> None:
        """The power comes back, and goes again while the server starts."""
        self.machine.power_on()
        self._arm(outcome, START_REQUESTS)
        with suppress(CutError):
            self.machine.serve(self.sites[MAIN])
        self._power_off(outcome)
        self.machine.unmount()

    def _arm(self, outcome: Outcome, most: int) -> None:
        requests = self.random.randrange(1, most + 1) if most else 0
        self.machine.arm(requests, outcome.left, self.random.getrandbits(60), at_flush=self.random.random() < 0.6)

    # Afterwards

    def _judge(self, outcome: Outcome, run: Run) -> None:
        self.machine.power_on()
        self.machine.arm(0, "none", 0)
        served = [self.sites[name] for name in self.workload.after]
        if not self._start(outcome, run, served):
            return
        places = {site.name: site for site in served}
        begun = time.monotonic()
        while (lost := judge(self.ledger, Eyes(places).look)) and time.monotonic() < begun + BACKGROUND:
            outcome.finished_later = True           # unless it is not
            time.sleep(LOOK)
        outcome.lost, outcome.finished_later = lost, outcome.finished_later and not lost
        if outcome.lost and self._repeat(outcome, run, served, outcome.lost[0]):
            outcome.lost = judge(self.ledger, Eyes(places).look)
        for words in run.promises:
            if self.machine.run(self.sites[MAIN], *words):
                outcome.lost.append(f"onecopy {shlex.join(words)} fails: {self.machine.said()}")
        if MAIN in self.workload.serving:
            outcome.lost += self._goes_on()
        outcome.found = check(self.machine, served)

    def _start(self, outcome: Outcome, run: Run, served: Sequence[Site]) -> bool:
        try:
            self._serve(served)
        except Failure as failure:
            try:
                if self._repeat(outcome, run, served, str(failure)):
                    return True
            except Failure as again:
                outcome.wrong.append(str(again))
            outcome.start_failed = str(failure)
            return False
        return True

    def _serve(self, served: Sequence[Site]) -> None:
        for site in served:
            self.machine.serve(site)

    def _repeat(self, outcome: Outcome, run: Run, served: Sequence[Site], why: str) -> bool:
        """Do the command again that was cut off, as an administrator would: whether there was one. Raises Failure."""
        if run.by_hand is None:
            return False
        site, words = run.by_hand
        outcome.by_hand = f"onecopy {shlex.join(words)} ({why})"
        if self.workload.serving:
            self.machine.must(self.sites[site], *words)
        else:
            self.machine.kill_all()
            self.machine.must(self.sites[site], *words)
            self._serve(served)
        return True

    def _goes_on(self) -> list[str]:
        """New mail comes, and its UIDs are new."""
        site = self.sites[MAIN]
        lmtp = Lmtp(site.ports["lmtp"])
        users = [who[1] for who in self.ledger.recipients] or list(RECEIVERS)
        _, octets = self.ledger.begin(b"Afterwards.\r\n", [(MAIN, user) for user in users])
        said = [f"{user}: a message afterwards: {reply!r}" for user, reply in lmtp.deliver(users, octets)
                if not reply.startswith(b"250")]
        lmtp.close()
        return said + judge_mail(self.ledger, Eyes({MAIN: site}).look)
