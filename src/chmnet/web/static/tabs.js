// Tabs as the ARIA practices ask: arrow keys move, only the chosen one is in the tab order.

export function makeTabs(list, onChoose) {
  const tabs = [...list.querySelectorAll("[role=tab]")];
  const choose = (tab, focus = true) => {
    for (const each of tabs) {
      const chosen = each === tab;
      each.setAttribute("aria-selected", String(chosen));
      each.tabIndex = chosen ? 0 : -1;
      document.getElementById(each.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (focus) tab.focus();
    onChoose(tab.id);
  };
  for (const tab of tabs) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose(tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length]);
    });
  }
  return { choose: (id) => choose(document.getElementById(id), false) };
}
