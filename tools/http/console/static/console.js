// The console works without this file: it only saves a person from loading pages again, and asks before what cannot be undone.
"use strict";

// What is under way: ask whether it has ended (the answer waits for it a little), and show the page again then.
for (const place of document.querySelectorAll("[data-progress]")) {
  const ask = async () => {
    try {
      const answer = await fetch(place.dataset.progress, { headers: { Accept: "application/json" } });
      const now = answer.ok ? await answer.json() : { running: false };
      if (!now.running) { location.reload(); return; }
      if (now.total) {
        const bar = document.querySelector("progress");
        bar.max = now.total;
        bar.value = now.done;
        document.querySelector("[data-share]").textContent = `${Math.floor(100 * now.done / now.total)} %: ${now.what}`;
      }
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

// A form with data-key: the browser asks a passkey or security key (WebAuthn); what that makes or signs is sent with it.
const octets = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
const inText = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const keys = (list) => (list ?? []).map((each) => ({ ...each, id: octets(each.id) }));
const askKey = async (wanted) => {
  const publicKey = { ...wanted, challenge: octets(wanted.challenge) };
  if (wanted.user) {
    publicKey.user = { ...wanted.user, id: octets(wanted.user.id) };
    publicKey.excludeCredentials = keys(wanted.excludeCredentials);
  } else {
    publicKey.allowCredentials = keys(wanted.allowCredentials);
  }
  const found = await (wanted.user ? navigator.credentials.create({ publicKey }) : navigator.credentials.get({ publicKey }));
  const response = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature"]) {
    if (found.response[name]) response[name] = inText(found.response[name]);
  }
  return JSON.stringify({ id: found.id, rawId: inText(found.rawId), type: found.type, response, clientExtensionResults: {} });
};
for (const form of document.querySelectorAll("form[data-key]")) {
  form.hidden = !window.PublicKeyCredential;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const problem = form.querySelector("[role=alert]");
    problem.hidden = true;
    try {
      form.elements.credential.value = await askKey(JSON.parse(form.dataset.key));
    } catch {
      problem.hidden = false;
      return;
    }
    form.submit();
  });
}
