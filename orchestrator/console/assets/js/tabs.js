// One connection for all tabs of a browser: it allows six to one server, and a
// page that found them all taken by streams would not load. The same script
// runs as a SharedWorker, of which each tab is a port.

// hostTabs is the worker's part.
function hostTabs() {
  const tabs = new Set();
  let source = null;
  let state = "lost";

  const tell = (message) => {
    if (message.state) state = message.state;
    for (const tab of tabs) tab.postMessage(message);
  };
  const join = (tab, { url, after }) => {
    tabs.add(tab);
    if (source && state !== "over") {
      tab.postMessage({ state });
      // What happened between the making of this page and now went past it.
      if (source.cursor() > after) tab.postMessage({ reset: true });
      return;
    }
    source = follow(url, after, tell);
    for (const other of tabs) if (other !== tab) other.postMessage({ reset: true });
  };
  const leave = (tab) => {
    tabs.delete(tab);
    if (tabs.size) return;
    source?.stop();
    source = null;
  };
  addEventListener("connect", ({ ports: [tab] }) => {
    tab.onmessage = ({ data }) => (data.leave ? leave(tab) : join(tab, data));
  });
}

// joinTabs is a page's part. told gets what follow tells; the answer ends it.
// desk keeps people with different keys apart.
function joinTabs(url, after, loginId, told) {
  if (typeof SharedWorker === "undefined") return follow(url, after, told).stop;
  const worker = new SharedWorker(import.meta.url, { type: "module", name: "picket " + loginId });
  let leave = () => {
    worker.port.postMessage({ leave: true });
    worker.port.close();
  };
  worker.addEventListener("error", () => (leave = follow(url, after, told).stop)); // a browser that can do without
  worker.port.onmessage = ({ data }) => told(data);
  worker.port.postMessage({ url, after: Number(after) });
  return () => leave();
}
