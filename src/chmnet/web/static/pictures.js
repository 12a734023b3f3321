// Pictures that the page holds: files become bitmaps, small enough to draw quickly.

const LARGEST = 2048;

/** A picture from a file: shown by the browser, known to the server by `id` once it was sent. */
export async function fromBlob(blob, name) {
  let whole;
  try {
    whole = await createImageBitmap(blob);
  } catch {
    throw new Error(`${name} cannot be shown as a picture. Use a PNG, JPEG, WebP, GIF or BMP file.`);
  }
  const { width, height } = whole;
  const bitmap = onWhite(whole, Math.min(1, LARGEST / Math.max(width, height)));
  whole.close();
  return { bitmap, width, height, name, blob, id: null };
}

/** A picture to draw with: transparent parts white, as the network sees them. */
function onWhite(image, scale) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(image.width * scale));
  canvas.height = Math.max(1, Math.round(image.height * scale));
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** An example that the server offers. */
export async function fromExample(example) {
  const answer = await fetch(example.url);
  if (!answer.ok) throw new Error("The example cannot be loaded. Reload the page.");
  const blob = await answer.blob();
  const picture = await fromBlob(blob, example.title);
  picture.id = example.id;
  return picture;
}

/** Let a figure take pictures that are dropped on it or chosen with its button. */
export function acceptPictures(figure, take) {
  const input = figure.querySelector("input[type=file]");
  figure.querySelector(".pick").addEventListener("click", () => input.click());
  input.addEventListener("change", () => { if (input.files.length) take([...input.files]); input.value = ""; });
  figure.addEventListener("dragover", (event) => { event.preventDefault(); figure.classList.add("over"); });
  figure.addEventListener("dragleave", () => figure.classList.remove("over"));
  figure.addEventListener("drop", (event) => {
    event.preventDefault();
    figure.classList.remove("over");
    const files = [...event.dataTransfer.files];
    if (files.length) take(files);
  });
}
