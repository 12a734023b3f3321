// One matched pair on the client: reads the binary answer of /api/pairs and moves points without the server.
// The sampler is that of chmnet's ops/transfer.py in double precision; tests/web/test_sampler.py compares the two.

const REFERENCE_GRID = 30;
const ARRAYS = { float32: Float32Array, uint8: Uint8Array };

export class Pair {
  constructor(buffer) {
    const view = new DataView(buffer);
    if (view.getUint32(0, false) !== 0x43484d31) throw new Error("the server sent something that is not a pair");
    const length = view.getUint32(4, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    Object.assign(this, {
      model: header.model,
      milliseconds: header.milliseconds,
      pose: header.pose,
      sameKind: header.same_kind,
      transferConfig: header.transfer,
      sourceView: new View(header.source_view),
      targetView: new View(header.target_view),
      sourceGrid: header.source_grid,
      targetGrid: header.target_grid,
    });
    for (const [name, place] of Object.entries(header.blocks)) {
      const count = place.shape.reduce((product, side) => product * side, 1);
      this[name] = new ARRAYS[place.dtype](buffer, 8 + length + place.offset, count);
    }
    const step = header.likelihood_step;
    this.shares = Float64Array.from({ length: 256 }, (_, value) => (value ? Math.exp(step * (value - 255)) : 0));
    this.xAxis = axis(this.sourceGrid[1]);
    this.yAxis = axis(this.sourceGrid[0]);
  }

  /** Cells of the source grid and their weights at a point (x, y) in pixels of the source. */
  weights(x, y) {
    const [height, width] = this.sourceGrid;
    const { sampler, sampler_threshold: threshold, scale_with_grid: scaled } = this.transferConfig;
    const [px, py] = this.sourceView.fromPicture(x, y).map((value) => clamp(value, -100, 100));
    if (sampler === "soft") {
      const kx = scaled ? (width - 1) / (REFERENCE_GRID - 1) : 1;
      const ky = scaled ? (height - 1) / (REFERENCE_GRID - 1) : 1;
      const cells = [], weights = [];
      let total = 0;
      for (let row = 0; row < height; row++) {
        const dy = (py - this.yAxis[row]) * ky;
        if (Math.abs(dy) > threshold) continue;
        for (let column = 0; column < width; column++) {
          const dx = (px - this.xAxis[column]) * kx;
          const weight = threshold - Math.sqrt(dx * dx + dy * dy + 1e-5); // the authors' rounded tip
          if (weight > 0) { cells.push(row * width + column); weights.push(weight); total += weight; }
        }
      }
      if (total > 0) return { cells, weights: weights.map((weight) => weight / total) };
    }
    return { cells: [nearest(this.yAxis, py) * width + nearest(this.xAxis, px)], weights: [1] };
  }

  /** Where a point of the source lies in the target, in pixels, and the confidence. */
  transfer(x, y) {
    const { cells, weights } = this.weights(x, y);
    let tx = 0, ty = 0, confidence = 0;
    cells.forEach((cell, number) => {
      tx += weights[number] * this.positions[2 * cell];
      ty += weights[number] * this.positions[2 * cell + 1];
      confidence += weights[number] * this.confidence[cell];
    });
    const [foundX, foundY] = this.targetView.toPicture(tx, ty);
    return { x: foundX, y: foundY, confidence: clamp(confidence, 0, 1) };
  }

  /** How likely each cell of the target is the match of a point of the source; the sum is 1, as MatchResult.heat. */
  heat(x, y) {
    const { cells, weights } = this.weights(x, y);
    const count = this.targetGrid[0] * this.targetGrid[1];
    const map = new Float64Array(count);
    cells.forEach((cell, number) => {
      const row = this.likelihood.subarray(cell * count, (cell + 1) * count);
      let total = 0;
      for (const value of row) total += this.shares[value];
      const scale = weights[number] / total;
      for (let index = 0; index < count; index++) map[index] += scale * this.shares[row[index]];
    });
    return map;
  }

  /** What MatchResult.matches says, the best first. */
  matches(top) {
    const rows = [];
    for (let start = 0; start < Math.min(5 * top, this.best.length); start += 5) {
      const [sourceX, sourceY, targetX, targetY, confidence] = this.best.subarray(start, start + 5);
      rows.push({ source: [sourceX, sourceY], target: [targetX, targetY], confidence });
    }
    return rows;
  }
}

/**
 * What the network saw of a picture: an area, perhaps mirrored, perhaps turned counter-clockwise, perhaps
 * a window of the frame of that; chmnet's View.
 * Points of the view are −1 … 1 from edge to edge of what is seen, points of the picture are in its pixels.
 */
export class View {
  constructor({ size: [height, width], area, mirrored, turn, window: part }) {
    const [left, top, right, bottom] = area ?? [0, 0, width, height];
    Object.assign(this, { area: [left, top, right, bottom], part: area, mirrored, turn, askew: turn % 90 !== 0 });
    const [areaWidth, areaHeight] = [right - left, bottom - top];
    const quarter = [[1, 0], [0, 1], [-1, 0], [0, -1]][turn / 90]; // exact, as in Python
    const [cosine, sine] = quarter ?? [Math.cos((turn * Math.PI) / 180), Math.sin((turn * Math.PI) / 180)];
    const across = Math.ceil(areaWidth * Math.abs(cosine) + areaHeight * Math.abs(sine) - 1e-6);
    const down = Math.ceil(areaHeight * Math.abs(cosine) + areaWidth * Math.abs(sine) - 1e-6);
    const [first, above, last, below] = part ?? [0, 0, across, down];
    this.size = [below - above, last - first];
    // From what is seen of the frame to the area, both normalised: x = a x' + b y' + e, y = c x' + d y' + f.
    this.matrix = [cosine * (last - first) / areaWidth, -sine * (below - above) / areaWidth, sine * (last - first) / areaHeight, cosine * (below - above) / areaHeight];
    const [middleX, middleY] = [first + last - across, above + below - down];
    this.offset = [(cosine * middleX - sine * middleY) / areaWidth, (sine * middleX + cosine * middleY) / areaHeight];
    this.cut = Boolean(part);
  }

  /** From the frame to pixels of the picture; what lies beside a turned area becomes the nearest place of it. */
  toPicture(x, y) {
    const [left, top, right, bottom] = this.area;
    const [u, v] = this.toArea(x, y).map((value) => (this.askew ? clamp(value, -1, 1) : value));
    return [left + ((this.mirrored ? -u : u) + 1) * ((right - left) / 2), top + (v + 1) * ((bottom - top) / 2)];
  }

  /** From pixels of the picture to the frame. */
  fromPicture(x, y) {
    const [left, top, right, bottom] = this.area, [a, b, c, d] = this.matrix, determinant = a * d - b * c;
    const place = [(x - left) / ((right - left) / 2) - 1, (y - top) / ((bottom - top) / 2) - 1];
    const [u, v] = place.map((value) => (this.askew ? clamp(value, -1, 1) : value));
    const across = (this.mirrored ? -u : u) - this.offset[0], below = v - this.offset[1];
    const seen = [(d * across - b * below) / determinant, (a * below - c * across) / determinant];
    return this.cut ? seen.map((value) => clamp(value, -1, 1)) : seen;
  }

  toArea(x, y) {
    const [a, b, c, d] = this.matrix;
    return [a * x + b * y + this.offset[0], c * x + d * y + this.offset[1]];
  }

  /** The affine map from the frame (−1 … 1) to pixels of the picture, as a canvas takes it. */
  transform() {
    const [left, top, right, bottom] = this.area, [a, b, c, d] = this.matrix;
    const halfWidth = ((this.mirrored ? -1 : 1) * (right - left)) / 2, halfHeight = (bottom - top) / 2;
    const middle = [(left + right) / 2 + this.offset[0] * halfWidth, (top + bottom) / 2 + this.offset[1] * halfHeight];
    return [a * halfWidth, c * halfHeight, b * halfWidth, d * halfHeight, ...middle];
  }
}

function axis(length) {
  return Float64Array.from({ length }, (_, index) => (length === 1 ? 0 : -1 + (2 * index) / (length - 1)));
}

function nearest(values, wanted) {
  let best = 0;
  for (let index = 1; index < values.length; index++) {
    if (Math.abs(values[index] - wanted) < Math.abs(values[best] - wanted)) best = index;
  }
  return best;
}

/** The box between two corners; null where it is too small to be meant: less than `least` pixels on a side. */
export function boxBetween(first, second, { width, height }, least = 1) {
  const sides = (a, b, most) => [Math.floor(clamp(Math.min(a, b), 0, most)), Math.ceil(clamp(Math.max(a, b), 0, most))];
  const [left, right] = sides(first.x, second.x, width), [top, bottom] = sides(first.y, second.y, height);
  return right - left < Math.max(1, least) || bottom - top < Math.max(1, least) ? null : [left, top, right, bottom];
}

/** What `chmnet match` says: "The target was mirrored before matching, 93% sure."; nothing where one pose was tried. */
export function poseInWords({ mirrored, turn, probability }) {
  if (probability === null || probability === undefined) return "";
  const turned = turn ? `turned by ${turn <= 180 ? `${turn}° counter-clockwise` : `${360 - turn}° clockwise`}` : "";
  const how = [mirrored ? "mirrored" : "", turned].filter(Boolean).join(", then ");
  return `The target was ${how ? `${how} before matching` : "matched as it is"}, ${Math.round(100 * probability)}% sure.`;
}

/** A doubt whether the pictures show the same kind of thing; nothing where they probably do. */
export function doubtInWords(sameKind) {
  if (sameKind === null || sameKind === undefined || sameKind >= 0.5) return "";
  return `The pictures seem to show different things, ${Math.round(100 * (1 - sameKind))}% sure.`;
}

export function clamp(value, low, high) { return Math.min(high, Math.max(low, value)); }
