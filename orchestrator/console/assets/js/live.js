// The page follows what happens: an event that concerns it makes it fetch
// itself and swap what has changed.

const MIN_REFRESH_GAP = 400; // between two fetches, in milliseconds
const HIDDEN_REFRESH_GAP = 5_000; // the same where nobody looks: the title is kept right
const TIMED_REFRESH = 30_000; // what changes with time alone, such as an agent's silence

// After these the number of those who wait may be another.
const WAITING_EVENTS = ["task.handoff", "task.answered", "task.finished", "task.review", "task.completed", "task.cancelled",
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
  gap: MIN_REFRESH_GAP,
};

// page is what the page says of itself: after, the event it is as new as; now,
// the server's clock; topics.
const page = () => document.getElementById("main")?.dataset ?? {};

// startLive joins the stream, where the page says from where.
function startLive() {
  if (page().after === undefined) return;
  live.paused = loadChoice("picket-paused") === "1";
  document.getElementById("live")?.addEventListener("click", togglePause);
  const join = () => joinTabs("/console/live", page().after, document.getElementById("live")?.dataset.desk ?? "", onStreamMessage);
  let leave = join();
  addEventListener("submit", (sent) => setTimeout(() => (live.leaving = !sent.defaultPrevented)));
  addEventListener("pagehide", () => leave());
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    live.leaving = false;
    leave = join();
    requestRefresh();
  });
  document.addEventListener("visibilitychange", () => live.stale && !document.hidden && refreshNow());
  setInterval(() => document.hidden || live.paused || requestRefresh(), TIMED_REFRESH);
  showLive();
}

function onStreamMessage(message) {
  if (live.state === "gone") return;
  if (message.state) {
    const back = message.state === "live" && live.state !== "joining";
    live.state = message.state;
    if (back) requestRefresh();
    showLive();
  }
  if (message.reset) requestRefresh();
  for (const event of message.events ?? []) if (concerns(event)) onRelevantEvent();
}

// concerns reports whether the page looks different after an event. Topics are
// prefixes of types, or ids of tasks, runs and agents; * is all of them. The event of a message names its
// sender, and whom it is to.
function concerns({ type, taskId, runId, agentId, to }) {
  const topics = (page().topics ?? "").split(" ").filter(Boolean);
  return topics.some((t) => t === "*" || type.startsWith(t) || t === taskId || t === runId || t === agentId ||
    t === to) ||
    WAITING_EVENTS.some((t) => type.startsWith(t));
}

// onRelevantEvent is called for each event that changes the page.
function onRelevantEvent() {
  if (live.paused) {
    live.waiting++;
    showLive();
    return;
  }
  requestRefresh();
}

// requestRefresh has the page brought up to date soon, once for all that comes until
// then.
function requestRefresh() {
  live.stale = true;
  scheduleRefresh();
}

// updatesEnded reports whether the page is never brought up to date again.
const updatesEnded = () => live.state === "over" || live.state === "gone";

function scheduleRefresh() {
  if (live.timer || live.fetching || live.paused || live.leaving || updatesEnded()) return;
  const gap = document.hidden ? Math.max(HIDDEN_REFRESH_GAP, live.gap) : live.gap;
  live.timer = setTimeout(refresh, Math.max(0, live.last + gap - Date.now()));
}

// refreshNow is for a person who has come back to look.
function refreshNow() {
  clearTimeout(live.timer);
  live.timer = 0;
  scheduleRefresh();
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
  live.gap = ok ? Math.max(MIN_REFRESH_GAP, 3 * (live.last - began)) : Math.min(2 * live.gap, 10_000);
  if (!ok && !updatesEnded()) live.stale = true;
  showLive();
  if (live.stale) scheduleRefresh();
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
  if (failed && !showsProblem()) return showPageGone(fresh);
  if (!failed && showsProblem() && !typedIn(document)) {
    location.reload(); // what the page could not show is there by now
    return true;
  }
  if (otherLogin(fresh) && typedIn(document)) {
    live.state = "over";
    return false;
  }
  if (otherLogin(fresh) || scriptChanged(fresh)) {
    location.reload();
    return true;
  }
  applyFreshPage(fresh, receivedAt);
  return true;
}

// applyFreshPage shows what a fresh page says.
function applyFreshPage(fresh, receivedAt) {
  const said = fresh.getElementById("main")?.dataset ?? {};
  for (const name of ["after", "topics"]) if (name in said) page()[name] = said[name];
  setClock(said.now, receivedAt);
  swapParts(fresh);
  const [were, are] = [document.title, fresh.title].map((title) => waitingPrefix(title));
  document.title = are + document.title.slice(were.length);
  if (waitingCount(are) > waitingCount(were)) showToast(waitingCount(are) === 1 ? "1 task waits for a person" : waitingCount(are) + " tasks wait for a person");
  tick();
  followLogs();
}

// waitingPrefix is how a title begins when somebody waits: "(3) ".
function waitingPrefix(title) {
  return /^\(\d+\) /.exec(title)?.[0] ?? "";
}

function waitingCount(prefix) {
  return Number(prefix.replace(/\D/g, ""));
}

// showsProblem reports whether the page itself says that it cannot be shown.
function showsProblem() {
  return page().problem !== undefined && page().posted === undefined;
}

// showPageGone is for a page that there is no more: what it showed stays, and reports it
// for as long as somebody looks at it.
function showPageGone(fresh) {
  live.state = "gone";
  live.why = fresh.querySelector("main > .box.bad")?.textContent.replace(/\s+/g, " ").trim() ?? "";
  return true;
}

// scriptChanged reports whether the server sends another script than this one: it
// was replaced under the open page. Nothing that was typed is thrown away.
function scriptChanged(fresh) {
  const script = (doc) => doc.querySelector("script[type=module]")?.getAttribute("src");
  return script(fresh) && script(fresh) !== script(document) && page().posted === undefined && !typedIn(document);
}

// otherLogin reports whether somebody has signed in with another key under the
// open page, as in another tab: what it says of anyone who looks at it, and what
// its forms offer, is no longer true.
function otherLogin(fresh) {
  const loginId = (doc) => doc.getElementById("live")?.dataset.desk;
  return loginId(fresh) !== undefined && loginId(fresh) !== loginId(document);
}

function togglePause() {
  if (updatesEnded()) return;
  live.paused = !live.paused;
  saveChoice("picket-paused", live.paused ? "1" : "");
  if (!live.paused) {
    live.waiting = 0;
    requestRefresh();
  }
  showLive();
}
