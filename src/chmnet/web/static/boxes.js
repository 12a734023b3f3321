// A box around the thing, drawn on a picture by pointer or keys: [left, top, right, bottom] in whole pixels.
import { announce } from "./notice.js";
import { boxBetween, clamp } from "./pair.js";

const KEY_STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const LEAST = 6;

export class BoxTool {
  /** The button begins a box, ends it unfinished, or clears it; onChange is called when the box is another. */
  constructor(figure, stage, onChange) {
    Object.assign(this, { stage, onChange, box: null, corner: null, cursor: null, active: false });
    this.side = figure.dataset.side;
    this.button = figure.querySelector(".box");
    this.button.addEventListener("click", () => {
      if (this.box) this.set(null);
      else this.activate(!this.active);
    });
    // Before the listeners that move points: while a box is drawn, they hear nothing.
    for (const name of ["pointerdown", "pointermove", "pointerup", "pointercancel", "keydown"]) {
      stage.canvas.addEventListener(name, (event) => {
        if (!this.active || !stage.picture) return;
        if (name === "keydown" ? this.key(event) : this.pointer(name, event)) event.preventDefault();
        event.stopImmediatePropagation();
      }, { capture: true });
    }
    this.show();
  }

  activate(active) {
    Object.assign(this, { active, corner: null, cursor: null });
    this.stage.canvas.classList.toggle("boxing", active);
    if (active) {
      announce(`Draw a box around the thing in the ${this.side}. With keys: arrows move the corner, Enter sets it, Escape ends it.`);
      this.stage.canvas.focus();
    }
    this.show();
  }

  /** Take another box, or none. */
  set(box, quietly = false) {
    const changed = String(box) !== String(this.box);
    this.box = box;
    this.activate(false);
    if (!changed || quietly) return;
    announce(box ? `The ${this.side} is matched inside of the box.` : `The box of the ${this.side} is cleared.`);
    this.onChange();
  }

  show() {
    this.button.textContent = this.box ? "Clear box" : "Box";
    this.button.setAttribute("aria-pressed", String(this.active || Boolean(this.box)));
    this.stage.paint();
  }

  pointer(name, event) {
    const place = this.stage.toPicture(event, true);
    if (name === "pointerdown") {
      this.corner = place;
      this.stage.canvas.setPointerCapture(event.pointerId);
    } else if (name === "pointerup" && this.corner) this.finish(place);
    else if (name === "pointercancel") this.activate(false);
    this.cursor = this.active ? place : null;
    this.stage.paint();
    return true;
  }

  key(event) {
    const { picture } = this.stage, step = KEY_STEPS[event.key];
    this.cursor ??= { x: picture.width / 2, y: picture.height / 2 };
    if (step) {
      const size = (event.shiftKey ? 10 : 2) * Math.max(picture.width, picture.height) / 200;
      this.cursor = { x: clamp(this.cursor.x + step[0] * size, 0, picture.width), y: clamp(this.cursor.y + step[1] * size, 0, picture.height) };
    } else if (event.key === "Escape") this.activate(false);
    else if (event.key !== "Enter" && event.key !== " ") return false;
    else if (this.corner) this.finish(this.cursor);
    else this.corner = { ...this.cursor };
    this.stage.paint();
    return true;
  }

  finish(place) {
    const box = boxBetween(this.corner, place, this.stage.picture, LEAST / this.stage.scale);
    if (box) this.set(box);
    else this.corner = null; // a click: begin again
  }

  /** The box that is drawn now, the one that was drawn, or else the one that was found. */
  draw(pen, stage, found) {
    const drawn = this.corner && this.cursor ? boxBetween(this.corner, this.cursor, stage.picture) : this.active ? null : this.box ?? found;
    if (drawn) {
      const [x, y] = stage.toCanvas(drawn[0], drawn[1]), [right, bottom] = stage.toCanvas(drawn[2], drawn[3]);
      pen.save();
      for (const [style, width, dashes] of [["#fff", 4, []], ["#111", 2, [7, 5]]]) {
        Object.assign(pen, { strokeStyle: style, lineWidth: width });
        pen.setLineDash(dashes);
        pen.strokeRect(x, y, right - x, bottom - y);
      }
      pen.restore();
    } else if (this.active && this.cursor) {
      const [x, y] = stage.toCanvas(this.cursor.x, this.cursor.y);
      pen.fillStyle = "#111";
      pen.fillRect(x - 8, y - 1, 16, 2);
      pen.fillRect(x - 1, y - 8, 2, 16);
    }
  }
}
