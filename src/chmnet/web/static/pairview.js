// Two pictures: the probe follows the pointer, clicks keep points, drags correct them.
import { ask, askAbout, loadPicture } from "./api.js";
import { announce, attempt, hideNotice, tell } from "./notice.js";
import { clamp, Pair } from "./pair.js";
import { acceptPictures, fromBlob } from "./pictures.js";
import { Search } from "./search.js";
import { drawHeat, drawPin, drawProbe, Stage } from "./stage.js";

const KEY_STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class PairView {
  constructor({ getModel, onPoints, onPair, drawExtra }) {
    Object.assign(this, { getModel, onPoints, onPair, drawExtra });
    this.pictures = { source: null, target: null };
    this.pair = null;
    this.points = [];
    this.probe = null;
    this.showHeat = true;
    this.hoverTimes = [];
    this.figures = { source: document.getElementById("source"), target: document.getElementById("target") };
    this.source = new Stage(this.figures.source.querySelector("canvas"), (pen, stage) => this.drawSource(pen, stage));
    this.target = new Stage(this.figures.target.querySelector("canvas"), (pen, stage) => this.drawTarget(pen, stage));
    this.search = new Search(this.figures, { source: this.source, target: this.target }, () => attempt(() => this.match()));
    this.reading = document.getElementById("reading");
    this.busy = this.figures.target.querySelector(".busy");
    for (const side of ["source", "target"]) {
      acceptPictures(this.figures[side], (files) => attempt(() => this.takeFiles(files, side)));
    }
    document.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length && !document.getElementById("pair-view").hidden) attempt(() => this.takeFiles(files, this.freeSide()));
    });
    document.getElementById("swap").addEventListener("click", () => attempt(() => this.swap()));
    this.listenSource();
    this.listenTarget();
    this.markEmpty();
  }

  // ------------------------------------------------------------ pictures

  freeSide() {
    if (!this.pictures.source) return "source";
    return this.lastFilled === "target" ? "source" : "target";
  }

  async takeFiles(files, side) {
    hideNotice();
    const other = side === "source" ? "target" : "source";
    await this.setPicture(side, await fromBlob(files[0], files[0].name));
    if (files.length > 1) await this.setPicture(other, await fromBlob(files[1], files[1].name));
    await this.match();
  }

  async setPicture(side, picture) {
    this.lastFilled = side;
    this.pictures[side] = picture;
    this.pair = null;
    this.points = [];
    this.probe = null;
    this[side].show(picture);
    this.search.boxes[side].set(null, true);
    this.figures[side].querySelector(".name").textContent = picture.name;
    this.markEmpty();
    this.onPoints();
  }

  markEmpty() {
    for (const side of ["source", "target"]) this.figures[side].classList.toggle("empty", !this.pictures[side]);
  }

  async swap() {
    const { source, target } = this.pictures, { boxes } = this.search;
    if (!source || !target) return;
    const [sourceBox, targetBox] = [boxes.source.box, boxes.target.box];
    await this.setPicture("source", target);
    await this.setPicture("target", source);
    boxes.source.set(targetBox, true);
    boxes.target.set(sourceBox, true);
    await this.match();
  }

  forget() {
    this.pictures = { source: null, target: null };
    this.pair = null;
    this.points = [];
    this.probe = null;
    this.markEmpty();
    for (const side of ["source", "target"]) {
      this[side].show(null);
      this.search.boxes[side].set(null, true);
      this.figures[side].querySelector(".name").textContent = side === "source" ? "Source" : "Target";
    }
    this.onPoints();
  }

  // ------------------------------------------------------------ matching

  /** Send what the server does not have yet and fetch the pair; a newer request cancels an older one. */
  async match() {
    const { source, target } = this.pictures;
    if (!source || !target) return;
    this.request?.abort();
    const request = (this.request = new AbortController());
    const slow = setTimeout(() => { this.busy.hidden = false; }, 150);
    try {
      for (const picture of [source, target]) {
        if (!picture.id) {
          const known = await loadPicture(picture.blob, request.signal);
          Object.assign(picture, { id: known.id, width: known.width, height: known.height });
        }
      }
      const asked = this.asked();
      const answer = await askAbout([source, target], (a, b) => `/api/pairs/${a}/${b}?${asked}`, { signal: request.signal });
      const pair = new Pair(await answer.arrayBuffer());
      if (request.signal.aborted) return;
      this.pair = pair;
      this.pairAsked = asked;
      this.points = this.points.map((point) => (point.corrected ? point : this.matched(point.source)));
      this.onPoints();
      this.onPair();
      announce("The pictures are matched.");
    } finally {
      clearTimeout(slow);
      if (this.request === request) this.busy.hidden = true;
      this.paint();
    }
  }

  /** The model, and how the thing is looked for. */
  asked() { return new URLSearchParams({ model: this.getModel(), ...this.search.parameters() }).toString(); }

  /** A question about the pair that is shown: path after /api/pairs/…. */
  async question(path, options) {
    const join = path.includes("?") ? "&" : "?", asked = this.pairAsked;
    return askAbout([this.pictures.source, this.pictures.target], (a, b) => `/api/pairs/${a}/${b}/${path}${join}${asked}`, options);
  }

  matched(source) {
    const { x, y, confidence } = this.pair.transfer(source.x, source.y);
    return { source, target: { x, y }, confidence, corrected: false };
  }

  // ------------------------------------------------------------ probe and points

  moveProbe(point) {
    const started = performance.now();
    this.probe = point;
    if (point && this.pair) {
      this.found = this.pair.transfer(point.x, point.y);
      this.heat = this.showHeat ? this.pair.heat(point.x, point.y) : null;
      this.showReading(this.found);
      this.source.paintNow();
      this.target.paintNow();
    } else {
      this.reading.replaceChildren();
      this.paint();
    }
    this.hoverTimes.push(performance.now() - started);
    if (this.hoverTimes.length > 1000) this.hoverTimes.shift();
  }

  showReading({ x, y, confidence }) {
    if (!this.meter) {
      this.meter = { text: document.createElement("span"), bar: document.createElement("span"), fill: document.createElement("i") };
      this.meter.bar.className = "meter";
      this.meter.bar.append(this.meter.fill);
    }
    this.meter.text.textContent = `${x.toFixed(0)}, ${y.toFixed(0)} · confidence ${Math.round(100 * confidence)} %`;
    this.meter.fill.style.width = `${100 * confidence}%`;
    if (!this.meter.text.isConnected) this.reading.replaceChildren(this.meter.text, this.meter.bar);
  }

  pin(point) {
    if (!this.pair) return;
    this.points.push(this.matched(point));
    announce(`Point ${this.points.length} kept.`);
    this.changed();
  }

  remove(index) {
    this.points.splice(index, 1);
    announce("Point removed.");
    this.changed();
  }

  reset(index) {
    this.points[index] = this.matched(this.points[index].source);
    this.changed();
  }

  nudge(index, dx, dy) {
    const point = this.points[index], { width, height } = this.pictures.target;
    point.target = { x: clamp(point.target.x + dx, 0, width), y: clamp(point.target.y + dy, 0, height) };
    point.corrected = true;
    this.changed();
  }

  changed() { this.onPoints(); this.paint(); }

  paint() { this.source.paint(); this.target.paint(); }

  // ------------------------------------------------------------ pointer and keys

  listenSource() {
    const { canvas } = this.source;
    let dragged = -1, moved = false;
    canvas.addEventListener("pointermove", (event) => {
      this.touched = true;
      if (dragged >= 0) {
        moved = true;
        const point = this.source.toPicture(event, true);
        this.points[dragged] = this.matched(point);
        this.onPoints();
        this.moveProbe(point);
        return;
      }
      const point = this.source.toPicture(event);
      if (point || this.probe) this.moveProbe(point);
    });
    canvas.addEventListener("pointerleave", () => { if (dragged < 0) this.moveProbe(null); });
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.pair) return;
      this.touched = true;
      moved = false;
      dragged = this.source.near(event, this.points.map((point) => point.source));
      if (dragged >= 0) canvas.setPointerCapture(event.pointerId);
      else if (event.pointerType !== "mouse") this.moveProbe(this.source.toPicture(event));
    });
    canvas.addEventListener("pointerup", (event) => {
      if (dragged >= 0) { dragged = -1; if (moved) return; return; }
      const point = this.source.toPicture(event);
      if (point && event.button === 0) this.pin(point);
    });
    canvas.addEventListener("keydown", (event) => {
      if (!this.pair) return;
      this.touched = true;
      const { width, height } = this.pictures.source;
      const step = KEY_STEPS[event.key];
      if (step) {
        const size = (event.shiftKey ? 10 : 2) * Math.max(width, height) / 200;
        const from = this.probe ?? { x: width / 2, y: height / 2 };
        this.moveProbe({ x: clamp(from.x + step[0] * size, 0, width), y: clamp(from.y + step[1] * size, 0, height) });
      } else if (event.key === "Enter" || event.key === " ") this.pin(this.probe ?? { x: width / 2, y: height / 2 });
      else if (event.key === "Delete" || event.key === "Backspace") { if (this.points.length) this.remove(this.points.length - 1); }
      else if (event.key === "Escape") this.moveProbe(null);
      else return;
      event.preventDefault();
    });
  }

  listenTarget() {
    const { canvas } = this.target;
    let dragged = -1;
    const near = (event) => this.target.near(event, this.points.map((point) => point.target));
    canvas.addEventListener("pointerdown", (event) => {
      dragged = near(event);
      if (dragged >= 0) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      canvas.classList.toggle("grab", dragged >= 0 || near(event) >= 0);
      if (dragged < 0) return;
      Object.assign(this.points[dragged], { target: this.target.toPicture(event, true), corrected: true });
      this.changed();
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { dragged = -1; });
  }

  // ------------------------------------------------------------ drawing

  drawSource(pen, stage) {
    this.drawExtra(pen, stage, "source");
    this.search.boxes.source.draw(pen, stage, this.pair?.sourceView.part);
    this.points.forEach((point, index) => drawPin(pen, ...stage.toCanvas(point.source.x, point.source.y), index));
    if (this.probe) drawProbe(pen, ...stage.toCanvas(this.probe.x, this.probe.y));
  }

  drawTarget(pen, stage) {
    if (this.probe && this.pair && this.heat && this.showHeat) drawHeat(pen, stage, this.heat, this.pair.targetGrid, this.pair.targetView);
    this.drawExtra(pen, stage, "target");
    this.search.boxes.target.draw(pen, stage, this.pair?.targetView.part);
    this.points.forEach((point, index) => drawPin(pen, ...stage.toCanvas(point.target.x, point.target.y), index, { chosen: point.corrected }));
    if (this.probe && this.pair && this.found) drawProbe(pen, ...stage.toCanvas(this.found.x, this.found.y), this.found.confidence);
  }

  /** Until a person moves the pointer, the probe wanders by itself and shows what the page is for. */
  async demonstrate() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      const { width, height } = this.pictures.source;
      this.moveProbe({ x: width * 0.3, y: height * 0.3 });
      return;
    }
    const best = this.pair.matches(150);
    const stops = [0, 1, 2, 3, 4, 5].map((k) => best[Math.floor((k + 0.5) * best.length / 6)].source);
    const pair = this.pair;
    const begun = performance.now();
    const frame = (now) => {
      if (this.touched || this.pair !== pair || document.hidden) return;
      const time = Math.max(0, now - begun) / 1600, leg = Math.floor(time), part = Math.min(1, (time - leg) * 1.6);
      if (leg > 30) return;
      const eased = part * part * (3 - 2 * part);
      const [a, b] = [stops[leg % stops.length], stops[(leg + 1) % stops.length]];
      this.moveProbe({ x: a[0] + eased * (b[0] - a[0]), y: a[1] + eased * (b[1] - a[1]) });
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
}

export { ask, tell };
