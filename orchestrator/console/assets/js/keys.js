// The keyboard. No key has an effect while somebody types, and no key decides alone: a key moves
// the focus to a form, and Enter then sends it.

const PENDING = 1_500; // how long g waits for its letter, in milliseconds

const KEYS = [
  ["?", "this help", () => toggleHelp()],
  ["j", "next row", () => moveRow(1)],
  ["k", "previous row", () => moveRow(-1)],
  ["Enter", "open the row", null],
  ["a", "approve, or answer: goes to the form; Enter then sends it", () => toForm("a")],
  ["r", "reject: goes to the form; Enter then sends it", () => toForm("r")],
  ["Ctrl+Enter", "send the form in which you write", null],
  ["/", "search", () => document.querySelector("[data-search]")?.focus()],
  ["p", "pause live updates, and go on with them", () => page().after !== undefined && togglePause()],
  ["Escape", "leave a field, a row or this help", null],
];

let pending = 0; // the time until which g waits

function startKeys() {
  addEventListener("keydown", (pressed) => {
    if (pressed.defaultPrevented || pressed.isComposing || pressed.altKey) return;
    if (pressed.ctrlKey || pressed.metaKey) {
      if (pressed.key === "Enter") submitForm(pressed);
      return;
    }
    if (pressed.key === "Escape") return escape();
    if (isTextField(pressed.target) || document.querySelector("dialog[open]:not(#help)")) return;
    if (handleKey(pressed)) pressed.preventDefault();
  });
}

// handleKey does what a key stands for and reports whether it stands for something.
function handleKey({ key, target, repeat }) {
  if (pending > Date.now()) {
    pending = 0;
    return followLink(key);
  }
  if (key === "g") {
    pending = Date.now() + PENDING;
    return true;
  }
  if (key === "Enter") {
    if (!target.matches("[data-row]")) return false; // links and buttons have their own
    openRow(target);
    return true;
  }
  const [, , act] = KEYS.find(([name]) => name === key) ?? [];
  if (act) {
    if (!repeat || key === "j" || key === "k") act();
    return true;
  }
  return key.length === 1 && !repeat && toForm(key);
}

// isTextField reports whether keys are text there.
function isTextField(el) {
  if (!(el instanceof HTMLElement)) return false;
  if (el.isContentEditable || el.matches("textarea, select")) return true;
  return el.matches("input") && !["checkbox", "radio", "button", "submit", "reset"].includes(el.type);
}

// navigationLinks are the links of the navigation by their letter.
function navigationLinks() {
  const found = new Map();
  for (const link of document.querySelectorAll("a[data-go]")) found.set(link.dataset.go, link);
  return found;
}

function followLink(letter) {
  const link = navigationLinks().get(letter);
  link?.click();
  return link !== undefined;
}

// toForm brings the focus to what a letter stands for, in the current row or
// else on the page: to the first field that has to be filled in, or the button.
function toForm(letter) {
  const at = `[data-key="${CSS.escape(letter)}"]`;
  const found = currentRow()?.querySelector(at) ?? document.querySelector("main " + at);
  if (!found) return letter === "a" || letter === "r";
  for (let up = found.closest("details"); up; up = up.parentElement?.closest("details")) up.open = true;
  if (found.matches("a[href]")) {
    found.click();
    return true;
  }
  const field = found.querySelector("[data-first], textarea[required], input[required]:not([type=hidden])") ??
    found.querySelector("button:not([type=button])");
  const target = found.matches("form, fieldset, div, section") ? field : found;
  target?.focus();
  target?.scrollIntoView({ block: "nearest" });
  return true;
}

function submitForm(pressed) {
  if (!(pressed.target instanceof HTMLTextAreaElement) || !pressed.target.form) return;
  pressed.preventDefault();
  pressed.target.form.requestSubmit(pressed.target.form.querySelector("button:not([type=button])"));
}

function escape() {
  pending = 0;
  const dialog = document.querySelector("dialog[open]");
  if (dialog) return dialog.close();
  const menu = document.activeElement?.closest("details.menu[open]");
  if (menu) menu.open = false;
  const row = document.activeElement?.closest("[data-row]");
  if (row && row !== document.activeElement) return chooseRow(row);
  leaveRow();
  document.activeElement?.blur();
}
