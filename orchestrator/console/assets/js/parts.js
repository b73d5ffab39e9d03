// A page is brought up to date in place: nodes that stay the same stay the same
// nodes, so focus, selection, scrolling, open details and what somebody has
// typed are kept. A part (<section id data-part>) or form in which somebody
// writes or selects is left alone, and reports it.

// What this script or the person has put on an element, and the server does not
// know of.
const LOCAL_ATTRIBUTES = new Set(["open", "tabindex", "data-current", "data-told"]);

// What was said once on the page stays until it is left.
const KEPT_NODES = "main > .box, .held";

// swapParts makes the page look like fresh. The answer to a form is not a page of
// an address: it stays as it is except for what stands around it.
function swapParts(fresh) {
  for (const old of document.querySelectorAll("[data-part][id]")) {
    const now = old.closest("main") ? null : fresh.getElementById(old.id);
    if (now) morph(old, now);
  }
  const now = page().posted === undefined ? fresh.getElementById("main") : null;
  for (const box of now?.querySelectorAll(KEPT_NODES) ?? []) box.remove();
  if (now) morphChildren(document.getElementById("main"), now);
}

// morph makes old look like now and keeps as many nodes as it can.
function morph(old, now, force = false) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  if (old.matches("[data-still]") && typedIn(old)) return keepDraft(old, now);
  if (old.matches("[data-part], form")) {
    if (!force && inUse(old)) return looksSame(old, now) || showHeldNote(old, () => morph(old, now, true));
    removeHeldNote(old);
  }
  if (old.matches("input[name=once]")) return; // a form in the middle of being sent keeps its number
  if (old.matches("input[name=digest]") && !force) return keepDigest(old, now);
  const log = old.dataset.log;
  morphAttributes(old, now);
  if (log !== undefined && log === now.dataset.log) return; // it follows automatically
  morphChildren(old, now, force);
  if (old.matches(".numbered textarea")) old.value = old.defaultValue; // it may have been typed in before
}

// keepDigest leaves a decision on what the person opened: new evidence is shown,
// and becomes what is decided about only when the person confirms it.
function keepDigest(old, now) {
  const fresh = now.getAttribute("value");
  if (old.value === fresh) return;
  const accept = () => {
    old.value = fresh;
    old.setAttribute("value", fresh);
  };
  showHeldNote(old.closest("[data-part]") ?? old.form, accept,
    "What was handed in has changed since you opened this page. ", "Decide on what is shown now");
}

function morphAttributes(old, now) {
  for (const { name } of [...old.attributes]) {
    if (!now.hasAttribute(name) && !LOCAL_ATTRIBUTES.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (!LOCAL_ATTRIBUTES.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function morphChildren(old, now, force) {
  const named = new Map();
  for (const child of old.children) if (nameOf(child)) named.set(nameOf(child), child);
  const wanted = new Set([...now.children].map(nameOf));
  let at = old.firstChild;
  for (const next of [...now.childNodes]) {
    // What goes, goes first: a node that is moved loses the focus. So does one behind which an old node
    // stays, such as the blanks around a note that the fresh page does not have.
    while (at && (isKept(at) || (nameOf(at) && !wanted.has(nameOf(at))) || (isBlank(at) && !isBlank(next)))) at = removeNode(at);
    const found = named.get(nameOf(next));
    if (found && found.tagName === next.tagName) {
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      named.delete(nameOf(next));
      morph(found, next, force);
    } else if (at && sameNode(at, next)) {
      const kept = at;
      at = at.nextSibling;
      morph(kept, next, force);
    } else {
      old.insertBefore(document.importNode(next, true), at);
    }
  }
  while (at) at = removeNode(at);
}

// removeNode takes a node away that is no longer there, unless somebody writes in it,
// and answers the one after it.
function removeNode(node) {
  const next = node.nextSibling;
  if (isKept(node)) return next;
  if (node.nodeType === Node.ELEMENT_NODE && node.matches("[data-part], form") && inUse(node)) {
    showHeldNote(node, () => node.remove());
  } else {
    if (node.nodeType === Node.ELEMENT_NODE) removeHeldNote(node);
    node.remove();
  }
  return next;
}

// isBlank reports whether a node is the blanks between elements.
function isBlank(node) {
  return node.nodeType === Node.TEXT_NODE && !node.data.trim();
}

function isKept(node) {
  return node.nodeType === Node.ELEMENT_NODE && node.matches(KEPT_NODES);
}

// nameOf tells rows and the like apart: one that goes must not lend its node,
// with the focus in it, to its neighbour. Rows that may lead to the same page
// need an id.
function nameOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  const link = node.matches("tr, li") ? node.querySelector("a[href]") : node;
  return node.id || link?.getAttribute("href") || node.getAttribute("action") || "";
}

function sameNode(a, b) {
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
    if (field.matches("select")) return field.selectedIndex !== defaultOption(field);
    return field.value !== field.defaultValue;
  });
}

function defaultOption(select) {
  const first = [...select.options].findIndex((option) => option.defaultSelected);
  return first < 0 && !select.multiple ? 0 : first;
}

// looksSame compares what a person would see. It ignores the numbers of forms, which are new with
// every page, and times, which the script updates.
function looksSame(old, now) {
  return visibleHTML(old) === visibleHTML(now);
}

function visibleHTML(part) {
  const copy = part.cloneNode(true);
  for (const el of copy.querySelectorAll("input[name=once]")) el.removeAttribute("value");
  for (const el of copy.querySelectorAll("time[data-at], [data-log]")) {
    el.textContent = "";
    el.removeAttribute("class");
  }
  for (const el of copy.querySelectorAll("[data-left-bar]")) el.removeAttribute("value");
  for (const el of [copy, ...copy.querySelectorAll("*")]) for (const name of LOCAL_ATTRIBUTES) el.removeAttribute(name);
  return copy.innerHTML;
}
