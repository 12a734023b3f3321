// Keypoints in COCO's format, as `chmnet propagate` writes it: one category, one annotation a picture. It is made here,
// not by the server: names of files never leave the page.

export const CONFIDENCE_THRESHOLD = 0.5;

const rounded = (digits) => (value) => Math.round(value * 10 ** digits) / 10 ** digits;
const pixel = rounded(3), share = rounded(4);

const DESCRIPTION = "v = 2: placed, corrected or reviewed by a person, or keypoint_confidence is at least minimum_confidence; "
  + "v = 1: it is less, or the point was moved in to the picture's edge, please review; v = 0: not found.";

/**
 * items: [{ picture: { name, width, height }, points: [{ x, y, confidence, unmatched, foreground, corrected, doubtful } or null],
 * reviewed, sources, pose, box }]; sources and pose where points were carried over from other pictures, box (left, top,
 * right, bottom) where a person drew one.
 */
export function cocoOf(items, names, { model, description = "Keypoints labelled with chmnet." }) {
  const labelled = items.filter((item) => item.points.some(Boolean));
  const document = {
    info: { description: `${description} ${DESCRIPTION}`, model, minimum_confidence: CONFIDENCE_THRESHOLD },
    licenses: [],
    images: labelled.map(({ picture }, index) => ({ id: index + 1, file_name: picture.name, width: picture.width, height: picture.height })),
    annotations: labelled.map((item, index) => ({ id: index + 1, image_id: index + 1, category_id: 1, ...describe(item, names) })),
    categories: [{ id: 1, name: "object", supercategory: "", keypoints: names, skeleton: [] }],
  };
  return JSON.stringify(document, null, 1) + "\n";
}

function describe({ picture, points, reviewed, sources, pose, box: given }, names) {
  const all = names.map((_, index) => points[index] ?? null);
  const placed = all.filter(Boolean);
  const confidence = (point) => (point ? (point.corrected ? 1 : share(point.confidence)) : 0);
  const unmatched = (point) => (point?.corrected ? 0 : share(point?.unmatched ?? 1));
  const foreground = (point) => (point?.corrected ? 1 : share(point?.foreground ?? 0));
  const review = (point) => Boolean(point && !reviewed && !point.corrected && point.doubtful);
  const bbox = given ? [given[0], given[1], given[2] - given[0], given[3] - given[1]].map(pixel) : box(placed, picture);
  return {
    keypoints: all.flatMap((point) => (point ? [pixel(point.x), pixel(point.y), review(point) ? 1 : 2] : [0, 0, 0])),
    num_keypoints: placed.length,
    bbox,
    area: pixel(bbox[2] * bbox[3]),
    iscrowd: 0,
    segmentation: [],
    score: share(placed.reduce((sum, point) => sum + confidence(point), 0) / placed.length),
    keypoint_confidence: all.map(confidence),
    keypoint_unmatched: placed.some((point) => typeof point.unmatched === "number") ? all.map(unmatched) : null,
    keypoint_foreground: placed.some((point) => typeof point.foreground === "number") ? all.map(foreground) : null,
    needs_review: all.some(review),
    review_keypoints: names.filter((_, index) => review(all[index])),
    corrected: all.map((point) => Boolean(point?.corrected)),
    ...(sources?.length ? { source_images: sources, pose } : {}),
  };
}

/** The smallest box around the points, at least one pixel wide and high, and inside the picture. */
function box(points, { width, height }) {
  const side = (values, limit) => {
    const least = Math.min(...values), extent = Math.max(Math.max(...values) - least, Math.min(1, limit));
    return [Math.min(least, limit - extent), extent];
  };
  const [left, across] = side(points.map((point) => point.x), width), [top, down] = side(points.map((point) => point.y), height);
  return [left, top, across, down].map(pixel);
}
