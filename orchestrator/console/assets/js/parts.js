// A page is brought up to date in place: nodes that stay the same stay the same
// nodes, so focus, selection, scrolling, open details and what somebody has
// typed are kept. A part (<section id data-part>) or form in which somebody
// writes or selects is left alone, and says so.

// What this script or the person has put on an element, and the server does not
// know of.
const OURS = new Set(["open", "tabindex", "data-current"]);

// What was said once on the page stays until it is left.
const SAID = "main > .box, .held";

// swapParts makes the page look like fresh. The answer to a form is no page of
// an address: it stays as it is, but for what stands around it.
function swapParts(fresh) {
  for (const old of document.querySelectorAll("[data-part][id]")) {
    const now = old.closest("main") ? null : fresh.getElementById(old.id);
    if (now) match(old, now);
  }
  const now = page().posted === undefined ? fresh.getElementById("main") : null;
  for (const box of now?.querySelectorAll(SAID) ?? []) box.remove();
  if (now) matchChildren(document.getElementById("main"), now);
}

// match makes old look like now and keeps as many nodes as it can.
function match(old, now, whatever = false) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  if (old.matches("[data-part], form")) {
    if (!whatever && inUse(old)) return same(old, now) || noteHeld(old, () => match(old, now, true));
    dropNote(old);
  }
  if (old.matches("input[name=once]")) return; // a form in the middle of being sent keeps its number
  if (old.matches("input[name=digest]") && !whatever) return keepDigest(old, now);
  const log = old.dataset.log;
  matchAttributes(old, now);
  if (log !== undefined && log === now.dataset.log) return; // it follows by itself
  matchChildren(old, now, whatever);
}

// keepDigest leaves a decision on what the person opened: new evidence is shown,
// and becomes what is decided about only when the person says so.
function keepDigest(old, now) {
  const fresh = now.getAttribute("value");
  if (old.value === fresh) return;
  const accept = () => {
    old.value = fresh;
    old.setAttribute("value", fresh);
  };
  noteHeld(old.closest("[data-part]") ?? old.form, accept,
    "What was handed in has changed since you opened this page. ", "Decide on what is shown now");
}

function matchAttributes(old, now) {
  for (const { name } of [...old.attributes]) {
    if (!now.hasAttribute(name) && !OURS.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (!OURS.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function matchChildren(old, now, whatever) {
  const named = new Map();
  for (const child of old.children) if (nameOf(child)) named.set(nameOf(child), child);
  const wanted = new Set([...now.children].map(nameOf));
  let at = old.firstChild;
  for (const next of [...now.childNodes]) {
    // What goes, goes first: a node that is moved loses the focus.
    while (at && (stays(at) || (nameOf(at) && !wanted.has(nameOf(at))))) at = past(at);
    const found = named.get(nameOf(next));
    if (found && found.tagName === next.tagName) {
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      named.delete(nameOf(next));
      match(found, next, whatever);
    } else if (at && alike(at, next)) {
      const kept = at;
      at = at.nextSibling;
      match(kept, next, whatever);
    } else {
      old.insertBefore(document.importNode(next, true), at);
    }
  }
  while (at) at = past(at);
}

// past takes a node away that is no longer there, unless somebody writes in it,
// and answers the one after it.
function past(node) {
  const next = node.nextSibling;
  if (stays(node)) return next;
  if (node.nodeType === Node.ELEMENT_NODE && node.matches("[data-part], form") && inUse(node)) {
    noteHeld(node, () => node.remove());
  } else {
    if (node.nodeType === Node.ELEMENT_NODE) dropNote(node);
    node.remove();
  }
  return next;
}

function stays(node) {
  return node.nodeType === Node.ELEMENT_NODE && node.matches(SAID);
}

// nameOf tells rows and the like apart: one that goes must not lend its node,
// with the focus in it, to its neighbour. Rows that may lead to the same page
// need an id.
function nameOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  const link = node.matches("tr, li") ? node.querySelector("a[href]") : node;
  return node.id || link?.getAttribute("href") || node.getAttribute("action") || "";
}

function alike(a, b) {
  if (a.nodeType !== b.nodeType) return false;
  return a.nodeType !== Node.ELEMENT_NODE || (a.tagName === b.tagName && nameOf(a) === nameOf(b));
}

// inUse reports whether somebody would lose something by a change.
function inUse(part) {
  const selection = getSelection();
  return (selection && !selection.isCollapsed && part.contains(selection.anchorNode)) || typedIn(part);
}

// typedIn reports whether fields are other than they came.
function typedIn(root) {
  return [...root.querySelectorAll("input, textarea, select")].some((field) => {
    if (field.matches("[type=hidden], [readonly], [data-search], form[method=get] *")) return false;
    if (field.matches("[type=checkbox], [type=radio]")) return field.checked !== field.defaultChecked;
    if (field.matches("select")) return field.selectedIndex !== chosenFirst(field);
    return field.value !== field.defaultValue;
  });
}

function chosenFirst(select) {
  const first = [...select.options].findIndex((option) => option.defaultSelected);
  return first < 0 && !select.multiple ? 0 : first;
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
