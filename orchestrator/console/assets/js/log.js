// The live log: <pre data-log="address of the run's log" data-offset="bytes
// that are already in it" data-max="characters to keep" data-state="how far it
// has come">. The page is brought up to date when the state is another one.

const LOG_POLL = 1_500;
const MAX_LOG_LENGTH = 200_000;

// followLogs reads on in every log of the page, for as long as its run goes on.
function followLogs() {
  for (const el of document.querySelectorAll("[data-log]")) {
    if (el.picketLog !== el.dataset.log) followLog(el);
  }
}

async function followLog(el) {
  const address = el.dataset.log;
  el.picketLog = address;
  delete el.picketLine;
  const text = new TextDecoder();
  let offset = Number(el.dataset.offset) || 0;
  let state = el.dataset.state;
  let wait = LOG_POLL;
  while (el.isConnected && el.dataset.log === address) {
    if (!document.hidden && !live.paused && !updatesEnded()) {
      try {
        const answer = await fetch(address + (address.includes("?") ? "&" : "?") + "offset=" + offset, { headers: { "Picket-Part": "log" }, cache: "no-store", redirect: "manual" });
        if (!answer.ok) throw new Error("log: " + answer.status);
        const bytes = await answer.arrayBuffer();
        if (el.dataset.log !== address) break;
        offset = Number(answer.headers.get("X-Picket-Next")) || offset + bytes.byteLength;
        append(el, text.decode(bytes, { stream: true }));
        const now = answer.headers.get("X-Picket-Log");
        if (state !== undefined && state !== now) requestRefresh();
        state &&= now;
        if (!bytes.byteLength && now === "closed") return;
        wait = bytes.byteLength ? LOG_POLL / 3 : LOG_POLL;
      } catch {
        wait = Math.min(2 * wait, 15_000);
      }
    }
    await sleep(wait);
  }
}

// append keeps to the end of the log where the reader is there, and lets go of
// the beginning when it grows too long.
function append(el, more) {
  if (!more) return;
  const atEnd = el.scrollHeight - el.scrollTop - el.clientHeight < 40;
  const most = Number(el.dataset.max) || MAX_LOG_LENGTH;
  const shown = el.textContent;
  const whole = shown.slice(0, shown.lastIndexOf("\n") + 1); // the last line is written on
  const raw = (el.picketLine ?? shown.slice(whole.length)) + more;
  el.picketLine = raw.slice(raw.lastIndexOf("\n") + 1).slice(-most);
  let text = whole + terminalText(raw);
  if (text.length > most) {
    const cut = text.indexOf("\n", text.length - most);
    text = text.slice(cut < 0 ? text.length - most : cut + 1);
  }
  el.textContent = text;
  if (atEnd) el.scrollTop = el.scrollHeight;
}

const ESCAPES = /\x1b(\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])/g;
const KEPT_CHARACTERS = /[\n\t\u200c\u200d\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u{110bd}\u{110cd}]/u;

// terminalText is what the server says a program has printed, so that a log reads
// the same when the page is loaded again: without colours, each line as a
// terminal leaves it after its last carriage return, and without what turns the
// direction of a text.
function terminalText(raw) {
  const lines = raw.replace(ESCAPES, "").replaceAll("\r\n", "\n").split("\n");
  const left = lines.map((line) => line.replace(/\r$/, "").split("\r").at(-1));
  return left.join("\n").replace(/[\u2028\u2029]/g, "\n").replace(/[\p{Cc}\p{Cf}]/gu, (c) => (KEPT_CHARACTERS.test(c) ? c : ""));
}
