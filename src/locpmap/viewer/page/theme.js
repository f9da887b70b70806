// Dark or light: as the button was last set, or else as the system is.

const NAME = "locpmap-theme";

export function listenForTheme(button) {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = kept() ?? system;
  button.addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    keep(root.dataset.theme);
  });
}

// A browser may refuse to keep anything.

function kept() {
  try {
    return localStorage.getItem(NAME);
  } catch {
    return null;
  }
}

function keep(theme) {
  try {
    localStorage.setItem(NAME, theme);
  } catch {}
}
