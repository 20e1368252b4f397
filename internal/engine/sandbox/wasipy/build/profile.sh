#!/bin/sh
# profile.sh makes profile.gz, by which build.sh optimises: it builds a native
# interpreter that counts what it executes, and has it execute train.py.
#
#   ./profile.sh WORKDIR
#
# WORKDIR is one that build.sh was run with. Besides what build.sh needs it needs
# the package libclang-rt-19-dev. The counts are those of functions by their
# source, so that they hold for any target; what differs there is left as it is.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(cd "$1" && pwd)
python=$work/src/Python-3.13.5
export LC_ALL=C TZ=UTC PYTHONHASHSEED=0

rm -rf "$work/counting"
mkdir -p "$work/counting"
cd "$work/counting"
# With a switch, as WebAssembly has it, not with computed gotos.
CC=clang-19 PKG_CONFIG=false LDFLAGS=-fprofile-instr-generate "$python/configure" -q --without-ensurepip \
	--disable-test-modules --without-computed-gotos OPT="-DNDEBUG -fwrapv -O1 -fprofile-instr-generate"
LLVM_PROFILE_FILE=/dev/null make -s -j"${JOBS:-2}" python build_all
LLVM_PROFILE_FILE=$work/counting/counts-%m.profraw ./python -I -S "$here/train.py"
llvm-profdata-19 merge -sparse -o "$work/counting/profile" "$work"/counting/counts-*.profraw
gzip -9nc "$work/counting/profile" >"$here/profile.gz"
