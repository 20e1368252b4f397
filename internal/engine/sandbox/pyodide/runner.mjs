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
import { Console } from 'node:console';

const FD = 3;
const SNAPSHOT_FD = 4;
const config = JSON.parse(process.argv.at(-1));
const started = performance.now();

// The operations of a frame, as in frame.go.
const OP = { stdout: 1, stderr: 2, stdin: 3, ask: 4, started: 5, done: 6, failed: 7, ready: 8, file: 9 };
// The file calls that a frame of OP.file carries, as in wire.go of package vfs.
const CALL = {
  stat: 1, open: 2, readdir: 3, mkdir: 4, unlink: 5, rmdir: 6, rename: 7, symlink: 8, readlink: 9,
  chmod: 10, chtimes: 11, create: 12, resize: 13,
  fstat: 14, read: 15, write: 16, append: 17, truncate: 18, sync: 19, close: 20,
};
const HEADER = 8; // of a frame
const REPLY = 4; // the header of a reply
const MAX_ASK = (4 << 20) - 1024; // an ask is one frame; see maxFrame
const CHUNK = 1 << 20; // most bytes of a file or of output in one frame; vfs.MaxIO
const MAX_PATH = 4096; // vfs.MaxPath
const text = new TextDecoder();

// The connection.

let outgoing = Buffer.alloc(64 << 10);
let incoming = Buffer.alloc(64 << 10);
let length = 0; // of the payload of the last reply

function room(n) {
  if (outgoing.length < HEADER + n) outgoing = Buffer.alloc(2 * (HEADER + n));
  return outgoing;
}

function push(op, n) {
  outgoing.writeUInt32LE(n, 0);
  outgoing.writeUInt32LE(op, 4);
  for (let at = 0, end = HEADER + n; at < end;) at += fs.writeSync(FD, outgoing, at, end - at);
}

// pull waits for a reply. Its payload is in incoming, behind the header.
function pull() {
  let have = 0;
  for (let need = REPLY; have < need;) {
    const n = fs.readSync(FD, incoming, have, incoming.length - have, null);
    if (n === 0) exit(0); // the host is gone
    have += n;
    if (have >= REPLY) {
      length = incoming.readUInt32LE(0);
      need = REPLY + length;
      if (need > incoming.length) {
        const larger = Buffer.alloc(need);
        incoming.copy(larger, 0, 0, have);
        incoming = larger;
      }
    }
  }
}

function send(op, bytes) {
  room(bytes.length).set(bytes, HEADER);
  push(op, bytes.length);
}

const sendText = (op, s) => send(op, Buffer.from(s));
const payload = () => incoming.subarray(REPLY, REPLY + length);

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
  push(OP.stdin, 4);
  pull();
  if (incoming[REPLY] === INTERRUPTED) throw new py.FS.ErrnoError(EINTR); // Python reads again if it has raised its exception
  buffer.set(payload().subarray(1));
  return length - 1;
}

const INTERRUPTED = 1, EINTR = 27;

function ask(kind, data) {
  const k = Buffer.from(kind), d = Buffer.from(data);
  if (k.length > 256 || d.length > MAX_ASK) return '{"error":{"code":"E2BIG","message":"the ask is too large"}}';
  for (;;) {
    const b = room(4 + k.length + d.length);
    b.writeUInt32LE(k.length, HEADER);
    k.copy(b, HEADER + 4);
    d.copy(b, HEADER + 4 + k.length);
    push(OP.ask, 4 + k.length + d.length);
    pull();
    const reply = text.decode(payload());
    if (reply === '' || signal?.[0]) py.checkInterrupt();
    if (reply !== '') return reply;
    // Python had raised its exception before it asked.
  }
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
let print = (op, s) => early.push([op, s]);
const line = (op, s) => print(op, s + '\n');

// A console, and the streams of the process, that are the script's own: those of
// Node lead nowhere.
const streamOf = (op) => ({
  write(s, encoding, done) {
    print(op, typeof s === 'string' ? s : Buffer.from(s));
    const f = typeof encoding === 'function' ? encoding : done;
    if (typeof f === 'function') f();
    return true;
  },
  isTTY: false, writable: true, on() { return this; }, once() { return this; }, removeListener() { return this; }, end() {},
});
const stdout = streamOf(OP.stdout), stderr = streamOf(OP.stderr);
for (const [name, stream] of [['stdout', stdout], ['stderr', stderr]]) {
  Object.defineProperty(process, name, { value: stream, configurable: true, writable: true });
}
globalThis.console = new Console({ stdout, stderr, ignoreErrors: false, colorMode: false });
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
  // Python reads the byte and then clears it: an interrupt that comes in between would
  // be lost. So only what was read is cleared.
  let seen = 0;
  py.setInterruptBuffer({
    get 0() { return seen = signal[0]; },
    set 0(value) { if (seen !== 0) signal[0] = seen = value; },
  });
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
  const EXDEV = 75, EPERM = 63, EBADF = 8, EINVAL = 28, ENAMETOOLONG = 37;

  const pathOf = (node) => {
    let p = '';
    for (; node !== FS.root; node = node.parent) p = '/' + node.name + p;
    return p || '/';
  };
  const under = (dir, name) => (dir === FS.root ? '/' + name : pathOf(dir) + '/' + name);
  const isOurs = (node) => node === FS.root || node.ours === true;

  // File calls have the form that wire.go of package vfs describes. A request
  // begins at REQUEST, behind the header of its frame; an answer is an errno
  // and then, at ANSWER, what was asked for.
  const REQUEST = HEADER, ANSWER = REPLY + 2;
  const HIGH = 2 ** 32;
  const get64 = (at) => incoming.readUInt32LE(at) + HIGH * incoming.readUInt32LE(at + 4);
  const getTime = (at) => new Date((incoming.readUInt32LE(at) + HIGH * incoming.readInt32LE(at + 4)) / 1e6);
  const put64 = (b, n, at) => {
    const high = Math.floor(n / HIGH);
    b.writeUInt32LE(n - high * HIGH, at);
    b.writeInt32LE(high, at + 4);
  };
  const offset = (n) => (n >= 0 && n <= 2 ** 53 ? n : fail(EINVAL));

  // called sends a request that ends at an offset of outgoing, and waits.
  const called = (end) => {
    push(OP.file, end - HEADER);
    pull();
    const errno = incoming.readUInt16LE(REPLY);
    if (errno !== 0) fail(errno);
  };
  // began begins a call whose first argument has so many bytes, followed by
  // paths; each character of a path may need three bytes.
  const began = (call, size, paths) => {
    listing = null;
    const b = room(1 + size + 8 + 3 * paths);
    b[REQUEST] = call;
    return b;
  };
  const putPath = (b, path, at) => {
    if (path.length > MAX_PATH) fail(ENAMETOOLONG);
    const n = b.write(path, at + 4);
    b.writeUInt32LE(n, at);
    return at + 4 + n;
  };
  const onPath = (call, path) => {
    const b = began(call, 0, path.length);
    called(putPath(b, path, REQUEST + 1));
  };
  const stat = (path) => {
    const b = began(CALL.stat, 1, path.length);
    b[REQUEST + 1] = 0; // a symbolic link itself
    called(putPath(b, path, REQUEST + 2));
    return attributes();
  };
  const onMode = (call, path, mode) => { // mkdir, create and chmod
    const b = began(call, 4, path.length);
    b.writeUInt32LE(mode & 0o7777, REQUEST + 1);
    called(putPath(b, path, REQUEST + 5));
  };
  const onTwo = (call, first, second) => {
    const b = began(call, 0, first.length + second.length);
    called(putPath(b, second, putPath(b, first, REQUEST + 1)));
  };
  const chtimes = (path, atime, mtime) => {
    // Milliseconds become nanoseconds; -1 leaves a time as it is.
    const ns = (t) => (t !== undefined && t !== null && t >= 0 && t < 2 ** 63 / 1e6 ? Math.floor(Number(t) * 1e6) : -1);
    const b = began(CALL.chtimes, 16, path.length);
    put64(b, ns(atime), REQUEST + 1);
    put64(b, ns(mtime), REQUEST + 9);
    called(putPath(b, path, REQUEST + 17));
  };
  const resize = (path, size) => {
    const b = began(CALL.resize, 8, path.length);
    put64(b, offset(size), REQUEST + 1);
    called(putPath(b, path, REQUEST + 9));
  };
  const FLAGS = [1, 2, 3, 3]; // of vfs.Flags, for what a file is opened for
  const open = (path, flags) => {
    const b = began(CALL.open, 6, path.length);
    b.writeUInt16LE(FLAGS[flags & 3] | (flags & 1024 ? 4 : 0), REQUEST + 1);
    b.writeUInt32LE(0, REQUEST + 3); // Emscripten has already made the file
    called(putPath(b, path, REQUEST + 7));
    return incoming.readUInt32LE(ANSWER);
  };
  // onHandle begins a call on an open file.
  const onHandle = (call, handle, size) => {
    const b = room(5 + size);
    b[REQUEST] = call;
    b.writeUInt32LE(handle, REQUEST + 1);
    return b;
  };
  const read = (handle, count, position) => {
    const b = onHandle(CALL.read, handle, 12);
    put64(b, offset(position), REQUEST + 5);
    b.writeUInt32LE(count, REQUEST + 13);
    called(REQUEST + 17);
    return incoming.subarray(ANSWER, REPLY + length);
  };
  const write = (handle, bytes, position) => {
    const b = onHandle(CALL.write, handle, 8 + bytes.length);
    put64(b, offset(position), REQUEST + 5);
    b.set(bytes, REQUEST + 13);
    called(REQUEST + 13 + bytes.length);
    return incoming.readUInt32LE(ANSWER);
  };
  const append = (handle, bytes) => {
    const b = onHandle(CALL.append, handle, bytes.length);
    b.set(bytes, REQUEST + 5);
    called(REQUEST + 5 + bytes.length);
    return incoming.readUInt32LE(ANSWER);
  };

  const attributes = () => {
    const size = get64(ANSWER + 24);
    return {
      dev: get64(ANSWER), ino: get64(ANSWER + 8), mode: incoming.readUInt32LE(ANSWER + 16),
      nlink: incoming.readUInt32LE(ANSWER + 20), uid: 0, gid: 0, rdev: 0, size,
      atime: getTime(ANSWER + 32), mtime: getTime(ANSWER + 40), ctime: getTime(ANSWER + 48),
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
      const attr = stat(under(parent, name));
      const node = nodeOf(parent, name, attr.mode);
      node.attr = attr;
      return node;
    },
    getattr(node) {
      const attr = node.attr; // what lookup just brought
      node.attr = undefined;
      if (attr) return attr;
      return stat(pathOf(node));
    },
    setattr(node, attr) {
      const path = pathOf(node);
      node.attr = undefined;
      if (attr.mode !== undefined && attr.mode !== null) {
        onMode(CALL.chmod, path, attr.mode);
        node.mode = (node.mode & ~0o7777) | (attr.mode & 0o7777);
      }
      const { atime, mtime } = attr.timestamp !== undefined ? { atime: attr.timestamp, mtime: attr.timestamp } : attr;
      if (atime !== undefined || mtime !== undefined) chtimes(path, atime, mtime);
      if (attr.size !== undefined) resize(path, attr.size);
    },
    mknod(parent, name, mode) {
      const kind = mode & 0o170000;
      if (kind === 0o040000) onMode(CALL.mkdir, under(parent, name), mode);
      else if (kind === 0o100000) onMode(CALL.create, under(parent, name), mode);
      else fail(EPERM);
      return nodeOf(parent, name, mode);
    },
    rename(node, dir, name) {
      if (!isOurs(node) || !isOurs(dir)) fail(EXDEV);
      onTwo(CALL.rename, pathOf(node), under(dir, name));
      node.name = name;
      node.attr = undefined;
    },
    unlink(parent, name) { onPath(CALL.unlink, under(parent, name)); },
    rmdir(parent, name) { onPath(CALL.rmdir, under(parent, name)); },
    readdir(node) {
      onPath(CALL.readdir, pathOf(node));
      const names = ['.', '..'], types = new Map();
      if (node === FS.root) names.push(...own);
      for (let left = incoming.readUInt32LE(ANSWER), at = ANSWER + 4; left > 0; left--) {
        const type = incoming.readUInt32LE(at + 8), n = incoming.readUInt32LE(at + 12);
        const name = incoming.toString('utf8', at + 16, at + 16 + n);
        at += 16 + n;
        if (node === FS.root && own.has(name)) continue;
        names.push(name);
        types.set(name, type | (type === 0o040000 ? 0o755 : type === 0o120000 ? 0o777 : 0o644));
      }
      listing = { parent: node, types };
      return names;
    },
    symlink(parent, name, target) {
      onTwo(CALL.symlink, target, under(parent, name));
      return nodeOf(parent, name, 0o120777);
    },
    readlink(node) {
      onPath(CALL.readlink, pathOf(node));
      return incoming.toString('utf8', ANSWER, REPLY + length);
    },
  };

  const handleOf = (stream) => stream.shared.handle ?? fail(EBADF);
  const streamOps = {
    open(stream) {
      stream.node.attr = undefined;
      if ((stream.node.mode & 0o170000) === 0o040000) return;
      stream.shared.handle = open(pathOf(stream.node), stream.flags);
      stream.shared.users = 1;
    },
    dup(stream) { stream.shared.users++; },
    close(stream) {
      if (stream.shared.handle === undefined || --stream.shared.users > 0) return;
      onHandle(CALL.close, stream.shared.handle, 0);
      stream.shared.handle = undefined;
      called(REQUEST + 5);
    },
    getattr(stream) {
      if (stream.shared.handle === undefined) return nodeOps.getattr(stream.node);
      onHandle(CALL.fstat, stream.shared.handle, 0);
      called(REQUEST + 5);
      return attributes();
    },
    setattr(stream, attr) {
      if (attr.size === undefined || stream.shared.handle === undefined) return nodeOps.setattr(stream.node, attr);
      put64(onHandle(CALL.truncate, stream.shared.handle, 8), offset(attr.size), REQUEST + 5);
      called(REQUEST + 13);
    },
    read(stream, buffer, offset, count, position) {
      const handle = handleOf(stream);
      let done = 0;
      while (done < count) {
        const want = Math.min(count - done, CHUNK);
        const got = read(handle, want, position + done);
        buffer.set(got, offset + done);
        done += got.length;
        if (got.length < want) break;
      }
      return done;
    },
    write(stream, buffer, offset, count, position) {
      const handle = handleOf(stream);
      const atEnd = (stream.flags & 1024) !== 0;
      for (let done = 0; done < count;) {
        const bytes = buffer.subarray(offset + done, offset + Math.min(done + CHUNK, count));
        const n = atEnd ? append(handle, bytes) : write(handle, bytes, position + done);
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
  print = (op, s) => output(op, Buffer.from(s));
  for (const [op, s] of early) print(op, s);
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
