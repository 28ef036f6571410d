// The console works without this file: it only saves a person from loading pages again, and asks before what cannot be undone.
"use strict";

// What is under way: ask whether it has ended (the answer waits for it a little), and show the page again then.
for (const place of document.querySelectorAll("[data-progress]")) {
  const ask = async () => {
    try {
      const answer = await fetch(place.dataset.progress, { headers: { Accept: "application/json" } });
      const ended = !answer.ok || !(await answer.json()).running;
      if (ended) { location.reload(); return; }
    } catch { /* the server may be restarting */ }
    setTimeout(ask, 500);
  };
  setTimeout(ask, 500);
}

// A button that has a question asks it.
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.question ?? event.target.dataset.question;
  if (question && !confirm(question)) event.preventDefault();
});

// A page that shows what goes on loads itself again while it is looked at.
for (const place of document.querySelectorAll("[data-again]")) {
  setInterval(() => { if (!document.hidden) location.reload(); }, 1000 * Math.max(5, Number(place.dataset.again)));
}
