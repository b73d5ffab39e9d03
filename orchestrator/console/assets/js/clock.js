// Times that tick: how long ago, how much is left. All of them are the
// server's, whatever the clock of this machine says.

let ahead = 0; // the server's clock less ours, in milliseconds

// setClock is told the server's time as a page said it, and when it came.
function setClock(text, receivedAt) {
  const at = Date.parse(text);
  if (!Number.isNaN(at)) ahead = at - receivedAt;
}

const now = () => Date.now() + ahead;

// tick brings every time under root up to date.
function tick(root = document) {
  const at = now();
  for (const el of root.querySelectorAll("time[data-rel]")) show(el, ago(at - Date.parse(el.dateTime)));
  for (const el of root.querySelectorAll("time[data-left]")) {
    const left = Date.parse(el.dateTime) - at;
    show(el, left > 0 ? span(left) : "over");
    urgency(el, left);
  }
  for (const el of root.querySelectorAll("[data-left-bar]")) {
    el.value = Math.max(0, Math.min(el.max, (el.max * (Date.parse(el.dataset.until) - at)) / Number(el.dataset.ttl)));
  }
}

function show(el, text) {
  if (el.textContent !== text && !text.includes("NaN")) el.textContent = text;
}

function urgency(el, left) {
  const ttl = Number(el.dataset.ttl);
  el.classList.toggle("over", left <= 0);
  el.classList.toggle("ending", left > 0 && ttl > 0 && left < ttl / 5);
}

// ago and span say what the pages say, so that nothing jumps when they start.
function ago(ms) {
  if (ms < -1000) return "in " + span(-ms);
  return ms < 1000 ? "now" : span(ms) + " ago";
}

function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const [m, h, d] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86400)];
  if (d >= 2) return d + "d " + (h % 24) + "h";
  if (h >= 1) return h + "h " + (m % 60) + "m";
  if (m >= 1) return m + "m " + (s % 60) + "s";
  return s + "s";
}

function startClock() {
  tick();
  setInterval(() => document.hidden || tick(), 1000);
  document.addEventListener("visibilitychange", () => tick());
}
