// The help lists the keys that mean something on this page.

function toggleHelp() {
  const open = document.getElementById("help");
  if (open) return open.close();
  const dialog = element("dialog", "", { id: "help", "aria-label": "Keyboard" });
  dialog.append(element("h2", "Keyboard"), keyTable());
  const form = element("form", "", { method: "dialog" });
  form.append(element("button", "Close"));
  dialog.append(form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function keyTable() {
  const table = element("table", "");
  const add = (keys, text) => {
    const row = element("tr", "");
    const cell = element("td", "");
    for (const key of keys) cell.append(element("kbd", key), " ");
    row.append(cell, element("td", text));
    table.append(row);
  };
  for (const [key, text] of KEYS) add([key], text);
  const seen = new Set(KEYS.map(([key]) => key));
  for (const el of document.querySelectorAll("main [data-key]")) {
    if (seen.has(el.dataset.key)) continue;
    seen.add(el.dataset.key);
    add([el.dataset.key], el.dataset.help ?? el.getAttribute("aria-label") ?? el.textContent.trim().slice(0, 60));
  }
  for (const [letter, link] of navigationLinks()) add(["g", letter], "go to " + link.firstChild.textContent.trim());
  return table;
}

function element(name, text, attributes = {}) {
  const el = document.createElement(name);
  el.textContent = text;
  for (const [key, value] of Object.entries(attributes)) el.setAttribute(key, value);
  return el;
}
