// Points and pictures as files.
import { cocoOf, CONFIDENCE_THRESHOLD } from "./coco.js";

export function download(content, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const round = (value) => Math.round(value * 1000) / 1000;

export function toCsv(points) {
  const rows = points.map((point, index) => [
    index + 1, round(point.source.x), round(point.source.y), round(point.target.x), round(point.target.y),
    round(point.confidence), point.corrected ? 1 : 0,
  ].join(","));
  return ["number,source_x,source_y,target_x,target_y,confidence,corrected", ...rows].join("\n") + "\n";
}

/** Both pictures with their keypoints, one annotation each, in COCO's keypoint format. */
export function toCoco(source, target, points, model) {
  const items = [
    { picture: source, points: points.map((point) => ({ ...point.source, confidence: 1 })), reviewed: true },
    { picture: target, points: points.map((point) => ({ ...point.target, confidence: point.confidence, corrected: point.corrected, doubtful: point.confidence < CONFIDENCE_THRESHOLD })) },
  ];
  return cocoOf(items, points.map((_, index) => `point ${index + 1}`), { model, description: "Keypoints of one picture, found by chmnet in another." });
}

/** Both stages side by side, as they are seen. */
export function toPng(stages) {
  const canvases = stages.map((stage) => { stage.paintNow(); return stage.canvas; });
  const drawing = document.createElement("canvas");
  const gap = 16;
  drawing.width = canvases[0].width + gap + canvases[1].width;
  drawing.height = Math.max(canvases[0].height, canvases[1].height);
  const pen = drawing.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, drawing.width, drawing.height);
  pen.drawImage(canvases[0], 0, 0);
  pen.drawImage(canvases[1], canvases[0].width + gap, 0);
  return new Promise((done) => drawing.toBlob(done, "image/png"));
}
