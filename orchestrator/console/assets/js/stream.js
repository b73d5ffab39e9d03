// The event stream, read with fetch: unlike EventSource it tells a login that
// is over from a server that is away, and a dead connection from a quiet one.

// The server says something at least every 15 seconds.
const SILENCE = 45_000;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

// follow reads url from the cursor after until stop is called, and connects
// again whenever the stream breaks. told gets {state: "live" | "lost" | "over"},
// {events: [event]}, in order and each once, and {reset: true} when events are
// gone and everything has to be loaded again. "over" is the end: nobody is
// signed in any more.
function follow(url, after, told) {
  const reader = { cursor: String(after), wait: FIRST_WAIT, stopped: false, connection: null, told };
  run(reader, url);
  return {
    cursor: () => Number(reader.cursor),
    stop() {
      reader.stopped = true;
      reader.connection?.abort();
    },
  };
}

async function run(reader, url) {
  while (!reader.stopped) {
    const over = await connect(reader, url).catch(() => false);
    if (reader.stopped) return;
    reader.told({ state: over ? "over" : "lost" });
    if (over) return;
    await sleep(reader.wait * (0.5 + Math.random() / 2));
    reader.wait = Math.min(2 * reader.wait, LONGEST_WAIT);
  }
}

// connect reads one connection to its end and reports whether the login is
// over.
async function connect(reader, url) {
  const connection = (reader.connection = new AbortController());
  let alarm = setTimeout(() => connection.abort(), SILENCE);
  try {
    const answer = await fetch(url + "?after=" + reader.cursor, {
      headers: { Accept: "text/event-stream", "Picket-Part": "events", "Last-Event-ID": reader.cursor },
      cache: "no-store",
      redirect: "manual",
      signal: connection.signal,
    });
    if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403) return true;
    if (!answer.ok) return false;
    reader.told({ state: "live" });
    const chunks = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await chunks.read();
      if (done) return false;
      clearTimeout(alarm);
      alarm = setTimeout(() => connection.abort(), SILENCE);
      reader.wait = FIRST_WAIT;
      text = takeBlocks(reader, text + value);
    }
  } finally {
    clearTimeout(alarm);
    connection.abort();
  }
}

// takeBlocks hands over the whole blocks in text and answers the rest. The cursor
// moves with a whole block only.
function takeBlocks(reader, text) {
  const blocks = text.split("\n\n");
  const rest = blocks.pop();
  let events = [];
  const flush = () => {
    if (events.length) reader.told({ events });
    events = [];
  };
  for (const block of blocks) {
    const { event, id, data } = fields(block);
    if (id) reader.cursor = id;
    if (event === "reset") {
      flush();
      reader.told({ reset: true });
    } else if (data) {
      events.push(pickFields(JSON.parse(data)));
    }
  }
  flush();
  return rest;
}

function fields(block) {
  const all = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at > 0) all[line.slice(0, at)] = line.slice(at + 1).replace(/^ /, "");
  }
  return all;
}

// Pages decide by these members whether an event concerns them.
function pickFields({ seq, type, taskId, runId, agentId, data }) {
  return { seq, type, taskId, runId, agentId, to: data?.to };
}

// sleep ends early when the machine is on the network again.
function sleep(ms) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    addEventListener("online", end);
  });
}
