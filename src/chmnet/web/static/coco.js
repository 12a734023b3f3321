// Keypoints in COCO's format: one category, one annotation for each picture that has points.

const round = (value) => Math.round(value * 1000) / 1000;

/** items: [{ picture: { name, width, height }, points: [{ x, y, confidence, corrected }], reviewed }] */
export function cocoOf(items, names, description = "labelled with chmnet") {
  const labelled = items.filter((item) => item.points.length);
  const document = {
    info: { description },
    images: labelled.map(({ picture }, index) => ({ id: index + 1, file_name: picture.name, width: picture.width, height: picture.height })),
    categories: [{ id: 1, name: "object", keypoints: names, skeleton: [] }],
    annotations: labelled.map((item, index) => ({
      id: index + 1,
      image_id: index + 1,
      category_id: 1,
      iscrowd: 0,
      num_keypoints: item.points.length,
      keypoints: item.points.flatMap((point) => [round(point.x), round(point.y), 2]),
      ...box(item.points),
      confidences: item.points.map((point) => round(point.confidence)),
      corrected: item.points.map((point) => Boolean(point.corrected)),
    })),
  };
  return JSON.stringify(document, null, 1) + "\n";
}

/** The smallest box around the points. */
function box(points) {
  const xs = points.map((point) => point.x), ys = points.map((point) => point.y);
  const left = Math.min(...xs), top = Math.min(...ys);
  const width = Math.max(1, Math.max(...xs) - left), height = Math.max(1, Math.max(...ys) - top);
  return { bbox: [left, top, width, height].map(round), area: round(width * height) };
}
