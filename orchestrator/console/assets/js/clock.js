// Times that tick: how long ago, how much is left. All of them are the
// server's, whatever the clock of this machine says.

let ahead = 0; // the server's clock less ours, in milliseconds

// setClock is told the server's time as a page said it, in milliseconds, and
// when it came.
function setClock(text, receivedAt) {
  if (Number(text) > 0) ahead = Number(text) - receivedAt;
}

const serverNow = () => Date.now() + ahead;

// tick brings every time under root up to date.
function tick(root = document) {
  const now = serverNow();
  for (const el of root.querySelectorAll("time[data-at]")) {
    const left = Number(el.dataset.at) - now;
    if (el.dataset.how === "left") markUrgency(el, left);
    const text = el.dataset.how === "left" ? until(left) : ago(-left);
    if (el.textContent !== text) el.textContent = text;
  }
  for (const el of root.querySelectorAll("[data-left-bar]")) {
    const share = (Number(el.dataset.at) - now) / Number(el.dataset.ttl);
    el.value = el.max * Math.max(0, Math.min(1, share));
  }
}

// The last fifth of a span whose length is known calls for a look.
function markUrgency(el, left) {
  const ttl = Number(el.dataset.ttl);
  el.classList.toggle("over", left <= 0);
  el.classList.toggle("ending", left > 0 && ttl > 0 && left < ttl / 5);
}

// ago, until and span say what the server says in the same place, so that
// nothing jumps when they take over.
function ago(ms) {
  return ms < 5000 ? "just now" : span(ms) + " ago";
}

function until(ms) {
  return ms > 0 ? "in " + span(ms) : span(-ms) + " overdue";
}

function span(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 10 * 3600) return Math.floor(s / 3600) + " h " + String(Math.floor(s / 60) % 60).padStart(2, "0") + " min";
  if (s < 48 * 3600) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " days";
}

function startClock() {
  const arrived = performance.timeOrigin + (performance.getEntriesByType("navigation")[0]?.responseStart ?? 0);
  setClock(page().now, arrived);
  tick();
  setInterval(() => document.hidden || tick(), 1000);
  document.addEventListener("visibilitychange", () => tick());
}
