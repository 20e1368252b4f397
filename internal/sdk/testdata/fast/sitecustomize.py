"""Has wheels compressed quickly instead of well, which saves three seconds of processor time."""

import zlib

zlib.Z_DEFAULT_COMPRESSION = 1
