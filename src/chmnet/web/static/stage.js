// A canvas that shows one picture whole, and what is drawn over it, in pixels of the picture.
import { clamp } from "./pair.js";

// Okabe and Ito's colours, as in chmnet.viz: told apart with any kind of colour vision.
export const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A7A00", "#000000"];
export const colour = (number) => COLOURS[number % COLOURS.length];

/** What can be read on one of these colours: near black, or white (WCAG's contrast). */
export function ink(background) {
  const [red, green, blue] = [1, 3, 5].map((start) => {
    const value = parseInt(background.slice(start, start + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

export class Stage {
  /** draw(pen, stage) is called whenever the canvas has to be painted. */
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.drawOver = draw;
    this.picture = null;
    this.waiting = false;
    new ResizeObserver(() => this.paint()).observe(canvas);
  }

  /** The layout is known at once: a click may come before the next frame. */
  show(picture) {
    this.picture = picture;
    if (picture && this.canvas.clientWidth) this.layout(this.canvas.clientWidth, this.canvas.clientHeight);
    this.paint();
  }

  /** Paint at the next frame, however often it is asked for. */
  paint() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paintNow(); });
  }

  paintNow() {
    const { canvas, pen } = this;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, width, height);
    if (!this.picture || !width) return;
    this.layout(canvas.clientWidth, canvas.clientHeight);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.picture.bitmap, this.left, this.top, this.picture.width * this.scale, this.picture.height * this.scale);
    this.drawOver(pen, this);
  }

  layout(width, height) {
    [this.left, this.top, this.scale] = fit(this.picture, width, height);
  }

  /** From pixels of the picture to the canvas. */
  toCanvas(x, y) { return [this.left + x * this.scale, this.top + y * this.scale]; }

  /** From a pointer event to pixels of the picture; null beside it unless `clamped`. */
  toPicture(event, clamped = false) {
    if (!this.picture || this.scale === undefined) return null;
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - this.left) / this.scale, y = (event.clientY - box.top - this.top) / this.scale;
    const { width, height } = this.picture;
    if (clamped) return { x: clamp(x, 0, width), y: clamp(y, 0, height) };
    return x >= 0 && y >= 0 && x <= width && y <= height ? { x, y } : null;
  }

  near(event, points, radius = 16) {
    const box = this.canvas.getBoundingClientRect();
    let best = -1, least = radius;
    points.forEach((point, index) => {
      if (!point) return;
      const [x, y] = this.toCanvas(point.x, point.y);
      const distance = Math.hypot(event.clientX - box.left - x, event.clientY - box.top - y);
      if (distance < least) { least = distance; best = index; }
    });
    return best;
  }
}

/** Left, top and scale of a picture shown whole in the middle of a canvas. */
export function fit(picture, width, height, margin = 10) {
  const scale = Math.min((width - 2 * margin) / picture.width, (height - 2 * margin) / picture.height);
  return [(width - picture.width * scale) / 2, (height - picture.height * scale) / 2, scale];
}

export function drawPin(pen, x, y, number, { faint = false, chosen = false, shade = colour(number) } = {}) {
  pen.globalAlpha = faint ? 0.55 : 1;
  pen.beginPath();
  pen.arc(x, y, chosen ? 13 : 11, 0, 2 * Math.PI);
  pen.fillStyle = shade;
  pen.fill();
  pen.lineWidth = 2;
  pen.strokeStyle = "#fff";
  pen.stroke();
  pen.fillStyle = ink(shade);
  pen.font = "700 12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(String(number + 1), x, y + 0.5);
  pen.globalAlpha = 1;
}

/** A ring with a cross: white under dark, to be seen on any picture; wider where confidence is low. */
export function drawProbe(pen, x, y, confidence = 1) {
  const radius = 9 + 15 * (1 - confidence);
  for (const [style, width] of [["#fff", 5], ["#111", 2]]) {
    pen.strokeStyle = style;
    pen.lineWidth = width;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.stroke();
    pen.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      pen.moveTo(x + dx * (radius - 3), y + dy * (radius - 3));
      pen.lineTo(x + dx * (radius + 5), y + dy * (radius + 5));
    }
    pen.stroke();
  }
  pen.beginPath();
  pen.arc(x, y, 2.5, 0, 2 * Math.PI);
  pen.fillStyle = "#e3342f";
  pen.fill();
}

const heatCanvas = document.createElement("canvas");

/** Probabilities as a glow, from the most likely place down to a thousandth of it: the picture is paler elsewhere. */
export function drawHeat(pen, stage, map, [rows, columns], view) {
  heatCanvas.width = columns;
  heatCanvas.height = rows;
  const heatPen = heatCanvas.getContext("2d");
  const image = heatPen.createImageData(columns, rows);
  const largest = map.reduce((most, value) => Math.max(most, value), 0);
  for (let index = 0; index < map.length; index++) {
    // By logarithms: places that are a hundred times less likely still count.
    const glow = Math.max(0, 1 + Math.log10(map[index] / largest) / 3);
    image.data.set([235, Math.round(200 - 165 * glow), Math.round(50 - 20 * glow), Math.round(225 * Math.sqrt(glow))], 4 * index);
  }
  heatPen.putImageData(image, 0, 0);
  const [left, top, right, bottom] = view.area;
  pen.save();
  pen.translate(stage.left, stage.top);
  pen.scale(stage.scale, stage.scale); // pixels of the picture
  pen.beginPath();
  pen.rect(left, top, right - left, bottom - top);
  pen.clip();
  pen.fillStyle = "rgb(255 255 255 / 35%)";
  pen.fillRect(left, top, right - left, bottom - top);
  pen.imageSmoothingEnabled = true;
  pen.transform(...view.transform());
  // Grid points lie on the frame's borders, so their cells reach half a cell beyond them.
  const width = columns > 1 ? 2 / (columns - 1) : 2, height = rows > 1 ? 2 / (rows - 1) : 2;
  pen.drawImage(heatCanvas, -1 - width / 2, -1 - height / 2, 2 + width, 2 + height);
  pen.restore();
}
