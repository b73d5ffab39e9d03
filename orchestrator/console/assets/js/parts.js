// A page is brought up to date part by part: <section id data-part>. Nodes that
// stay the same stay the same nodes, so focus, selection, scrolling, open
// details and what somebody has typed are kept.

// What this script or the person has put on an element, and the server does not
// know of.
const OURS = new Set(["open", "data-current"]);

// swapParts brings the page up to what fresh says. A part in which somebody
// writes or selects is left as it is, and counted in the answer.
function swapParts(fresh) {
  let held = 0;
  for (const now of fresh.querySelectorAll("[data-part][id]")) {
    const old = document.getElementById(now.id);
    if (!old || same(old, now)) continue;
    if (inUse(old)) {
      held++;
      noteHeld(old, now);
      continue;
    }
    dropNote(old);
    match(old, now);
  }
  return held;
}

// inUse reports whether somebody would lose something by a change.
function inUse(part) {
  const selection = getSelection();
  if (selection && !selection.isCollapsed && part.contains(selection.anchorNode)) return true;
  return typedIn(part);
}

function typedIn(root) {
  return [...root.querySelectorAll("input, textarea, select")].some((field) => {
    if (field.type === "hidden" || field.closest("[data-search], form[method=get]")) return false;
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.tagName === "SELECT") return field.selectedIndex !== chosenFirst(field);
    // What was sent and refused was typed as well.
    return field.value !== (page().posted === undefined ? field.defaultValue : "");
  });
}

function chosenFirst(select) {
  const first = [...select.options].findIndex((option) => option.defaultSelected);
  return first < 0 && !select.multiple ? 0 : first;
}

// noteHeld says that there is something newer and lets the person have it; what
// they have typed stays.
function noteHeld(part, now) {
  dropNote(part);
  const note = document.createElement("p");
  note.className = "held";
  note.dataset.heldFor = part.id;
  note.setAttribute("role", "status");
  note.append("This has changed while you were writing. ");
  const show = document.createElement("button");
  show.type = "button";
  show.textContent = "Show the change, keep what I wrote";
  show.addEventListener("click", () => {
    dropNote(part);
    match(part, now);
    tick(part);
  });
  note.append(show);
  part.before(note);
}

function dropNote(part) {
  const before = part.previousElementSibling;
  if (before?.dataset.heldFor === part.id) before.remove();
}

// same compares what a person would see: numbers of forms are new with every
// page, and times tick by themselves.
function same(old, now) {
  return seen(old) === seen(now);
}

function seen(part) {
  const copy = part.cloneNode(true);
  for (const el of copy.querySelectorAll("input[name=once]")) el.removeAttribute("value");
  for (const el of copy.querySelectorAll("time[data-at], [data-log]")) {
    el.textContent = "";
    el.removeAttribute("class");
  }
  for (const el of copy.querySelectorAll("[data-left-bar]")) el.removeAttribute("value");
  for (const el of [copy, ...copy.querySelectorAll("*")]) for (const name of OURS) el.removeAttribute(name);
  return copy.innerHTML;
}

// match makes old look like now and keeps as many nodes as it can.
function match(old, now) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  if (old.matches("input[name=once]")) return; // a form in the middle of being sent keeps its number
  const log = old.dataset?.log;
  matchAttributes(old, now);
  if (log !== undefined && log === now.dataset.log) return; // it follows by itself
  matchChildren(old, now);
}

function matchAttributes(old, now) {
  for (const { name } of [...old.attributes]) {
    if (!now.hasAttribute(name) && !OURS.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (OURS.has(name) || old.getAttribute(name) === value) continue;
    old.setAttribute(name, value);
  }
}

function matchChildren(old, now) {
  const named = new Map();
  for (const child of old.children) if (nameOf(child)) named.set(nameOf(child), child);
  const wanted = new Set([...now.children].map(nameOf));
  let at = old.firstChild;
  for (const next of [...now.childNodes]) {
    // What goes, goes first: a node that is moved loses the focus.
    while (at && nameOf(at) && !wanted.has(nameOf(at))) at = removed(at);
    const found = named.get(nameOf(next));
    if (found && found.tagName === next.tagName) {
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      named.delete(nameOf(next));
      match(found, next);
    } else if (at && alike(at, next)) {
      const kept = at;
      at = at.nextSibling;
      match(kept, next);
    } else {
      old.insertBefore(document.importNode(next, true), at);
    }
  }
  while (at) at = removed(at);
}

// removed takes a node away and answers the one after it.
function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// nameOf tells rows and the like apart: one that goes must not lend its node,
// with the focus in it, to its neighbour.
function nameOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  return node.id || node.dataset.row || node.getAttribute("href") || node.getAttribute("action") || "";
}

function alike(a, b) {
  if (a.nodeType !== b.nodeType) return false;
  return a.nodeType !== Node.ELEMENT_NODE || (a.tagName === b.tagName && nameOf(a) === nameOf(b));
}
