"""What takes longer: a page that says how it goes, and leads on at its end."""

from typing import Any

from store import offload
from tools.http.api.running import Run
from tools.http.console.rendering import BASE
from tools.http.console.visit import FINDING, View, Visit
from tools.http.webpages import Answer, Refused

WAIT = 2.0                  # seconds for which the script's question waits for the end


async def _show(visit: Visit) -> Answer:
    """GET /console/progress?id=..&back=..: `form=json` for the script."""
    run = await visit.console.calls.find(visit.query["id"], visit.token)
    if run is None:
        raise Refused(404, "It has ended long ago: the audit trail and the page from which it was begun say what "
                           "became of it.")
    back = visit.query.get("back", BASE)
    if not back.startswith(BASE):
        raise Refused(400, "The address of this page is not complete.")
    if visit.query.get("form") == "json":
        await offload.run(visit.console.store, "waiting", run.done.wait, WAIT)
        return Answer.json({"running": run.exit is None, **_share(run)})
    if run.exit == 0 or run.exit == 1 and run.operation in FINDING:
        return visit.redirect(back)
    return await visit.show("progress.html", run.operation.capitalize(), run=run, back=back, share=_share(run),
                            code=200 if run.exit is None else 409)


def _share(run: Run) -> dict[str, Any]:
    """How far it is, as far as the operation tells that."""
    done, total, what = run.progress or (0, 0, "")
    return {"done": min(done, total), "total": total, "what": what}


PROGRESS = (View("progress", _show),)
