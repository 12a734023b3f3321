// The tabs below the pictures: warp, all matches, winning scales, the kernel.
import { ask } from "./api.js";
import { attempt } from "./notice.js";
import { clamp } from "./pair.js";
import { colour, drawPin, fit } from "./stage.js";

export class WarpPanel {
  constructor(view) {
    this.view = view;
    this.slider = document.getElementById("warp-slider");
    this.slider.addEventListener("input", () => view.target.paint());
  }

  async open() {
    const { view } = this;
    if (!view.pair || this.shown === view.pair) return;
    const wanted = view.pair;
    const answer = await view.question("warp.png");
    this.warped = await createImageBitmap(await answer.blob());
    this.shown = wanted;
    view.paint();
  }

  /** Over the target: from the source (0) over the warped source (1) to the target (2). */
  draw(pen, stage, side) {
    const { source, target } = this.view.pictures;
    if (side !== "target" || this.shown !== this.view.pair) return;
    const place = Number(this.slider.value);
    const warped = { bitmap: this.warped, width: target.width, height: target.height };
    const layers = place <= 1 ? [[source, 1], [warped, place]] : [[warped, 1], [target, place - 1]];
    const { clientWidth, clientHeight } = stage.canvas;
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, clientWidth, clientHeight);
    for (const [picture, share] of layers) {
      const [left, top, scale] = fit(picture, clientWidth, clientHeight);
      pen.globalAlpha = share;
      pen.drawImage(picture.bitmap, left, top, picture.width * scale, picture.height * scale);
    }
    pen.globalAlpha = 1;
  }
}

export class MatchesPanel {
  constructor(view) {
    this.view = view;
    this.slider = document.getElementById("threshold");
    this.things = document.getElementById("things");
    this.slider.addEventListener("input", () => this.update());
    this.things.addEventListener("change", () => attempt(() => this.open()));
  }

  /** Ask which matches belong to which thing of the target, and where the kept points lie on each; or forget it. */
  async open() {
    const { view } = this, things = Number(this.things.value);
    const kept = JSON.stringify(view.points.map(({ source }) => [source.x, source.y].map((value) => Number(value.toFixed(2)))));
    const wanted = things && view.pair ? `${things} ${kept}` : "";
    if (this.known !== view.pair || this.told !== wanted) {
      if (this.known !== view.pair || !wanted) Object.assign(this, { matches: view.pair?.matches(300) ?? [], kept: [] });
      Object.assign(this, { known: view.pair, told: wanted });
      if (wanted) {
        const pair = view.pair, isOld = () => view.pair !== pair || this.told !== wanted;
        await new Promise((done) => { setTimeout(done, 100); }); // while a point is dragged, nothing is asked
        if (isOld()) return;
        const ask = async (what) => (await (await view.question(`matches?instances=${things}&${what}`)).json()).matches;
        const found = await Promise.all([ask("top=100"), kept === "[]" ? [] : ask(`points=${encodeURIComponent(kept)}`)]);
        if (isOld()) return;
        [this.matches, this.kept] = found;
      }
    }
    this.update();
  }

  /** The matches to draw now, the most confident first. */
  chosen() {
    if (!this.view.pair || this.known !== this.view.pair) return [];
    const threshold = Number(this.slider.value);
    return this.matches.filter((match) => match.confidence >= threshold);
  }

  update() {
    const all = this.matches?.length ?? 0, count = Math.max(0, ...(this.matches ?? []).map((match) => match.instance ?? 0));
    document.getElementById("threshold-value").textContent = Number(this.slider.value).toFixed(2);
    document.getElementById("match-count").textContent = `${this.chosen().length} of ${all}`;
    document.getElementById("things-found").textContent = count ? `${count} ${count === 1 ? "thing" : "things"} found` : "";
    this.view.paint();
  }

  draw(pen, stage, side) {
    const { width, height } = this.view.pictures.source;
    const radius = Math.max(2.5, Math.min(6, stage.canvas.clientWidth / 110));
    for (const match of this.chosen()) {
      const [x, y] = stage.toCanvas(...match[side]);
      const hue = 360 * match.source[0] / width, light = 35 + 35 * match.source[1] / height;
      dot(pen, x, y, radius, match.instance ? colour(match.instance - 1) : `hsl(${hue} 85% ${light}%)`);
    }
    if (side === "source" || this.known !== this.view.pair) return;
    this.kept.forEach((match, row) => {
      const number = row % (this.kept.length / this.kept.at(-1).instance); // the points of one thing after the other
      drawPin(pen, ...stage.toCanvas(...match.target), number, { shade: colour(match.instance - 1) });
    });
  }
}

export function dot(pen, x, y, radius, style) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = style;
  pen.fill();
  pen.lineWidth = 1;
  pen.strokeStyle = "rgb(255 255 255 / 80%)";
  pen.stroke();
}

function words(box, text) {
  const paragraph = document.createElement("p");
  paragraph.className = "hint";
  paragraph.textContent = text;
  box.replaceChildren(paragraph);
}

export class ScalesPanel {
  constructor(view, getModel) { Object.assign(this, { view, getModel, box: document.getElementById("scales") }); }

  async open() {
    const model = this.getModel();
    this.rows = [];
    if (!model.scales) {
      words(this.box, `${model.title} votes over positions only, so it has no winning scales. Choose a model that votes over scales (6D).`);
      return;
    }
    words(this.box, "Loading …");
    const answer = await (await this.view.question("matches?top=300")).json();
    this.rows = answer.matches.filter((match) => match.scales);
    if (!this.rows.length) words(this.box, "The server gave no scales for this pair.");
    else this.describe();
    this.view.paint();
  }

  /** What the sizes mean, and how often each won. */
  describe() {
    words(this.box, "Each ring is one of the most confident matches. A larger ring means a larger winning scale. A match with different scales in the two pictures joins objects of different size.");
    const scales = [...new Set(this.rows.flatMap((match) => match.scales))].sort((a, b) => a - b);
    const legend = document.createElement("ul");
    legend.className = "legend";
    legend.append(...scales.map((scale) => {
      const entry = document.createElement("li"), sample = document.createElement("i");
      sample.style.width = sample.style.height = `${2 * scaleRadius(scale)}px`;
      sample.style.borderColor = scaleColour(scale);
      const [source, target] = [0, 1].map((which) => this.rows.filter((match) => match.scales[which] === scale).length);
      entry.append(sample, `scale ${scale.toFixed(2)}: ${source} in the source, ${target} in the target`);
      return entry;
    }));
    this.box.prepend(legend);
  }

  draw(pen, stage, side) {
    const which = side === "source" ? 0 : 1;
    const cell = stage.picture.width * stage.scale / (this.view.pair.sourceGrid[1] - 1);
    const base = clamp(cell / 4, 2, 4.5); // the largest rings touch
    for (const match of this.rows ?? []) {
      const [x, y] = stage.toCanvas(...match[side]), scale = match.scales[which];
      ring(pen, x, y, scaleRadius(scale, base), scaleColour(scale));
    }
  }
}

function ring(pen, x, y, radius, style) {
  for (const [colour, width] of [["rgb(255 255 255 / 85%)", 4], [style, 2]]) {
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.lineWidth = width;
    pen.strokeStyle = colour;
    pen.stroke();
  }
}

/** As in chmnet.viz: the radius grows with the scale's square, or sizes would look alike. */
const scaleRadius = (scale, base = 4.5) => base * scale * scale;
const scaleColour = (scale) => (scale < 0.9 ? "#0072B2" : scale > 1.1 ? "#D55E00" : "#6b7785");

export class KernelPanel {
  constructor(getModel) { Object.assign(this, { getModel, box: document.getElementById("kernel") }); }

  async open() {
    const model = this.getModel();
    if (!model.kernel && model.dimensions) {
      words(this.box, `${model.title} has no votes, so it has no kernel. Choose another model.`);
      return;
    }
    if (this.shown === model.name) return;
    words(this.box, "Loading …");
    await attempt(async () => {
      try {
        const answer = await ask(`/api/models/${encodeURIComponent(model.name)}/kernel.png`);
        const image = new Image();
        image.alt = `The kernels of ${model.title}: how strongly a match supports its neighbours`;
        image.src = URL.createObjectURL(await answer.blob());
        await image.decode();
        URL.revokeObjectURL(image.src);
        const frame = document.createElement("div");
        frame.className = "wide";
        frame.tabIndex = 0;
        frame.setAttribute("role", "region");
        frame.setAttribute("aria-label", "The kernels; scroll sideways to see all of them");
        frame.append(image);
        words(this.box, `How strongly a match supports its neighbours in ${model.title}.`);
        this.box.append(frame);
        this.shown = model.name;
      } catch (error) {
        words(this.box, "There is no kernel to show.");
        throw error;
      }
    });
  }
}
