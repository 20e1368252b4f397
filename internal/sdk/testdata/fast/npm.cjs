// Packages are compressed quickly instead of well, which saves six seconds of processor time.
const zlib = require("node:zlib");

const { Gzip } = zlib;
zlib.Gzip = function fast(options) {
  return new Gzip({ ...options, level: 1 });
};
