// What the script itself says on the page: the live switch, notes of a moment,
// and that the login has ended.

const CAPTIONS = { joining: "Connecting", live: "Live", lost: "Disconnected, trying again", over: "Signed out", gone: "Not updated" };

// showLive fills the switch for live updates.
function showLive() {
  const button = document.getElementById("live");
  if (!button) return;
  const shown = live.state === "live" && live.paused ? "paused" : live.state;
  const waits = live.waiting === 1 ? "1 update waits" : live.waiting + " updates wait";
  button.hidden = false;
  button.dataset.state = shown;
  button.dataset.waiting = live.waiting;
  button.setAttribute("aria-pressed", String(live.paused));
  button.title = live.paused ? "Go on with live updates (p)" : "Pause live updates (p)";
  const text = shown === "paused" ? "Paused" + (live.waiting ? " · " + waits : "") : CAPTIONS[shown];
  if (button.textContent !== text) button.textContent = text;
  if (shown === "over") showEndedNote("Your login has ended.", "/console/login?next=" + encodeURIComponent(pageAddress()), "Sign in again");
  else if (shown === "gone") showEndedNote(live.why || "There is no such page any more.", pageAddress(), "Load it again");
  else if (shown === "live") document.getElementById("over")?.remove(); // somebody has signed in again, in another tab
}

// pageAddress is the address of the page: the answer to a form has none.
const pageAddress = () => (page().posted === undefined ? location.pathname + location.search : page().self);

// showEndedNote says, for as long as the page is looked at, that it stays as it is.
function showEndedNote(why, href, text) {
  if (document.getElementById("over")) return;
  const note = element("p", why + " What you see here is no longer brought up to date. ", { id: "over", class: "held", role: "alert" });
  note.append(element("a", text, { href }));
  (document.querySelector("main") ?? document.body).prepend(note);
}

// showToast shows a note for some seconds.
function showToast(text) {
  const toast = document.getElementById("toast");
  if (!toast) return;
  toast.textContent = text;
  toast.dataset.shown = "1";
  clearTimeout(showToast.timer);
  showToast.timer = setTimeout(() => delete toast.dataset.shown, 6_000);
}

// loadChoice and remember keep a choice for this tab.
function loadChoice(name) {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return null;
  }
}

function saveChoice(name, value) {
  try {
    sessionStorage.setItem(name, value);
  } catch {
    // Without storage the choice lasts for this page.
  }
}

// showHeldNote says before a part that there is something newer, and has it shown
// when the person wants it.
function showHeldNote(part, show, text = "This has changed while you were writing. ", choice = "Show the change") {
  removeHeldNote(part);
  const note = document.createElement("p");
  note.className = "held";
  note.setAttribute("role", "status");
  note.append(text);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = choice;
  button.addEventListener("click", () => {
    removeHeldNote(part);
    show();
    tick();
  });
  note.append(button);
  part.before(note);
}

function removeHeldNote(part) {
  if (part.previousElementSibling?.matches(".held:not(#over)")) part.previousElementSibling.remove();
}
