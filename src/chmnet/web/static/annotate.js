// Annotate a folder: label one picture, carry its points to the others, review the doubtful ones first, export.
import { ask, askAbout, getJson, loadPicture } from "./api.js";
import { BoxTool } from "./boxes.js";
import { download } from "./exports.js";
import { cocoOf } from "./coco.js";
import { announce, attempt, hideNotice, tell } from "./notice.js";
import { clamp } from "./pair.js";
import { fromBlob, fromExample } from "./pictures.js";
import { colour, drawPin, drawProbe, ink, Stage } from "./stage.js";

const POLL_MS = 250;
const MOST_LABELLED = 20;
const KEY_STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class AnnotateView {
  constructor(getModel) {
    this.getModel = getModel;
    this.items = [];
    this.names = [];
    this.current = null;
    this.reference = null;
    this.chosen = -1;
    this.find = (name) => document.querySelector(`#annotate-view [data-part=${name}]`);
    this.stage = new Stage(this.find("canvas"), (pen, stage) => this.draw(pen, stage));
    this.boxTool = new BoxTool(this.find("work").querySelector(".stage"), this.stage, () => this.takeBox());
    this.wire();
    this.refresh();
  }

  wire() {
    for (const name of ["files", "folder"]) {
      const input = this.find(`${name}-input`);
      this.find(name).addEventListener("click", () => input.click());
      input.addEventListener("change", () => { const files = [...input.files]; input.value = ""; attempt(() => this.add(files)); });
    }
    this.find("use-examples").addEventListener("click", () => attempt(() => this.addExamples()));
    const view = document.getElementById("annotate-view");
    view.addEventListener("dragover", (event) => event.preventDefault());
    view.addEventListener("drop", (event) => { event.preventDefault(); attempt(() => this.add([...event.dataTransfer.files])); });
    this.find("propagate").addEventListener("click", () => attempt(() => this.propagate()));
    this.find("stop").addEventListener("click", () => attempt(() => this.stop()));
    this.find("right").addEventListener("click", () => this.accept());
    this.find("make-reference").addEventListener("click", () => this.makeReference());
    this.find("export").addEventListener("click", () => download(cocoOf(this.items, this.names, { model: this.getModel() }), "annotations.json", "application/json"));
    this.listen(this.stage.canvas);
  }

  // ------------------------------------------------------------ pictures

  async add(files) {
    hideNotice();
    const pictures = files.filter((file) => file.type.startsWith("image/"));
    if (!pictures.length) throw new Error("There is no picture among these files. Choose PNG, JPEG, WebP, GIF or BMP files.");
    let skipped = 0;
    for (const file of pictures.sort((a, b) => a.name.localeCompare(b.name))) {
      try {
        this.addPicture(await fromBlob(file, file.name));
      } catch { skipped += 1; }
    }
    if (skipped) tell(`${skipped} of ${pictures.length} pictures cannot be shown and were left out.`);
  }

  async addExamples() {
    const { pictures } = await getJson("/api/examples");
    for (const example of pictures) this.addPicture(await fromExample(example));
  }

  addPicture(picture) {
    const item = { picture, points: [], reviewed: false };
    this.items.push(item);
    if (!this.reference) this.reference = item;
    if (!this.current) this.open(item);
    this.refresh();
  }

  open(item) {
    this.current = item;
    if (!this.reference?.points.length) this.reference = item;
    this.chosen = -1;
    this.probe = null;
    this.stage.show(item.picture);
    this.boxTool.set(item.box ?? null, true);
    this.refresh();
  }

  /** Where the thing is in the picture that is open; its points are found there when they are found again. */
  takeBox() {
    if (!this.current) return;
    this.current.box = this.boxTool.box;
    this.refresh();
  }

  isReference() { return this.current !== null && this.current === this.reference; }

  makeReference() {
    this.reference.reviewed = true; // its points were placed by hand, and still count
    this.reference = this.current;
    this.current.reviewed = true;
    this.refresh();
  }

  forget() {
    this.items = [];
    this.names = [];
    this.current = this.reference = null;
    this.boxTool.set(null, true);
    this.stage.show(null);
    this.refresh();
  }

  // ------------------------------------------------------------ points

  addPoint(point) {
    if (!this.current || !this.isReference()) return;
    this.current.points.push({ ...point, confidence: 1, corrected: true });
    if (this.names.length < this.current.points.length) this.names.push(`point ${this.current.points.length}`);
    this.chosen = this.current.points.length - 1;
    announce(`Point ${this.chosen + 1} placed.`);
    this.refresh();
  }

  removePoint(index) {
    for (const item of this.items) item.points.splice(index, 1);
    this.names.splice(index, 1);
    this.chosen = -1;
    this.refresh();
  }

  movePoint(index, point) {
    this.current.points[index] = { ...this.current.points[index], ...point, confidence: 1, corrected: true };
    this.stage.paint();
  }

  // ------------------------------------------------------------ propagation

  /** Pictures whose points a person has placed or reviewed: each picture takes the one that matches it best. */
  labelled() { return [this.reference, ...this.items.filter((item) => item !== this.reference && item.reviewed)].filter((item) => item?.points.length).slice(0, MOST_LABELLED); }

  others() { return this.items.filter((item) => item !== this.reference && (!item.reviewed || item.points.length < this.names.length)); }

  async propagate() {
    hideNotice();
    const others = this.others(), labelled = this.labelled();
    this.progress("Sending pictures", 0, others.length);
    try {
      const everyone = [...new Set([...labelled, ...others])];
      for (const [number, { picture }] of everyone.entries()) {
        if (!picture.id) picture.id = (await loadPicture(picture.blob)).id;
        this.progress("Sending pictures", number, others.length);
      }
      const places = (item) => this.names.map((_, index) => item.points[index]).map((point) => (point ? [point.x, point.y] : null));
      const sources = labelled.map((item) => ({ item, points: places(item) })); // as they are now: they may change during the request
      const names = this.names.map((name) => name.slice(0, 200));
      const body = () => JSON.stringify({
        sources: sources.map(({ item, points }) => ({ picture: item.picture.id, points })), targets: others.map((item) => item.picture.id), model: this.getModel(), names,
        boxes: Object.fromEntries(others.filter((item) => item.box).map((item) => [item.picture.id, item.box])),
      });
      const answer = await askAbout(everyone.map((item) => item.picture), () => "/api/propagations", { method: "POST", get body() { return body(); }, headers: { "Content-Type": "application/json" } });
      this.job = await answer.json();
      while (this.job.state === "running") {
        this.progress("Finding the points", this.job.done, this.job.total);
        await new Promise((done) => setTimeout(done, POLL_MS));
        this.job = await getJson(`/api/propagations/${this.job.id}`);
        this.take(this.job, others);
      }
      this.take(this.job, others);
      if (this.job.state === "failed") throw new Error(`The points could not be found in all pictures: ${this.job.error}.`);
    } finally {
      this.progress(null);
    }
    const first = this.order().find((item) => item !== this.reference && !item.reviewed);
    if (first) this.open(first);
    announce("The points are placed. The doubtful pictures come first.");
  }

  take(job, others) {
    job.pictures.forEach((found, number) => {
      const item = others[number];
      if (item.taken === job.id) return;
      item.taken = job.id;
      const before = item.points, { width, height } = item.picture;
      item.points = found.points.map((place, index) => {
        const known = before[index];
        if (known && (known.corrected || item.reviewed)) return known; // what a person did stays
        return place && { x: clamp(place[0], 0, width), y: clamp(place[1], 0, height), confidence: found.confidences[index], unmatched: found.unmatched?.[index] ?? null, foreground: found.foreground?.[index] ?? null, corrected: false, doubtful: found.doubtful[index] };
      });
      item.pose = found.pose;
      item.sources = found.sources.map((id) => this.items.find((each) => each.picture.id === id)?.picture.name).filter(Boolean);
      if (item.points.some((point, index) => point && !before[index])) item.reviewed = false; // there is something new to review
    });
    this.refresh();
  }

  async stop() { if (this.job) await ask(`/api/propagations/${this.job.id}`, { method: "DELETE" }); }

  accept() {
    if (!this.current) return;
    this.current.reviewed = true;
    const next = this.order().find((item) => item !== this.reference && !item.reviewed && item.points.length);
    if (next) this.open(next);
    else { announce("All pictures are reviewed."); this.refresh(); }
  }

  /** The reference, then pictures to review, the least confident first, then the rest. */
  order() {
    const rank = (item) => (item === this.reference ? -1 : item.reviewed ? 3 : item.points.length ? leastConfidence(item) : 2);
    return [...this.items].sort((a, b) => rank(a) - rank(b));
  }

  // ------------------------------------------------------------ pointer and keys

  listen(canvas) {
    let dragged = -1, moved = false;
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.current) return;
      dragged = this.stage.near(event, this.current.points);
      moved = false;
      if (dragged >= 0) { this.chosen = dragged; canvas.setPointerCapture(event.pointerId); this.refresh(); }
    });
    canvas.addEventListener("pointermove", (event) => {
      if (dragged >= 0) { moved = true; this.movePoint(dragged, this.stage.toPicture(event, true)); }
    });
    canvas.addEventListener("pointerup", (event) => {
      if (dragged >= 0) { dragged = -1; if (moved) this.refresh(); return; }
      const point = this.stage.toPicture(event);
      if (point && event.button === 0) this.addPoint(point);
    });
    canvas.addEventListener("keydown", (event) => { if (this.current && this.key(event)) event.preventDefault(); });
  }

  key(event) {
    const { width, height } = this.current.picture;
    const step = KEY_STEPS[event.key], size = (event.shiftKey ? 10 : 1) * Math.max(width, height) / 200;
    const shift = (from) => ({ x: clamp(from.x + step[0] * size, 0, width), y: clamp(from.y + step[1] * size, 0, height) });
    const chosen = this.current.points[this.chosen];
    if (step && chosen) { this.movePoint(this.chosen, shift(chosen)); this.showList(); }
    else if (step) { this.probe = shift(this.probe ?? { x: width / 2, y: height / 2 }); this.stage.paint(); }
    else if (/^[1-9]$/.test(event.key) && this.current.points[event.key - 1]) { this.chosen = event.key - 1; this.refresh(); }
    else if (event.key === "Escape") { this.chosen = -1; this.probe = null; this.refresh(); }
    else if (event.key === "Delete" && chosen && this.isReference()) this.removePoint(this.chosen);
    else if (event.key === "Enter" && this.isReference() && this.probe) this.addPoint(this.probe);
    else if (event.key === "Enter" && !this.isReference()) this.accept();
    else return false;
    return true;
  }

  // ------------------------------------------------------------ what is seen

  draw(pen, stage) {
    this.current.points.forEach((point, index) => {
      if (!point) return;
      const [x, y] = stage.toCanvas(point.x, point.y);
      if (!point.corrected && point.doubtful && !this.current.reviewed) {
        pen.beginPath();
        pen.arc(x, y, 19, 0, 2 * Math.PI);
        pen.lineWidth = 3;
        pen.setLineDash([5, 4]);
        pen.strokeStyle = "#d1420c";
        pen.stroke();
        pen.setLineDash([]);
      }
      drawPin(pen, x, y, index, { chosen: index === this.chosen });
    });
    if (this.probe) drawProbe(pen, ...stage.toCanvas(this.probe.x, this.probe.y));
    if (!this.isReference()) this.boxTool?.draw(pen, stage);
  }

  progress(text, done = 0, total = 1) {
    this.working = text !== null;
    this.find("progress").hidden = text === null;
    if (text !== null) {
      this.find("progress-text").textContent = `${text}: ${done} of ${total}`;
      this.find("bar").value = total ? done / total : 0;
    }
    this.refresh();
  }

  refresh() {
    const any = this.items.length > 0, reference = this.isReference();
    this.find("welcome").hidden = any;
    this.find("work").hidden = !any;
    this.find("propagate").disabled = this.working || !this.reference?.points.length || !this.others().length;
    const again = this.items.some((item) => item !== this.reference && item.points.length);
    const many = this.others().length, from = this.labelled().length;
    this.find("propagate").textContent = `${again ? "Find again" : "Find them"} in ${many} ${many === 1 ? "other" : "others"}${from > 1 ? `, from ${from} labelled` : ""}`;
    this.find("propagate").classList.toggle("main", !again);
    this.find("export").disabled = !this.items.some((item) => item.points.length);
    this.find("right").hidden = reference || !this.current?.points.length;
    this.find("make-reference").hidden = reference || !this.current?.points.length;
    this.boxTool.button.hidden = reference || !this.current;
    this.find("title").textContent = this.current ? this.current.picture.name : "";
    this.find("say").textContent = this.advice(reference);
    this.showList();
    this.showNames();
    this.stage.paint();
  }

  advice(reference) {
    if (!this.current) return "";
    if (reference) return this.current.points.length ? "Add more points, name them, then find them in the others." : "Click on the parts to label. They will be found in all other pictures.";
    if (!this.current.points.length) return "No points yet: they come from the labelled picture.";
    if (this.current.reviewed) return "Reviewed. Drag a point to correct it.";
    return "Drag what is wrong, then press “Looks right”. Dashed points are doubtful.";
  }

  showList() {
    const cards = this.order().map((item) => {
      const card = document.createElement("button");
      card.type = "button";
      card.className = "thumb";
      card.setAttribute("aria-pressed", String(item === this.current));
      item.thumbnail ??= thumbnail(item.picture);
      const text = document.createElement("span");
      const note = item === this.reference ? "labelled by hand" : item.reviewed ? "✓ reviewed" : item.points.length ? `${Math.round(100 * leastConfidence(item))} % confident` : "no points yet";
      text.append(item.picture.name, document.createElement("br"), note);
      if (!item.reviewed && item !== this.reference && item.points.length && leastConfidence(item) < 0.5) card.classList.add("doubtful");
      card.append(item.thumbnail, text);
      card.addEventListener("click", () => this.open(item));
      return card;
    });
    this.find("list").replaceChildren(...cards);
  }

  showNames() {
    const list = this.find("names");
    if (list.contains(document.activeElement) && list.children.length === this.names.length) return;
    list.replaceChildren(...this.names.map((name, index) => {
      const row = document.createElement("li");
      const badge = document.createElement("span");
      badge.className = "badge";
      badge.textContent = index + 1;
      badge.style.background = colour(index);
      badge.style.color = ink(colour(index));
      const input = document.createElement("input");
      input.value = name;
      input.setAttribute("aria-label", `Name of point ${index + 1}`);
      input.addEventListener("input", () => { this.names[index] = input.value; });
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "small";
      remove.textContent = "×";
      remove.setAttribute("aria-label", `Remove point ${index + 1} from all pictures`);
      remove.addEventListener("click", () => this.removePoint(index));
      row.append(badge, input, remove);
      return row;
    }));
  }
}

/** The confidence of a picture is that of its least confident point that nobody corrected. */
function leastConfidence(item) {
  return item.points.reduce((least, point) => Math.min(least, !point ? 0 : point.corrected ? 1 : point.confidence), 1);
}

function thumbnail({ bitmap, width, height }) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 88;
  const scale = Math.max(88 / width, 88 / height);
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, 88, 88);
  pen.drawImage(bitmap, (88 - width * scale) / 2, (88 - height * scale) / 2, width * scale, height * scale);
  return canvas;
}
