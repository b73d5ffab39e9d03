// A client of an A2A endpoint that is written with the official SDK for JavaScript. It walks through what a client does,
// over both bindings, and prints a line for each step. The pool must have a scripted worker.
//
//	PICKET_A2A_URL=http://127.0.0.1:7070/agents/builder PICKET_A2A_KEY=… node a2aclient.mjs
//
// With PICKET_A2A_PUSH=PORT it also receives push notifications, on that port of 127.0.0.1, which notify.allow names.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { Role, TaskState } from "@a2a-js/sdk";
import {
  ClientFactory, ClientFactoryOptions, createAuthenticatingFetchWithRetry, DefaultAgentCardResolver,
  JsonRpcTransportFactory, RestTransportFactory,
} from "@a2a-js/sdk/client";

const STEP_TIMEOUT = 30_000; // ms
const ENDED = [TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED,
  TaskState.TASK_STATE_REJECTED];

const { PICKET_A2A_URL: url, PICKET_A2A_KEY: key, PICKET_A2A_PUSH: push } = process.env;
const authenticated = createAuthenticatingFetchWithRetry(fetch, {
  headers: async () => ({ "X-API-Key": key }),
  shouldRetryWithHeaders: async () => undefined,
});

// connect finds the card below the URL, and makes a client that prefers a binding. The resolver of the SDK needs the
// slash at the end.
async function connect(binding) {
  const options = { fetchImpl: authenticated };
  const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory(options), new RestTransportFactory(options)],
    preferredTransports: [binding],
    cardResolver: new DefaultAgentCardResolver(options),
  }));
  const client = await factory.createFromUrl(url + "/");
  assert.equal(client.transport.protocolName, binding);
  return client;
}

// request is a message whose id tells the scripted worker what to do.
function request(prefix, { taskId = "", returnImmediately = false } = {}) {
  const message = { messageId: `${prefix}-${randomUUID()}`, contextId: "", taskId, role: Role.ROLE_USER, metadata: undefined,
    parts: [{ content: { $case: "text", value: "Please." }, metadata: undefined, filename: "", mediaType: "text/plain" }],
    extensions: [], referenceTaskIds: [] };
  const configuration = { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately };
  return { tenant: "", message, configuration, metadata: undefined };
}

const textOf = (artifacts) => artifacts.flatMap((a) => a.parts).map((p) => p.content?.value ?? "").join("");
const stateOf = (task) => TaskState[task.status.state];

// stateIn is the state that an event of a stream tells, if it tells one.
const stateIn = ({ payload }) => payload.value.status?.state;

// readAll reads a stream to its end.
async function readAll(stream, each = () => {}) {
  const events = [];
  for await (const event of stream) {
    events.push(event);
    await each(event);
  }
  return events;
}

const steps = {
  async card(client) {
    const card = await client.getAgentCard();
    assert.equal(card.name, "Builders");
    assert.deepEqual(card.skills.map((s) => s.id), ["go"]);
    assert.deepEqual(card.supportedInterfaces.map((i) => i.protocolVersion), ["1.0", "1.0"]);
  },

  async send(client) {
    const task = await client.sendMessage(request("tck-complete-task"));
    assert.equal(stateOf(task), "TASK_STATE_COMPLETED");
    assert.equal(textOf(task.artifacts), "Hello from TCK");
    const again = await client.getTask({ tenant: "", id: task.id });
    assert.equal(stateOf(again), "TASK_STATE_COMPLETED");
    const listed = await client.listTasks({ tenant: "", contextId: task.contextId, pageSize: 10, pageToken: "",
      status: TaskState.TASK_STATE_UNSPECIFIED, statusTimestampAfter: undefined });
    assert.deepEqual(listed.tasks.map((t) => t.id), [task.id]);
  },

  async repeat(client) {
    const same = request("tck-complete-task");
    const first = await client.sendMessage(same);
    const second = await client.sendMessage(same);
    assert.equal(second.id, first.id, "a message that is sent twice made two tasks");
  },

  async stream(client) {
    const events = await readAll(client.sendMessageStream(request("tck-stream-001")));
    assert.equal(events[0].payload.$case, "task");
    const artifacts = events.filter((e) => e.payload.$case === "artifactUpdate").map((e) => e.payload.value.artifact);
    assert.equal(textOf(artifacts), "Stream hello from TCK");
    assert.equal(stateIn(events.at(-1)), TaskState.TASK_STATE_COMPLETED);
    assert.ok(events.some((e) => stateIn(e) === TaskState.TASK_STATE_WORKING), "the stream does not report the work");
  },

  async answer(client) {
    const asked = await client.sendMessage(request("tck-input-required"));
    assert.equal(stateOf(asked), "TASK_STATE_INPUT_REQUIRED");
    assert.equal(textOf([asked.status.message]), "What else is needed?");
    const answered = await client.sendMessage(request("answer", { taskId: asked.id }));
    assert.equal(answered.id, asked.id);
    assert.equal(stateOf(answered), "TASK_STATE_COMPLETED");
  },

  async cancel(client) {
    const task = await client.sendMessage(request("tck-cancel", { returnImmediately: true }));
    assert.ok(!ENDED.includes(task.status.state));
    let cancelled;
    const events = await readAll(client.resubscribeTask({ tenant: "", id: task.id }), async (event) => {
      if (!cancelled && stateIn(event) === TaskState.TASK_STATE_WORKING) {
        cancelled = await client.cancelTask({ tenant: "", id: task.id, metadata: undefined });
      }
    });
    assert.equal(stateOf(cancelled), "TASK_STATE_CANCELED");
    assert.equal(stateIn(events.at(-1)), TaskState.TASK_STATE_CANCELED);
  },

  // A client that has lost its stream subscribes again, and misses nothing.
  async resubscribe(client) {
    const lost = new AbortController();
    let task;
    const stream = client.sendMessageStream(request("test-resubscribe-message-id"), { signal: lost.signal });
    for await (const event of stream) {
      task = event.payload.value;
      break;
    }
    lost.abort();
    const events = await readAll(client.resubscribeTask({ tenant: "", id: task.id }));
    assert.equal(events[0].payload.$case, "task");
    assert.equal(events[0].payload.value.id, task.id);
    assert.equal(stateIn(events.at(-1)), TaskState.TASK_STATE_COMPLETED);
  },

  async refusals(client) {
    await assert.rejects(client.getTask({ tenant: "", id: "no-such-task" }), { name: "TaskNotFoundError" });
    const done = await client.sendMessage(request("tck-complete-task"));
    await assert.rejects(client.cancelTask({ tenant: "", id: done.id, metadata: undefined }),
      { name: "TaskNotCancelableError" });
  },
};

// A receiver on this machine gets the changes of a task.
async function receive(client) {
  const received = [];
  const receiver = createServer(async (req, res) => {
    const chunks = await req.toArray();
    received.push({ token: req.headers["x-a2a-notification-token"], body: Buffer.concat(chunks).toString() });
    res.writeHead(200).end();
    receiver.emit("notified");
  });
  receiver.listen(Number(push), "127.0.0.1");
  await once(receiver, "listening");
  try {
    const task = await client.sendMessage(request("test-resubscribe-message-id", { returnImmediately: true }));
    await client.createTaskPushNotificationConfig({ tenant: "", id: "", taskId: task.id, token: "from-the-client",
      url: `http://127.0.0.1:${receiver.address().port}/`, authentication: undefined });
    while (!received.some((r) => r.body.includes("TASK_STATE_COMPLETED"))) await once(receiver, "notified");
    assert.ok(received.every((r) => r.token === "from-the-client" && r.body.includes(task.id)));
  } finally {
    receiver.close();
    receiver.closeAllConnections();
  }
}

// within fails if a step takes too long.
function within(step) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${STEP_TIMEOUT} ms`)), STEP_TIMEOUT);
  });
  return Promise.race([step, late]).finally(() => clearTimeout(timer));
}

let failed = 0;
for (const binding of ["JSONRPC", "HTTP+JSON"]) {
  const client = await connect(binding);
  for (const [name, step] of Object.entries(push ? { ...steps, push: receive } : steps)) {
    try {
      await within(step(client));
      console.log(`ok ${binding} ${name}`);
    } catch (err) {
      failed++;
      console.log(`FAILED ${binding} ${name}: ${err.stack}`);
    }
  }
}
process.exit(failed ? 1 : 0);
