// Light or dark as the page is, and the colours of both, which CSS holds.

/** Whether the page around is dark: JupyterLab says so, as VS Code does; else the system. */
function isDark() {
  const { body } = document;
  const told = body.getAttribute("data-jp-theme-light");
  if (told !== null) return told === "false";
  if (body.classList.contains("vscode-dark")) return true;
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Keep an element's theme that of the page; `changed` is called with the colours, now and whenever they change. */
export function followTheme(root, changed) {
  const apply = () => {
    // A widget is made before it is put into the page, and until then has no style.
    if (!root.isConnected) { requestAnimationFrame(apply); return; }
    root.dataset.theme = isDark() ? "dark" : "light";
    const css = getComputedStyle(root);
    const names = ["paper", "card", "ink", "muted", "line", "grid", "idle", "other", "accent", "alert", "mark"];
    changed(Object.fromEntries(names.map((name) => [name, css.getPropertyValue(`--pl-${name}`).trim()])));
  };
  const watch = new MutationObserver(apply);
  watch.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", apply);
  apply();
  return () => { watch.disconnect(); media.removeEventListener("change", apply); };
}
