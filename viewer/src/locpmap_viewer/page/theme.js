// Dark or light theme: the last choice of the button, else the setting of the system.

const NAME = "locpmap-theme";

export function listenForTheme(button) {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const show = (theme) => {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light theme" : "Dark theme";
  };
  show(stored() ?? system);
  button.addEventListener("click", () => {
    show(root.dataset.theme === "dark" ? "light" : "dark");
    store(root.dataset.theme);
  });
}

// A browser may deny access to its storage.

function stored() {
  try {
    return localStorage.getItem(NAME);
  } catch {
    return null;
  }
}

function store(theme) {
  try {
    localStorage.setItem(NAME, theme);
  } catch {}
}
