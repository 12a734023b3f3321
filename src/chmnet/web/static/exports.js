// Points and pictures as files.

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
  const names = points.map((_, index) => `point ${index + 1}`);
  const image = (picture, id) => ({ id, file_name: picture.name, width: picture.width, height: picture.height });
  const annotation = (side, id, picture) => ({
    id, image_id: id, category_id: 1, num_keypoints: points.length, iscrowd: 0,
    keypoints: points.flatMap((point) => [round(point[side].x), round(point[side].y), 2]),
    ...box(points.map((point) => point[side]), picture),
    ...(side === "target" ? { confidences: points.map((point) => round(point.confidence)), corrected: points.map((point) => Boolean(point.corrected)) } : {}),
  });
  return JSON.stringify({
    info: { description: `points matched with chmnet, model ${model}` },
    images: [image(source, 1), image(target, 2)],
    categories: [{ id: 1, name: "object", keypoints: names, skeleton: [] }],
    annotations: [annotation("source", 1, source), annotation("target", 2, target)],
  }, null, 1) + "\n";
}

/** The smallest box around the points, within the picture. */
function box(points, picture) {
  if (!points.length) return { bbox: [0, 0, picture.width, picture.height], area: picture.width * picture.height };
  const xs = points.map((point) => point.x), ys = points.map((point) => point.y);
  const left = Math.min(...xs), top = Math.min(...ys);
  const width = Math.max(1, Math.max(...xs) - left), height = Math.max(1, Math.max(...ys) - top);
  return { bbox: [left, top, width, height].map(round), area: round(width * height) };
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
