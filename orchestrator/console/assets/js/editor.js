// The editor of wake policies: <form data-check="address"> with a text, its line numbers and the findings
// about it. The server finds them: the script asks it a moment after the last key.

const CHECK_AFTER = 350; // in milliseconds

const check = { timer: 0, request: null };

function startEditor() {
  document.addEventListener("input", ({ target }) => {
    if (!target.matches("[data-check] textarea")) return;
    numberLines(target);
    clearTimeout(check.timer);
    check.timer = setTimeout(() => checkText(target.form), CHECK_AFTER);
  });
  document.addEventListener("click", (clicked) => {
    const link = clicked.target.closest("[data-goto]");
    if (!link) return;
    clicked.preventDefault();
    goToLine(document.querySelector(".numbered textarea"), Number(link.dataset.goto));
  });
}

// checkText shows what the server finds in the text. Only the last question counts.
async function checkText(form) {
  check.request?.abort();
  const request = (check.request = new AbortController());
  const fields = new URLSearchParams(new FormData(form));
  fields.set("live", "1");
  try {
    const answer = await fetch(form.dataset.check, { method: "POST", body: fields, headers: { Accept: "text/html" }, cache: "no-store", redirect: "manual", signal: request.signal });
    const fresh = answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("check") : null;
    if (request.signal.aborted) return;
    showFindings(form, fresh ? [...fresh.childNodes] : [element("p", "The text could not be checked now. The button Check tries again.", { class: "verdict" })]);
  } catch (failed) {
    if (failed.name !== "AbortError") showFindings(form, [element("p", "The text could not be checked: the server cannot be reached.", { class: "verdict" })]);
  }
}

function showFindings(form, nodes) {
  form.querySelector("#check").replaceChildren(...nodes);
  numberLines(form.querySelector(".numbered textarea"));
}

// numberLines numbers the lines of a text, and marks those with findings as the server does.
function numberLines(field) {
  const marks = new Map();
  for (const { dataset } of field.form?.querySelectorAll("#check [data-line]") ?? []) {
    if (marks.get(dataset.line) !== "error") marks.set(dataset.line, dataset.severity);
  }
  const count = Math.min(field.value.split("\n").length, 5_000);
  field.rows = Math.max(count, 12);
  const numbers = [];
  for (let n = 1; n <= count; n++) {
    const severity = marks.get(String(n));
    numbers.push(severity ? element("b", (severity === "error" ? "✕ " : "! ") + n, { class: severity }) : String(n), "\n");
  }
  field.closest(".numbered").querySelector(".numbers").replaceChildren(...numbers);
}

function goToLine(field, line) {
  if (!field) return;
  const lines = field.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  field.focus();
  field.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
  const box = field.closest(".numbered");
  box.scrollTop = Math.max(0, (field.offsetHeight / field.rows) * (line - 3));
  field.scrollIntoView({ block: "nearest" });
}

// keepDraft leaves a text alone in which somebody writes, and tells them once that the policy has changed.
function keepDraft(old, now) {
  const digest = (part) => part.querySelector("input[name=expected]")?.getAttribute("value") ?? "";
  if (digest(old) === digest(now) || old.dataset.told === digest(now)) return;
  old.dataset.told = digest(now);
  showHeldNote(old, () => {}, "Somebody has changed this policy while you were writing. If you save, both versions are shown. ", "Close");
}
