// A button beside commands copies them. Where the browser lets no script copy, it selects them instead.

const COPIED_FOR = 2000; // ms

function startCopying() {
  document.addEventListener("click", async (clicked) => {
    const button = clicked.target.closest("button.copy");
    const text = button?.parentElement.querySelector("pre");
    if (!text) return;
    try {
      await navigator.clipboard.writeText(text.textContent);
      showOutcome(button, "Copied");
    } catch {
      getSelection().selectAllChildren(text);
      showOutcome(button, "Selected");
    }
  });
}

function showOutcome(button, outcome) {
  button.textContent = outcome;
  setTimeout(() => { button.textContent = "Copy"; }, COPIED_FOR);
}
