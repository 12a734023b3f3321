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
      transferConfig: header.transfer,
      sourceSize: header.source_size,
      targetSize: header.target_size,
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
    const px = clamp(x / (this.sourceSize[1] / 2) - 1, -100, 100);
    const py = clamp(y / (this.sourceSize[0] / 2) - 1, -100, 100);
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
    return {
      x: (tx + 1) * (this.targetSize[1] / 2),
      y: (ty + 1) * (this.targetSize[0] / 2),
      confidence: clamp(confidence, 0, 1),
    };
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

  /** The most confident matches of the grid, the best first; as MatchResult.matches. */
  matches(top) {
    const [, width] = this.sourceGrid;
    const order = Array.from(this.confidence.keys()).sort((a, b) => this.confidence[b] - this.confidence[a] || a - b);
    return order.slice(0, top).map((cell) => ({
      source: [
        (this.xAxis[cell % width] + 1) * (this.sourceSize[1] / 2),
        (this.yAxis[Math.floor(cell / width)] + 1) * (this.sourceSize[0] / 2),
      ],
      target: [
        (this.positions[2 * cell] + 1) * (this.targetSize[1] / 2),
        (this.positions[2 * cell + 1] + 1) * (this.targetSize[0] / 2),
      ],
      confidence: this.confidence[cell],
    }));
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

export function clamp(value, low, high) { return Math.min(high, Math.max(low, value)); }
