// Loaded into every Node program that sandbox-emulator starts. Connections to
// the platform's names lead to the emulator, which tells by the Host header what
// was meant. It is done where connections are made, so that it holds for fetch,
// undici, http, and WebSockets alike, whatever version of them a program brings.
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";
import tls from "node:tls";

const emulator = new URL(process.env.VERCEL_SANDBOX_BASE_URL);
const port = Number(emulator.port || 80);
const host = emulator.hostname.replace(/^\[|\]$/g, "");

const isPlatform = (name) => name === "vercel.com" || name === "api.vercel.com" || name.endsWith(".vercel.run");

const connect = tls.connect;

tls.connect = function (...args) {
  const options = args.find((arg) => arg !== null && typeof arg === "object") ?? {};
  const named = typeof args[0] === "number" && typeof args[1] === "string" ? args[1] : undefined;
  const name = String(options.servername || options.host || named || "").toLowerCase();
  if (!isPlatform(name)) return connect.apply(this, args);
  options.socket?.destroy?.(); // one through a proxy
  const socket = net.connect({ host, port, allowHalfOpen: Boolean(options.allowHalfOpen) });
  // What programs ask a TLS connection for. It never leaves this machine.
  Object.assign(socket, {
    encrypted: true,
    authorized: true,
    alpnProtocol: false,
    servername: name,
    getPeerCertificate: () => ({}),
    getCipher: () => ({ name: "none", standardName: "none", version: "none" }),
    getProtocol: () => null,
    getSession: () => undefined,
    isSessionReused: () => false,
    setServername: () => {},
  });
  socket.once("connect", () => socket.emit("secureConnect"));
  const callback = args.find((arg) => typeof arg === "function");
  if (callback) socket.once("secureConnect", callback);
  return socket;
};

syncBuiltinESMExports();
