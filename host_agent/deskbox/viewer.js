// Shows the desktop's picture and brings it back whenever it is lost. Sends no input.
import RFB from "./novnc/core/rfb.js";

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 2000;

const byId = (id) => document.getElementById(id);
const screen = byId("screen");
const last = byId("last");
let wait = FIRST_WAIT_MS;

function show(state, text) {
  document.body.dataset.state = state;
  byId("status").textContent = text;
}

function again(text) {
  show("connecting", text);
  setTimeout(connect, wait);
  wait = Math.min(wait * 2, LONGEST_WAIT_MS);
}

async function connect() {
  let answer;
  try {
    answer = await fetch("session");
  } catch {
    return again("The desktop's viewer does not answer: is the desktop still up? Trying again…");
  }
  if (answer.status === 403) return show("ended", await answer.text());
  if (!answer.ok) return again(await answer.text());

  const address = new URL("stream", location.href);
  address.protocol = "ws:";
  const rfb = new RFB(screen, address.href, { wsProtocols: ["binary"], shared: true });
  rfb.viewOnly = true;
  rfb.scaleViewport = true;
  rfb.background = "transparent";
  // The bytes stay on this machine: a clear picture is worth more than few of them.
  rfb.qualityLevel = 9;
  rfb.compressionLevel = 1;

  let canvas = null;
  rfb.addEventListener("connect", () => {
    wait = FIRST_WAIT_MS;
    canvas = screen.querySelector("canvas");
    byId("size").textContent = `${canvas.width} × ${canvas.height}`;
    show("live", "Live");
  });
  rfb.addEventListener("disconnect", () => {
    if (canvas && canvas.width && canvas.height) {
      last.width = canvas.width;
      last.height = canvas.height;
      last.getContext("2d").drawImage(canvas, 0, 0);
    }
    again("The picture was lost. Connecting again…");
  });
}

byId("fullscreen").addEventListener("click", () => byId("stage").requestFullscreen());
connect();
