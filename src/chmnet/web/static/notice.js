// One place for messages to the person.

const box = document.getElementById("notice");
box.querySelector("button").addEventListener("click", hideNotice);

export function tell(message) {
  box.querySelector("p").textContent = message;
  box.hidden = false;
}

export function hideNotice() { box.hidden = true; }

/** Run what a person asked for; show what goes wrong. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name !== "AbortError") tell(error.message || String(error));
    return undefined;
  }
}

export function announce(text) { document.getElementById("live").textContent = text; }
