// Puts the page together.
import { AnnotateView } from "./annotate.js";
import { ask, getJson, learnLimits } from "./api.js";
import { download, toCoco, toCsv, toPng } from "./exports.js";
import { attempt, hideNotice, tell } from "./notice.js";
import { doubtInWords, poseInWords } from "./pair.js";
import { PairView } from "./pairview.js";
import { KernelPanel, MatchesPanel, ScalesPanel, WarpPanel } from "./panels.js";
import { fromExample } from "./pictures.js";
import { showPoints } from "./pointtable.js";
import { makeTabs } from "./tabs.js";

const find = (id) => document.getElementById(id);
let models = [];
let tab = "tab-points";

const getModel = () => models.find((model) => model.name === find("model").value);
const view = new PairView({
  getModel: () => find("model").value,
  onPoints: () => {
    showPoints(find("points"), find("no-points"), view);
    updateExports();
    if (!view.pair) find("pose").textContent = "";
    else if (tab === "tab-matches") attempt(() => matches.open());
  },
  onPair: () => { showStatus(); openTab(); },
  drawExtra: (pen, stage, side) => {
    if (!view.pair) return;
    if (tab === "tab-warp") warp.draw(pen, stage, side);
    if (tab === "tab-matches") matches.draw(pen, stage, side);
    if (tab === "tab-scales") scales.draw(pen, stage, side);
  },
});
const warp = new WarpPanel(view);
const matches = new MatchesPanel(view);
const scales = new ScalesPanel(view, getModel);
const kernel = new KernelPanel(getModel);

function openTab() {
  const panels = { "tab-warp": warp, "tab-matches": matches, "tab-scales": scales, "tab-kernel": kernel };
  if (panels[tab] && (view.pair || tab === "tab-kernel")) attempt(() => panels[tab].open());
  view.paint();
}

const annotate = new AnnotateView(() => find("model").value);
makeTabs(document.querySelector(".views"), (id) => {
  find("status").hidden = id !== "view-pair"; // it is about the pair
  view.paint();
  annotate.stage.paint();
});
makeTabs(document.querySelector(".tabs"), (id) => { tab = id; openTab(); });

function showStatus() {
  const { milliseconds, sourceGrid } = view.pair;
  const took = milliseconds === null ? "from the cache" : `matched in ${Math.round(milliseconds)} ms`;
  find("status").textContent = `${took}, on a grid of ${sourceGrid.join(" × ")}`;
  find("pose").textContent = [doubtInWords(view.pair.sameKind), poseInWords(view.pair.pose)].filter(Boolean).join(" ");
}

function updateExports() {
  for (const button of document.querySelectorAll("[data-export]")) {
    const needsPoints = ["csv", "coco"].includes(button.dataset.export);
    button.disabled = !view?.pair || (needsPoints && !view.points.length);
  }
}

async function exportAs(kind) {
  const { source, target } = view.pictures;
  if (kind === "csv") download(toCsv(view.points), "points.csv", "text/csv");
  else if (kind === "coco") download(toCoco(source, target, view.points, view.pair.model), "points.json", "application/json");
  else if (kind === "png") download(await toPng([view.source, view.target]), "matches.png");
  else download(await (await view.question("flow.npz")).blob(), "flow.npz");
}

for (const button of document.querySelectorAll("[data-export]")) {
  button.addEventListener("click", () => attempt(() => exportAs(button.dataset.export)));
}
find("heat").addEventListener("change", (event) => { view.showHeat = event.target.checked; view.heat = null; view.paint(); });
find("model").addEventListener("change", () => attempt(() => view.match()));
find("forget").addEventListener("click", () => attempt(async () => {
  await ask("/api/session", { method: "DELETE" });
  view.forget();
  annotate.forget();
  tell("Your pictures are deleted from the server.");
}));

async function showExamples({ pictures, pairs }) {
  const known = Object.fromEntries(pictures.map((picture) => [picture.id, picture]));
  const buttons = pairs.map(([first, second]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "false");
    for (const id of [first, second]) {
      const image = new Image(30, 30);
      image.alt = "";
      image.src = known[id].url;
      button.append(image);
    }
    button.append(`${known[first].title} → ${known[second].title}`);
    button.addEventListener("click", () => attempt(() => choose(button, first, second)));
    return button;
  });
  find("examples").replaceChildren(...buttons);
  async function choose(button, first, second) {
    hideNotice();
    const [source, target] = await Promise.all([known[first], known[second]].map(fromExample));
    await view.setPicture("source", source);
    await view.setPicture("target", target);
    for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
    await view.match();
    view.demonstrate();
  }
  if (buttons.length) await choose(buttons[0], ...pairs[0]);
}

// A file that is dropped beside the pictures must not replace the page.
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  if (event.defaultPrevented) return;
  event.preventDefault();
  const files = [...event.dataTransfer.files];
  if (files.length && !find("pair-view").hidden) attempt(() => view.takeFiles(files, view.freeSide()));
});

async function begin() {
  await learnLimits();
  models = await getJson("/api/models");
  find("model").replaceChildren(...models.map((model) => {
    const option = new Option(model.title, model.name, model.default, model.default);
    option.title = model.description;
    return option;
  }));
  updateExports();
  await showExamples(await getJson("/api/examples"));
}

// For tests in a browser, and for the curious.
window.chmnet = { view, annotate };
attempt(begin);
