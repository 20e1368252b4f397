#!/bin/sh
# build.sh makes the artefacts that package wasipy embeds: the interpreter's
# code, its initial memory and its library.
#
#   ./build.sh [WORKDIR]
#
# It runs on Debian 12, as a user who has these packages:
#
#   clang-19 lld-19 llvm-19 libclang-rt-19-dev-wasm32 gcc make patch tcl
#   xz-utils curl python3 and Go
#
# Sources come from Debian's archive and are checked against sources.sha256.
# Nothing else is fetched. The output depends on the sources, the compiler
# (1:19.1.7-3~deb12u1) and the files beside this script, not on the time, the
# user or WORKDIR.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=${1:-${TMPDIR:-/tmp}/spool-wasipy-build}
archive=${DEBIAN_ARCHIVE:-http://deb.debian.org/debian/pool/main}
jobs=${JOBS:-2}
mkdir -p "$work/dl" "$work/src"
work=$(cd "$work" && pwd)

export LC_ALL=C TZ=UTC
export SOURCE_DATE_EPOCH=1749600000 # 2025-06-11, the release of 3.13.5
export PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1

# --- sources -----------------------------------------------------------------

while read -r sum path; do
	file=$work/dl/$(basename "$path")
	[ -f "$file" ] || curl -sSfL -o "$file" "$archive/$path"
	echo "$sum  $file" | sha256sum -c --quiet -
done <"$here/sources.sha256"

python=$work/src/Python-3.13.5
if [ ! -f "$work/src/.done" ]; then
	for f in "$work"/dl/*.orig.tar.*; do tar -xf "$f" -C "$work/src"; done
	patch -s -p1 -d "$python" <"$here/obmalloc.patch"
	dpkg-deb -x "$work"/dl/wasi-libc_*.deb "$work/sysroot-deb"
	touch "$work/src/.done"
fi

# --- a native interpreter of the same version, to build with -------------------

if [ ! -x "$work/native/python" ] || [ ! -f "$work/native/.done" ]; then
	mkdir -p "$work/native"
	(
		cd "$work/native"
		"$python/configure" -q --without-ensurepip --disable-test-modules OPT="-DNDEBUG -fwrapv -O1"
		make -s -j"$jobs" python build_all
		touch .done
	)
fi

# --- the C libraries -----------------------------------------------------------

map="-ffile-prefix-map=$work=/spool"
cc="clang-19 --target=wasm32-wasi --sysroot=$work/sysroot-deb/usr"
lib=$work/lib
mkdir -p "$lib"

if [ ! -f "$lib/libz.a" ]; then
	mkdir -p "$work/zlib"
	for c in adler32 compress crc32 deflate infback inffast inflate inftrees trees uncompr zutil; do
		$cc $map -O2 -DNDEBUG -c "$work/src/zlib-1.3.1/$c.c" -o "$work/zlib/$c.o"
	done
	llvm-ar-19 rcsD "$lib/libz.a" "$work"/zlib/*.o
fi
if [ ! -f "$lib/libbz2.a" ]; then
	mkdir -p "$work/bzip2"
	for c in blocksort huffman crctable randtable compress decompress bzlib; do
		$cc $map -O2 -DNDEBUG -DBZ_NO_STDIO -c "$work/src/bzip2-1.0.8/$c.c" -o "$work/bzip2/$c.o"
	done
	llvm-ar-19 rcsD "$lib/libbz2.a" "$work"/bzip2/*.o
fi
if [ ! -f "$lib/libsqlite3.a" ]; then
	mkdir -p "$work/sqlite-amalg"
	(
		cd "$work/sqlite-amalg"
		[ -f sqlite3.c ] || { "$work/src/sqlite3-3.46.1/configure" -q && make -s sqlite3.c; }
		# One guest has one thread and shares its database with nobody: no locks
		# of the operating system, no shared memory, no extensions to load.
		$cc $map -O2 -DNDEBUG -DSQLITE_WASI -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION \
			-DSQLITE_OMIT_WAL -DSQLITE_MAX_MMAP_SIZE=0 -DSQLITE_DEFAULT_MEMSTATUS=0 -DSQLITE_DQS=0 \
			-DSQLITE_OMIT_DEPRECATED -DSQLITE_OMIT_SHARED_CACHE -DSQLITE_ENABLE_FTS5 \
			-DSQLITE_ENABLE_MATH_FUNCTIONS -DSQLITE_TEMP_STORE=3 -DSQLITE_DEFAULT_UNIX_VFS='"unix-none"' \
			-D_WASI_EMULATED_GETPID -D_WASI_EMULATED_MMAN \
			-c sqlite3.c -o sqlite3.o
		llvm-ar-19 rcsD "$lib/libsqlite3.a" sqlite3.o
	)
fi

# --- the interpreter -----------------------------------------------------------

wasm=$work/wasm
if [ ! -f "$wasm/.done" ]; then
	mkdir -p "$wasm/Modules"
	# How often what is executed, as profile.sh found it.
	gzip -dc "$here/profile.gz" >"$work/profile"
	profile="-fprofile-instr-use=$work/profile -Wno-profile-instr-out-of-date -Wno-profile-instr-unprofiled"
	sed -e "s|@LIB@|$lib|g" -e "s|@SRC@|$work/src|g" -e "s|@SQLITE@|$work/sqlite-amalg|g" \
		"$here/Setup.local" >"$wasm/Modules/Setup.local"
	(
		cd "$wasm"
		# By a relative name, because the interpreter has it in it.
		CONFIG_SITE="$python/Tools/wasm/config.site-wasm32-wasi $here/config.site" \
			CC="$cc" CPP="$cc -E" CXX=false AR=llvm-ar-19 ARFLAGS=rcsD RANLIB=llvm-ranlib-19 PKG_CONFIG=false \
			CFLAGS="$map $profile" \
			../src/Python-3.13.5/configure -q --host=wasm32-unknown-wasi --build="$("$python/config.guess")" \
			--with-build-python="$work/native/python" --with-pymalloc --without-ensurepip \
			--disable-test-modules --disable-ipv6 OPT="-DNDEBUG -fwrapv -O3"
		make -s -j"$jobs" libpython3.13.a
		touch .done
	)
fi

# --- the reactor, and what is embedded of it -----------------------------------

out=$here/../artefact
mkdir -p "$out"
wraps=
for f in stat lstat fstat fstatat chmod fchmod; do wraps="$wraps -Wl,--wrap=$f"; done
$cc $map -O2 -mbulk-memory -DNDEBUG -I"$python/Include" -I"$wasm" -c "$here/shim.c" -o "$work/shim.o"
hacl=$wasm/Modules/_hacl/libHacl_Hash_SHA2.a
$cc -mexec-model=reactor -z stack-size=8388608 -Wl,--stack-first -Wl,--initial-memory=25165824 -Wl,--strip-all $wraps \
	"$work/shim.o" "$wasm/libpython3.13.a" \
	"$hacl" "$wasm/Modules/_decimal/libmpdec/libmpdec.a" "$wasm/Modules/expat/libexpat.a" \
	"$lib/libz.a" "$lib/libbz2.a" "$lib/libsqlite3.a" \
	-ldl -lwasi-emulated-signal -lwasi-emulated-getpid -lwasi-emulated-process-clocks -lwasi-emulated-mman -lm \
	-o "$work/python.wasm"

(cd "$here/pack" && go run . "$work/python.wasm" "$work/python.code.wasm" "$work/python.data")
"$work/native/python" "$here/library.py" "$python/Lib" "$work/library.zip"
gzip -9nc "$work/python.code.wasm" >"$out/python.wasm.gz"
gzip -9nc "$work/python.data" >"$out/python.data.gz"
gzip -9nc "$work/library.zip" >"$out/library.zip.gz"

# --- notices -------------------------------------------------------------------

{
	echo "python.wasm.gz, python.data.gz and library.zip.gz were built by ../build/build.sh of these works:"
	for w in "CPython 3.13.5|$python/LICENSE" \
		"wasi-libc 0.0~git20241209.574b88d-2 (Debian)|$work/sysroot-deb/usr/share/doc/wasi-libc/copyright" \
		"zlib 1.3.1|$work/src/zlib-1.3.1/LICENSE" \
		"bzip2 1.0.8|$work/src/bzip2-1.0.8/LICENSE" \
		"SQLite 3.46.1|$work/src/sqlite3-3.46.1/LICENSE.md" \
		"Expat, part of CPython|$python/Modules/expat/COPYING"; do
		printf '\n\n======== %s\n\n' "${w%%|*}"
		cat "${w##*|}"
	done
	printf '\n\n======== %s\n\n' "compiler-rt 19 (LLVM)"
	echo "Apache License 2.0 with LLVM Exceptions, https://llvm.org/LICENSE.txt"
} >"$out/NOTICE"
(cd "$out" && sha256sum python.wasm.gz python.data.gz library.zip.gz >SHA256SUMS && ls -l)
