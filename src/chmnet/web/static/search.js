// How the thing is looked for: in which poses, at which place.
import { BoxTool } from "./boxes.js";

export class Search {
  /** figures and stages by side; onChange is called when something else is to be matched. */
  constructor(figures, stages, onChange) {
    this.selects = { poses: document.getElementById("poses"), place: document.getElementById("place") };
    for (const select of Object.values(this.selects)) select.addEventListener("change", onChange);
    this.boxes = Object.fromEntries(["source", "target"].map((side) => [side, new BoxTool(figures[side], stages[side], onChange)]));
  }

  /** What a request says of it. */
  parameters() {
    const asked = Object.fromEntries(Object.entries(this.selects).map(([name, select]) => [name, select.value]));
    for (const side of ["source", "target"]) {
      if (this.boxes[side].box) asked[`${side}_box`] = this.boxes[side].box.join(",");
    }
    return asked;
  }
}
