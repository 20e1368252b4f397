// Runs Pyodide for Spool: loads a distribution, says so, and then executes the
// scripts that come over its one connection. A process of it is either the one
// that others are forked from, in which case the wait for the first message is
// where they begin, or one that executes scripts itself.
//
// Everything a script reaches beside its own memory goes over descriptor 3 as
// frames (see frame.go): output, input, asks, files. Nothing here protects the
// host: scripts can reach JavaScript and control this whole process. The
// protections are around the process.
import fs from 'node:fs';

const FD = 3;
const SNAPSHOT_FD = 4;
const config = JSON.parse(process.argv.at(-1));
const started = performance.now();

// The operations of a frame, as in frame.go.
const OP = {
  stdout: 1, stderr: 2, stdin: 3, ask: 4, started: 5, done: 6, failed: 7, ready: 8,
  stat: 16, open: 17, close: 18, read: 19, write: 20, append: 21, truncate: 22, fstat: 23,
  readdir: 24, mkdir: 25, unlink: 26, rmdir: 27, rename: 28, symlink: 29, readlink: 30,
  chmod: 31, chtimes: 32, resize: 33, create: 34,
};
const HEADER = 8;
const MAX_ASK = (4 << 20) - 1024; // an ask is one frame; see maxFrame
const CHUNK = 1 << 20; // most bytes of a file or of output in one frame
const text = new TextDecoder();

// The connection.

let outgoing = Buffer.alloc(64 << 10);
let incoming = Buffer.alloc(64 << 10);
let length = 0; // of the payload of the last reply

function room(n) {
  if (outgoing.length < HEADER + n) outgoing = Buffer.alloc(2 * (HEADER + n));
  return outgoing;
}

function push(op, flag, n) {
  outgoing.writeUInt32LE(n, 0);
  outgoing.writeUInt32LE(op | (flag << 8), 4);
  for (let at = 0, end = HEADER + n; at < end;) at += fs.writeSync(FD, outgoing, at, end - at);
}

// pull waits for a reply. Its payload is in incoming, behind the header.
function pull() {
  let have = 0;
  for (let need = HEADER; have < need;) {
    const n = fs.readSync(FD, incoming, have, incoming.length - have, null);
    if (n === 0) exit(0); // the host is gone
    have += n;
    if (have >= HEADER) {
      length = incoming.readUInt32LE(0);
      need = HEADER + length;
      if (need > incoming.length) {
        const larger = Buffer.alloc(need);
        incoming.copy(larger, 0, 0, have);
        incoming = larger;
      }
    }
  }
  return incoming.readUInt32LE(4);
}

function send(op, bytes) {
  room(bytes.length).set(bytes, HEADER);
  push(op, 0, bytes.length);
}

const sendText = (op, s) => send(op, Buffer.from(s));
const payload = () => incoming.subarray(HEADER, HEADER + length);

let mute = false; // while output is discarded

function output(op, bytes) {
  if (mute) return;
  for (let at = 0; at < bytes.length; at += CHUNK) send(op, bytes.subarray(at, at + CHUNK));
}

// input reads standard input into a buffer and returns how much there was;
// none means its end.
function input(buffer) {
  if (buffer.length === 0) return 0;
  room(4).writeUInt32LE(Math.min(buffer.length, CHUNK), HEADER);
  push(OP.stdin, 0, 4);
  if (pull() !== 0) return 0;
  buffer.set(payload());
  return length;
}

function ask(kind, data) {
  const k = Buffer.from(kind), d = Buffer.from(data);
  if (k.length > 256 || d.length > MAX_ASK) return '{"error":{"code":"E2BIG","message":"the ask is too large"}}';
  const b = room(4 + k.length + d.length);
  b.writeUInt32LE(k.length, HEADER);
  k.copy(b, HEADER + 4);
  d.copy(b, HEADER + 4 + k.length);
  push(OP.ask, 0, 4 + k.length + d.length);
  pull();
  return text.decode(payload());
}

// What a replacement of Pyodide may ask its host, as functions that wait and as
// functions that promise. The second name is one that such replacements know.

const services = {
  fsRead: (path) => [['fs.read', { path }], (v) => v.content_base64],
  fsWrite: (path, content) => [['fs.write', {
    path, content_base64: typeof content === 'string' ? content : Buffer.from(content).toString('base64'),
  }], () => undefined],
  fsStat: (path) => [['fs.stat', { path }], (v) => ({
    mode: v.stat.mode, size: v.stat.size, isDirectory: v.stat.is_directory, isSymbolicLink: v.stat.is_symbolic_link,
  })],
  fsReaddir: (path) => [['fs.readdir', { path }], (v) => v.entries],
  fsMkdir: (path, o) => [['fs.mkdir', { path, recursive: Boolean(o?.recursive) }], () => undefined],
  httpRequest: (url, o) => [['http.request', {
    url, method: o?.method ?? 'GET', headers: o?.headers ?? {}, body_base64: o?.bodyBase64,
  }], (v) => ({ status: v.status, reason: v.reason, url: v.url, headers: v.headers, bodyBase64: v.body_base64 })],
  dnsLookup: (hostname, family) => [['dns.lookup', { hostname, family }], (v) => v.addresses],
  subprocessRun: (command, args, o) => [['subprocess.run', {
    command, args: args ?? [], cwd: o?.cwd, env: o?.env, shell: Boolean(o?.shell), max_buffer: o?.maxBuffer,
  }], (v) => ({ exitCode: v.exit_code, stdout: v.stdout, stderr: v.stderr, maxBufferExceeded: v.max_buffer_exceeded })],
};

const host = {};
for (const [name, make] of Object.entries(services)) {
  host[name + 'Sync'] = (...args) => {
    const [[kind, data], value] = make(...args);
    const reply = JSON.parse(ask(kind, JSON.stringify(data)));
    if (reply.error) throw Object.assign(new Error(reply.error.message), { code: reply.error.code });
    return value(reply.value ?? {});
  };
  host[name] = async (...args) => host[name + 'Sync'](...args);
}
globalThis.spoolHost = globalThis.__agentOsPythonVfsRpc = host;

// There is no network; this only says it better than the system would.
const localFetch = globalThis.fetch;
globalThis.fetch = async (resource, init) => {
  const url = String(resource?.url ?? resource);
  if (/^(data|blob|file):/.test(url)) return localFetch(resource, init);
  throw Object.assign(new Error('network access is not available in a sandbox'), { code: 'ERR_ACCESS_DENIED' });
};

// The memory limit for scripts that do not try to get around it: an interpreter
// that may not grow raises MemoryError and continues. The limit of the process
// stands behind it.
let memoryLimit = 0;
const grow = WebAssembly.Memory.prototype.grow;
WebAssembly.Memory.prototype.grow = function (pages) {
  if (memoryLimit > 0 && this.buffer.byteLength + pages * 65536 > memoryLimit) throw new RangeError('out of memory');
  return grow.call(this, pages);
};

// Loading.

const early = []; // what was printed before there was a script
let line = (op, s) => early.push([op, s + '\n']);
const info = { kind: 'plain', version: '', python: '', load_ms: 0, packages_ms: 0, packages: 0 };
let py;

// readSnapshot does not use the position in the file, which other processes
// share.
function readSnapshot() {
  const bytes = Buffer.alloc(fs.fstatSync(SNAPSHOT_FD).size);
  for (let at = 0; at < bytes.length;) {
    const n = fs.readSync(SNAPSHOT_FD, bytes, at, bytes.length - at, at);
    if (n === 0) throw new Error('the snapshot is cut off');
    at += n;
  }
  fs.closeSync(SNAPSHOT_FD);
  return bytes;
}

async function load() {
  const { loadPyodide } = await import(config.dist + 'pyodide.mjs');
  if (typeof loadPyodide !== 'function') throw new Error('pyodide.mjs exports no loadPyodide');
  const options = {
    indexURL: config.dist,
    stdout: (s) => line(OP.stdout, s),
    stderr: (s) => line(OP.stderr, s),
  };
  if (config.packages_dir) options.packageCacheDir = options.packageBaseUrl = config.packages_dir;
  if (config.mode === 'snapshot') options._makeSnapshot = true;
  if (config.snapshot) {
    options._loadSnapshot = readSnapshot();
  }
  py = await loadPyodide(options);
  // What is loaded is not needed again, and every fork would copy its pages'
  // table entries.
  delete options._loadSnapshot;
  if (py._api?.config) delete py._api.config._loadSnapshot;
  info.version = String(py.version ?? '');
  if (py.FS && py._module && typeof py.runPython === 'function') info.kind = 'pyodide';
  info.load_ms = performance.now() - started;
}

let boot, signal;

// prepare makes the interpreter one that only needs its script.
async function prepare() {
  const before = performance.now();
  if (config.packages?.length) {
    const problems = [];
    await py.loadPackage(config.packages, { messageCallback() {}, errorCallback: (s) => problems.push(s) });
    for (const name of config.packages) {
      if (!py.loadedPackages[name]) throw new Error(`load package ${name}: ${problems.join('; ') || 'it was not found'}`);
    }
    info.packages = Object.keys(py.loadedPackages).length;
  }
  py.registerJsModule('_spool', { call: ask, sleep });
  const site = py._api.sitepackages ?? py._api.sitePackages ?? py.runPython('import site; site.getsitepackages()[0]');
  py.FS.writeFile(`${site}/_spool_boot.py`, config.boot);
  py.FS.writeFile(`${site}/spool.py`, config.module);
  py.setStdout({ write: (b) => { output(OP.stdout, b); return b.length; }, isatty: false });
  py.setStderr({ write: (b) => { output(OP.stderr, b); return b.length; }, isatty: false });
  py.setStdin({ read: input, isatty: false });
  mute = true;
  py.FS.chdir('/');
  py.runPython(config.prelude, { globals: py.toPy({}) });
  for (const name of config.imports ?? []) py.runPython(`import ${name}`, { globals: py.toPy({}) });
  if (config.packages?.length) info.packages_ms = performance.now() - before;
  boot = py.pyimport('_spool_boot');
  info.python = py.runPython('import sys; sys.version.split()[0]', { globals: py.toPy({}) });
  mute = false;
  mountHost();
  for (let i = 0; i < (config.exercise ? REHEARSALS : 1); i++) {
    await execute(JSON.parse(text.decode(Buffer.from('{"rehearse":true,"memory":0}'))));
  }
  if (config.exercise) exercise();
  py.runPython('import gc\ngc.collect()\ngc.freeze()', { globals: py.toPy({}) });
  signal = new Uint8Array(new SharedArrayBuffer(SIGNAL_SIZE));
  for (let i = 64; i < SIGNAL_SIZE; i++) signal[i] = (config.mark + i * 167) & 255;
  py.setInterruptBuffer(signal);
}

// What the process that others are forked from does before: what is compiled
// there need not be in each of them, and if it is code of WebAssembly could not
// be, because that takes threads.
const REHEARSALS = 40;
const EXERCISE_SECONDS = 0.4;

// rehearse goes once through everything a script needs, so that it is compiled
// and, in a fork, the memory for it is there. The supervisor
// answers its requests.
function rehearse() {
  perform({
    renew: { env: { HOME: '/' }, cwd: '/workspace', seed: '00'.repeat(32), fresh: false },
    script: { code: 'print("rehearsal")\nNone', cell: true },
  });
  boot._count = 0;
}

// exercise has the interpreter do what scripts do, long enough that what is
// done most is compiled best.
function exercise() {
  const space = py.toPy({});
  py.runPython(config.exercise, { globals: space });
  space.get('exercise')(EXERCISE_SECONDS);
  space.destroy();
}

const SIGNAL_SIZE = 4096;
const clock = new Int32Array(new SharedArrayBuffer(4));

// sleep waits without work, and looks now and then whether it should stop.
function sleep(seconds) {
  for (const end = performance.now() + seconds * 1000;;) {
    const left = end - performance.now();
    if (left <= 0) return;
    Atomics.wait(clock, 0, 0, Math.min(left, 20));
    py.checkInterrupt();
  }
}

// Files. Emscripten keeps a tree of nodes; ours are never kept, so that a name
// always means what it means at the host at that moment.

function mountHost() {
  const FS = py.FS, M = py._module;
  const own = new Set(['lib', 'dev', 'proc']); // the interpreter's own, in its memory
  const fail = (errno) => { throw new FS.ErrnoError(errno); };
  const EXDEV = 75, EPERM = 63, EBADF = 8, EINVAL = 28;

  const pathOf = (node) => {
    let p = '';
    for (; node !== FS.root; node = node.parent) p = '/' + node.name + p;
    return p || '/';
  };
  const under = (dir, name) => (dir === FS.root ? '/' + name : pathOf(dir) + '/' + name);
  const isOurs = (node) => node === FS.root || node.ours === true;

  const onPath = (op, flag, path, extra = 0, number = 0) => {
    listing = null;
    // A path may need three bytes for each character.
    const b = room(16 + 3 * path.length);
    b.writeUInt32LE(extra, HEADER);
    b.writeUInt32LE(0, HEADER + 4);
    b.writeDoubleLE(number, HEADER + 8);
    const n = b.write(path, HEADER + 16);
    push(op, flag, 16 + n);
    const errno = pull();
    if (errno !== 0) fail(errno);
  };
  const onTwo = (op, a, b) => {
    listing = null;
    const first = Buffer.from(a), second = Buffer.from(b);
    const buf = room(4 + first.length + second.length);
    buf.writeUInt32LE(first.length, HEADER);
    first.copy(buf, HEADER + 4);
    second.copy(buf, HEADER + 4 + first.length);
    push(op, 0, 4 + first.length + second.length);
    const errno = pull();
    if (errno !== 0) fail(errno);
  };
  const onHandle = (op, handle, count, offset, bytes) => {
    const b = room(16 + (bytes?.length ?? 0));
    b.writeUInt32LE(handle, HEADER);
    b.writeUInt32LE(count, HEADER + 4);
    b.writeDoubleLE(offset, HEADER + 8);
    if (bytes) b.set(bytes, HEADER + 16);
    push(op, 0, 16 + (bytes?.length ?? 0));
  };
  const answered = () => { const errno = pull(); if (errno !== 0) fail(errno); };

  const attributes = () => {
    const f = (i) => incoming.readDoubleLE(HEADER + 8 * i);
    const size = f(4);
    return {
      dev: f(0), ino: f(1), mode: f(2), nlink: f(3), uid: 0, gid: 0, rdev: 0, size,
      atime: new Date(f(5)), mtime: new Date(f(6)), ctime: new Date(f(7)),
      blksize: 4096, blocks: Math.ceil(size / 512),
    };
  };

  let listing = null; // what readdir just told about the names in a directory
  const hashAddNode = FS.hashAddNode;
  let making = false;
  FS.hashAddNode = (node) => { if (!making && !node.ours) hashAddNode(node); };
  const nodeOf = (parent, name, mode) => {
    making = true;
    const node = FS.createNode(parent, name, mode, 0);
    making = false;
    node.ours = true;
    node.node_ops = nodeOps;
    node.stream_ops = streamOps;
    return node;
  };

  const nodeOps = {
    lookup(parent, name) {
      const told = listing?.parent === parent ? listing.types.get(name) : undefined;
      if (told !== undefined) {
        listing.types.delete(name);
        return nodeOf(parent, name, told);
      }
      onPath(OP.stat, 0, under(parent, name));
      const attr = attributes();
      const node = nodeOf(parent, name, attr.mode);
      node.attr = attr;
      return node;
    },
    getattr(node) {
      const attr = node.attr; // what lookup just brought
      node.attr = undefined;
      if (attr) return attr;
      onPath(OP.stat, 0, pathOf(node));
      return attributes();
    },
    setattr(node, attr) {
      const path = pathOf(node);
      node.attr = undefined;
      if (attr.mode !== undefined && attr.mode !== null) {
        onPath(OP.chmod, 0, path, attr.mode & 0o7777);
        node.mode = (node.mode & ~0o7777) | (attr.mode & 0o7777);
      }
      const { atime, mtime } = attr.timestamp !== undefined ? { atime: attr.timestamp, mtime: attr.timestamp } : attr;
      if (atime !== undefined || mtime !== undefined) {
        const ms = (t) => (t === undefined || t === null ? -1 : Number(t));
        onTwo(OP.chtimes, path, JSON.stringify([ms(atime), ms(mtime)]));
      }
      if (attr.size !== undefined) onPath(OP.resize, 0, path, 0, attr.size);
    },
    mknod(parent, name, mode) {
      const kind = mode & 0o170000;
      if (kind === 0o040000) onPath(OP.mkdir, 0, under(parent, name), mode & 0o7777);
      else if (kind === 0o100000) onPath(OP.create, 0, under(parent, name), mode & 0o7777);
      else fail(EPERM);
      return nodeOf(parent, name, mode);
    },
    rename(node, dir, name) {
      if (!isOurs(node) || !isOurs(dir)) fail(EXDEV);
      onTwo(OP.rename, pathOf(node), under(dir, name));
      node.name = name;
      node.attr = undefined;
    },
    unlink(parent, name) { onPath(OP.unlink, 0, under(parent, name)); },
    rmdir(parent, name) { onPath(OP.rmdir, 0, under(parent, name)); },
    readdir(node) {
      onPath(OP.readdir, 0, pathOf(node));
      const names = ['.', '..'], types = new Map();
      if (node === FS.root) names.push(...own);
      for (let at = HEADER, end = HEADER + length; at < end;) {
        const type = incoming.readUInt32LE(at), n = incoming.readUInt32LE(at + 4);
        const name = incoming.toString('utf8', at + 8, at + 8 + n);
        at += 8 + n;
        if (node === FS.root && own.has(name)) continue;
        names.push(name);
        types.set(name, type | (type === 0o040000 ? 0o755 : type === 0o120000 ? 0o777 : 0o644));
      }
      listing = { parent: node, types };
      return names;
    },
    symlink(parent, name, target) {
      onTwo(OP.symlink, target, under(parent, name));
      return nodeOf(parent, name, 0o120777);
    },
    readlink(node) {
      onPath(OP.readlink, 0, pathOf(node));
      return incoming.toString('utf8', HEADER, HEADER + length);
    },
  };

  const handleOf = (stream) => stream.shared.handle ?? fail(EBADF);
  const streamOps = {
    open(stream) {
      stream.node.attr = undefined;
      if ((stream.node.mode & 0o170000) === 0o040000) return;
      // Not O_CREAT and the like: Emscripten has done that.
      onPath(OP.open, 0, pathOf(stream.node), stream.flags & (3 | 1024));
      stream.shared.handle = incoming.readUInt32LE(HEADER);
      stream.shared.users = 1;
    },
    dup(stream) { stream.shared.users++; },
    close(stream) {
      if (stream.shared.handle === undefined || --stream.shared.users > 0) return;
      onHandle(OP.close, stream.shared.handle, 0, 0);
      stream.shared.handle = undefined;
      answered();
    },
    getattr(stream) {
      if (stream.shared.handle === undefined) return nodeOps.getattr(stream.node);
      onHandle(OP.fstat, stream.shared.handle, 0, 0);
      answered();
      return attributes();
    },
    setattr(stream, attr) {
      if (attr.size === undefined || stream.shared.handle === undefined) return nodeOps.setattr(stream.node, attr);
      onHandle(OP.truncate, stream.shared.handle, 0, attr.size);
      answered();
    },
    read(stream, buffer, offset, count, position) {
      const handle = handleOf(stream);
      let done = 0;
      while (done < count) {
        const want = Math.min(count - done, CHUNK);
        onHandle(OP.read, handle, want, position + done);
        answered();
        buffer.set(payload(), offset + done);
        done += length;
        if (length < want) break;
      }
      return done;
    },
    write(stream, buffer, offset, count, position) {
      const handle = handleOf(stream);
      const append = (stream.flags & 1024) !== 0;
      for (let done = 0; done < count;) {
        const bytes = buffer.subarray(offset + done, offset + Math.min(done + CHUNK, count));
        onHandle(append ? OP.append : OP.write, handle, 0, position + done, bytes);
        answered();
        const n = incoming.readUInt32LE(HEADER);
        if (n === 0) break;
        done += n;
        if (n < bytes.length) return done;
      }
      return count;
    },
    llseek(stream, offset, whence) {
      let at = offset;
      if (whence === 1) at += stream.position;
      else if (whence === 2 && stream.shared.handle !== undefined) at += streamOps.getattr(stream).size;
      if (at < 0) fail(EINVAL);
      return at;
    },
    mmap(stream, count, position) {
      const ptr = M.mmapAlloc(count);
      if (!ptr) fail(48);
      const n = streamOps.read(stream, M.HEAPU8, ptr, count, position);
      M.HEAPU8.fill(0, ptr + n, ptr + count);
      return { ptr, allocated: true };
    },
    msync(stream, buffer, offset, count, flags) {
      if ((flags & 2) === 0) streamOps.write(stream, buffer, 0, count, offset);
      return 0;
    },
  };

  const remove = (path) => {
    for (const name of FS.readdir(path)) {
      if (name === '.' || name === '..') continue;
      const child = path + '/' + name;
      if (FS.isDir(FS.lstat(child).mode)) remove(child);
      else FS.unlink(child);
    }
    FS.rmdir(path);
  };
  for (const name of FS.readdir('/')) {
    if (name !== '.' && name !== '..' && !own.has(name)) remove('/' + name);
  }
  FS.root.node_ops = nodeOps;
  FS.root.stream_ops = streamOps;
}

// Scripts.

function say(error) {
  return String(error?.stack ?? error);
}

// perform executes a script in the real Pyodide.
function perform(request) {
  if (request.renew) boot.renew(JSON.stringify(request.renew));
  send(OP.started, Buffer.alloc(0));
  sendText(OP.done, boot.run(JSON.stringify(request.script)));
}

async function execute(request) {
  if (request.rehearse) {
    rehearse();
    if (request.ready) send(OP.ready, Buffer.from('{}'));
    return;
  }
  memoryLimit = request.memory ?? 0;
  line = (op, s) => output(op, Buffer.from(s + '\n'));
  for (const [op, s] of early) output(op, Buffer.from(s));
  early.length = 0;
  if (info.kind === 'pyodide') {
    perform(request);
    return;
  }
  py.setStdin?.({ read: input, stdin: readLine, isatty: false, error: false });
  send(OP.started, Buffer.alloc(0));
  let code = 0, exception;
  try {
    const value = await py.runPythonAsync(request.script.code);
    value?.destroy?.();
  } catch (error) {
    code = 1;
    exception = { name: String(error?.type ?? error?.name ?? 'Error'), message: String(error?.message ?? error), traceback: say(error) };
    output(OP.stderr, Buffer.from(say(error).trimEnd() + '\n'));
  }
  sendText(OP.done, JSON.stringify({ exit_code: code, exception }));
}

function readLine() {
  const byte = new Uint8Array(1), bytes = [];
  while (input(byte) === 1) {
    bytes.push(byte[0]);
    if (byte[0] === 10) break;
  }
  return bytes.length ? Buffer.from(bytes).toString() : null;
}

function fatal(error) {
  try {
    sendText(OP.failed, say(error));
    pull(); // until the host ends this process
  } finally {
    exit(1);
  }
}

// A forked process cannot exit by itself: it would wait for threads that were
// not forked.
const exit = process.reallyExit;
process.reallyExit = (code) => fatal(new Error(`the process was ended with status ${code}`));

process.on('uncaughtException', fatal);
process.on('unhandledRejection', fatal);
process.on('beforeExit', () => fatal(new Error('the script waits for something that cannot happen')));

try {
  await load();
  if (config.mode === 'snapshot') {
    if (info.kind === 'pyodide') {
      const bytes = py.makeMemorySnapshot();
      for (let at = 0; at < bytes.length;) at += fs.writeSync(SNAPSHOT_FD, bytes, at, Math.min(CHUNK, bytes.length - at));
    }
    sendText(OP.ready, JSON.stringify(info));
    pull();
    exit(0);
  }
  if (info.kind === 'pyodide') await prepare();
  for (let i = 0; i < 2; i++) {
    globalThis.gc?.();
    await new Promise((resolve) => setImmediate(resolve));
  }
} catch (error) {
  fatal(error);
}
sendText(OP.ready, JSON.stringify(info));
for (;;) {
  pull(); // forked processes begin here
  const request = JSON.parse(text.decode(payload()));
  try {
    await execute(request);
  } catch (error) {
    fatal(error);
  }
}
