// The row that j and k are at. It has the focus, so that a screen reader reads
// it, and stays marked when the focus goes into one of its forms.

const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.checkVisibility());

function currentRow() {
  return document.activeElement?.closest("[data-row]") ?? document.querySelector("[data-row][data-current]");
}

function moveRow(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(currentRow());
  const to = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step));
  chooseRow(all[to]);
}

function chooseRow(row) {
  leaveRow();
  row.dataset.current = "";
  row.tabIndex = -1;
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

function leaveRow() {
  for (const row of document.querySelectorAll("[data-row][data-current]")) {
    delete row.dataset.current;
    row.removeAttribute("tabindex");
  }
}

// openRow follows the row's link, as a click would.
function openRow(row) {
  (row.querySelector("[data-open]") ?? row.querySelector("a[href]"))?.click();
}
