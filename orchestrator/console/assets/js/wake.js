// The start: in a page everything, in the worker that all tabs share the one
// connection.

if (typeof document === "undefined") {
  hostTabs();
} else {
  removeFlashFromAddress();
  startClock();
  startLive();
  startKeys();
  startEditor();
  followLogs();
  startCopying();
}

// removeFlashFromAddress takes what was just done out of the address, so that loading the
// page again does not say it again.
function removeFlashFromAddress() {
  const address = new URL(location.href);
  if (!address.searchParams.has("did")) return;
  address.searchParams.delete("did");
  address.searchParams.delete("id");
  history.replaceState(null, "", address);
}
