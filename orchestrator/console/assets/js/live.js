// The page follows what happens: an event that concerns it makes it fetch
// itself and swap what has changed.

const SHORTEST = 400; // between two fetches, in milliseconds
const HIDDEN = 5_000; // the same where nobody looks: the title is kept right
const EVERY = 30_000; // what changes with time alone, such as an agent's silence

// After these the number of those who wait may be another.
const WAITING = ["task.handoff", "task.answered", "task.finished", "task.review", "task.completed", "task.cancelled",
  "task.approved", "task.rejected", "task.retried", "handoff.", "lease.failed", "lease.expired", "lease.released", "store.adopted"];

const live = {
  state: "joining", // of the stream: joining, live, lost or over; or the page is gone
  why: "", // it is gone, as the server says
  paused: false,
  waiting: 0, // updates that came during a pause
  stale: false, // there is something to fetch
  fetching: false,
  leaving: false, // the page is being left: a form was sent
  timer: 0,
  last: 0,
  gap: SHORTEST,
};

// page is what the page says of itself: after, the event it is as new as; now,
// the server's clock; topics; every, in seconds.
const page = () => document.getElementById("main")?.dataset ?? {};

// startLive joins the stream, where the page says from where.
function startLive() {
  if (page().after === undefined) return;
  live.paused = remembered("picket-paused") === "1";
  document.getElementById("live")?.addEventListener("click", togglePause);
  const join = () => joinTabs("/console/live", page().after, document.getElementById("live")?.dataset.desk ?? "", hear);
  let leave = join();
  addEventListener("submit", (sent) => setTimeout(() => (live.leaving = !sent.defaultPrevented)));
  addEventListener("pagehide", () => leave());
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    live.leaving = false;
    leave = join();
    stir();
  });
  document.addEventListener("visibilitychange", () => live.stale && !document.hidden && hurry());
  setInterval(() => document.hidden || live.paused || stir(), Number(page().every) * 1000 || EVERY);
  showLive();
}

function hear(message) {
  if (live.state === "gone") return;
  if (message.state) {
    const back = message.state === "live" && live.state !== "joining";
    live.state = message.state;
    if (back) stir();
    showLive();
  }
  if (message.reset) stir();
  for (const event of message.events ?? []) if (concerns(event)) note();
}

// concerns reports whether the page looks different after an event. Topics are
// prefixes of types, or ids of tasks, runs and agents; * is all of them.
function concerns({ type, taskId, runId, agentId }) {
  const topics = (page().topics ?? "").split(" ").filter(Boolean);
  return topics.some((t) => t === "*" || type.startsWith(t) || t === taskId || t === runId || t === agentId) ||
    WAITING.some((t) => type.startsWith(t));
}

// note is told of each event that makes the page another.
function note() {
  if (live.paused) {
    live.waiting++;
    showLive();
    return;
  }
  stir();
}

// stir has the page brought up to date soon, once for all that comes until
// then.
function stir() {
  live.stale = true;
  plan();
}

// ended reports whether the page is never brought up to date again.
const ended = () => live.state === "over" || live.state === "gone";

function plan() {
  if (live.timer || live.fetching || live.paused || live.leaving || ended()) return;
  const gap = document.hidden ? Math.max(HIDDEN, live.gap) : live.gap;
  live.timer = setTimeout(refresh, Math.max(0, live.last + gap - Date.now()));
}

// hurry is for a person who has come back to look.
function hurry() {
  clearTimeout(live.timer);
  live.timer = 0;
  plan();
}

async function refresh() {
  live.timer = 0;
  live.fetching = true;
  live.stale = false;
  const began = Date.now();
  const ok = await fetchPage().catch(() => false);
  live.fetching = false;
  live.last = Date.now();
  // A server that takes long is asked less often.
  live.gap = ok ? Math.max(SHORTEST, 3 * (live.last - began)) : Math.min(2 * live.gap, 10_000);
  if (!ok && !ended()) live.stale = true;
  showLive();
  if (live.stale) plan();
}

// fetchPage reports whether the page is as new as the server's.
async function fetchPage() {
  // The answer to a form has no address of its own.
  const address = page().posted === undefined ? location.href : page().self;
  const answer = await fetch(address, { headers: { Accept: "text/html", "Picket-Part": "main" }, cache: "no-store", redirect: "manual" });
  const receivedAt = Date.now();
  if (answer.type === "opaqueredirect" || answer.status === 401) {
    live.state = "over";
    return false;
  }
  if (answer.status >= 500 || answer.status === 429) return false;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (live.leaving) return true;
  if (live.paused) {
    live.waiting ||= 1;
    return true;
  }
  const failed = answer.status >= 400;
  if (failed && !refused()) return gone(fresh);
  if (!failed && refused() && !typedIn(document)) {
    location.reload(); // what the page could not show is there by now
    return true;
  }
  if (ofAnother(fresh) && typedIn(document)) {
    live.state = "over";
    return false;
  }
  if (ofAnother(fresh) || outdated(fresh)) {
    location.reload();
    return true;
  }
  adopt(fresh, receivedAt);
  return true;
}

// adopt shows what a fresh page says.
function adopt(fresh, receivedAt) {
  const said = fresh.getElementById("main")?.dataset ?? {};
  for (const name of ["after", "topics", "every"]) if (name in said) page()[name] = said[name];
  setClock(said.now, receivedAt);
  swapParts(fresh);
  const [were, are] = [document.title, fresh.title].map((title) => waitingOf(title));
  document.title = are + document.title.slice(were.length);
  if (count(are) > count(were)) say(count(are) === 1 ? "1 task waits for a person" : count(are) + " tasks wait for a person");
  tick();
  followLogs();
}

// waitingOf is how a title begins when somebody waits: "(3) ".
function waitingOf(title) {
  return /^\(\d+\) /.exec(title)?.[0] ?? "";
}

function count(prefix) {
  return Number(prefix.replace(/\D/g, ""));
}

// refused reports whether the page itself says that it cannot be shown.
function refused() {
  return page().problem !== undefined && page().posted === undefined;
}

// gone is for a page that there is no more: what it showed stays, and says so
// for as long as somebody looks at it.
function gone(fresh) {
  live.state = "gone";
  live.why = fresh.querySelector("main > .box.bad")?.textContent.replace(/\s+/g, " ").trim() ?? "";
  return true;
}

// outdated reports whether the server sends another script than this one: it
// was replaced under the open page. Nothing that was typed is thrown away.
function outdated(fresh) {
  const script = (doc) => doc.querySelector("script[type=module]")?.getAttribute("src");
  return script(fresh) && script(fresh) !== script(document) && page().posted === undefined && !typedIn(document);
}

// ofAnother reports whether somebody has signed in with another key under the
// open page, as in another tab: what it says of whoever looks at it, and what
// its forms offer, is no longer true.
function ofAnother(fresh) {
  const desk = (doc) => doc.getElementById("live")?.dataset.desk;
  return desk(fresh) !== undefined && desk(fresh) !== desk(document);
}

function togglePause() {
  if (ended()) return;
  live.paused = !live.paused;
  remember("picket-paused", live.paused ? "1" : "");
  if (!live.paused) {
    live.waiting = 0;
    stir();
  }
  showLive();
}
