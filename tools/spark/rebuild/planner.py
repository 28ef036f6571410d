"""The plan of a rebuild for `store/reconstruct`: made by Spark or in this process, and applied."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from store.accounts.builtin import User
from store.partition.marks import is_down
from store.rebuild.outcome import Outcome
from store.reconstruct.faults import repairable
from store.reconstruct.request import Refused, Request
from store.reconstruct.scope import mailboxes_meant
from tools.spark import sparksession
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.plan import BadPlan, Plan
from tools.spark.rebuild.planlive import apply_live
from tools.spark.rebuild.planload import apply_down
from tools.spark.rebuild.rebuildjob import Engine, make_plan
from tools.spark.rebuild.sparkplan import Spark


@frozen
class ParquetPlanner:
    """See `store.reconstruct.request.Planner`. `master` and `options` are Spark's."""

    master: str
    options: Sequence[str]

    def make(self, request: Request, folder: Path) -> Outcome:
        """See Planner."""
        with contextlib.ExitStack() as stack:
            try:
                manifest = make_plan(request.root, folder, self._engine(request, stack), partition=request.partition)
            except BadPlan as error:
                raise Refused(str(error)) from error
        total = manifest.total
        return Outcome(total.mailboxes, total.records, total.messages, findings=Plan(folder).findings())

    def _engine(self, request: Request, stack: contextlib.ExitStack) -> Engine:
        if request.engine != "spark":
            return Local(stack.enter_context(request.watched()))
        spark = stack.enter_context(sparksession.session("onecopy reconstruct", self.master,
                                                         sparksession.options(self.options)))
        stack.enter_context(sparksession.progress(spark, "reconstruct"))
        return Spark(spark)

    def apply(self, request: Request, folder: Path, users: list[User]) -> Outcome:
        """See Planner."""
        try:
            return self._apply(request, Plan(folder), users)
        except BadPlan as error:
            raise Refused(str(error)) from error

    @staticmethod
    def _apply(request: Request, plan: Plan, users: list[User]) -> Outcome:
        manifest = plan.read_manifest()
        if Path(manifest.root).resolve() != request.root.resolve():
            raise BadPlan(f"{plan.folder} is a plan of the store in {manifest.root}")
        if not is_down(request.root):
            with request.open_store() as store:
                only = {mailbox for _, mailbox in mailboxes_meant(store, request)} if request.what else None
                outcome = apply_live(store, plan, change=not request.check, only=only)
                if request.check:
                    outcome.left += repairable(store, request, only)
            return outcome
        if request.check:
            total = manifest.total
            return Outcome(total.mailboxes, total.records, total.messages, findings=plan.findings())
        with request.watched() as progress:
            return apply_down(request.root, plan, request.settings(), users=users, progress=progress)
