// All requests to the server. Errors are messages for people; after HTTP 503 the request is sent again.

export class ServerError extends Error {
  constructor(status, error, whatToDo) {
    super(whatToDo ? `${sentence(error)} ${sentence(whatToDo)}` : sentence(error));
    this.status = status;
  }
}

function sentence(text) {
  const trimmed = text.trim().replace(/[.;]$/, "");
  return trimmed.charAt(0).toUpperCase() + trimmed.slice(1) + ".";
}

const BUSY_TRIES = 8;

export async function ask(path, options = {}) {
  for (let attempt = 0; ; attempt++) {
    let answer;
    try {
      answer = await fetch(path, { credentials: "same-origin", ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError(0, "the server does not respond", "check that chmnet serve is running, then try again");
    }
    if (answer.ok) return answer;
    if (answer.status === 503 && attempt < BUSY_TRIES && !options.signal?.aborted) {
      const seconds = Number(answer.headers.get("Retry-After")) || 1;
      await new Promise((done) => setTimeout(done, Math.min(seconds, 5) * 1000 * (0.75 + Math.random() / 2)));
      continue;
    }
    const details = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
    throw new ServerError(answer.status, details.error ?? "something went wrong", details.what_to_do ?? "");
  }
}

export const getJson = async (path, options) => (await ask(path, options)).json();

let largest = Infinity;

export async function learnLimits() { largest = (await getJson("/api/status")).upload_bytes; }

/** Send a picture file; the answer names it for this session. */
export async function loadPicture(blob, signal) {
  // Checked here too: few browsers show the answer of a server that refuses a large upload midway.
  if (blob.size > largest) throw new ServerError(413, `the file has ${Math.ceil(blob.size / 2 ** 20)} MB, more than ${Math.floor(largest / 2 ** 20)} MB`, "use a smaller picture");
  return (await ask("/api/pictures", { method: "POST", body: blob, headers: { "Content-Type": blob.type || "application/octet-stream" }, signal })).json();
}

/**
 * Ask about pictures of the session. When the server has forgotten them (restarted, or the session ended), they are
 * sent again, once: the page still has the files.
 */
export async function askAbout(pictures, path, options = {}) {
  const url = () => path(...pictures.map((picture) => picture.id));
  try {
    return await ask(url(), options);
  } catch (error) {
    if (error.status !== 404) throw error;
    for (const picture of pictures) {
      if (picture.blob) picture.id = (await loadPicture(picture.blob, options.signal)).id;
    }
    return ask(url(), options);
  }
}
