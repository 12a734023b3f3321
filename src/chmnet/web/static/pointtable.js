// The list of kept points: numbers to read, buttons, and keys for people without a pointer.
import { colour, ink } from "./stage.js";

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function showPoints(table, empty, view) {
  const body = table.querySelector("tbody");
  const focused = [...body.children].indexOf(document.activeElement?.closest("tr"));
  table.hidden = !view.points.length;
  empty.hidden = Boolean(view.points.length);
  body.replaceChildren(...view.points.map((point, index) => makeRow(point, index, view)));
  if (focused >= 0) body.children[Math.min(focused, body.children.length - 1)]?.focus();
}

function makeRow(point, index, view) {
  const row = document.createElement("tr");
  row.tabIndex = 0;
  row.setAttribute("aria-label", `Point ${index + 1}. Arrow keys correct it in the target, Delete removes it.`);
  const badge = element("span", "badge", index + 1);
  badge.style.background = colour(index);
  badge.style.color = ink(colour(index));
  const confidence = point.corrected ? element("span", "corrected", "corrected by hand") : meter(point.confidence);
  const buttons = [button("Remove", `Remove point ${index + 1}`, () => view.remove(index))];
  if (point.corrected) buttons.unshift(button("Undo", `Take back the correction of point ${index + 1}`, () => view.reset(index)), " ");
  row.append(cell(badge), cell(format(point.source)), cell(format(point.target)), cell(confidence), cell(...buttons));
  row.addEventListener("keydown", (event) => {
    if (event.target !== row) return;
    if (KEYS[event.key]) view.nudge(index, ...KEYS[event.key].map((step) => step * (event.shiftKey ? 10 : 1)));
    else if (event.key === "Delete" || event.key === "Backspace") view.remove(index);
    else return;
    event.preventDefault();
  });
  return row;
}

const format = (point) => `${point.x.toFixed(1)}, ${point.y.toFixed(1)}`;

function meter(confidence) {
  const bar = element("span", "meter"), fill = document.createElement("i");
  fill.style.width = `${100 * confidence}%`;
  bar.append(fill);
  const box = document.createElement("span");
  box.append(bar, ` ${confidence.toFixed(2)}`);
  return box;
}

function element(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

function cell(...content) {
  const made = document.createElement("td");
  made.append(...content);
  return made;
}

function button(text, label, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}
