/* The part of the guest that speaks with its host: the embedding of CPython
 * that package wasipy drives, and what the C library of WASI lacks.
 *
 * The host calls the exported functions one at a time. Between two calls no C
 * frame is live, so that the linear memory alone is the state of the
 * interpreter and can be copied. */

#include <Python.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXPORT(name) __attribute__((export_name(name), used))
#define IMPORT(name) __attribute__((import_module("spool"), import_name(name)))

/* tick is called after so many passes of loop headers; nonzero asks for a
 * KeyboardInterrupt. It does not return to a guest that has to stop. */
IMPORT("tick") int host_tick(void);
/* ask puts a question and returns the size of the reply, which take copies. */
IMPORT("ask") int host_ask(const char *kind, int nkind, const char *payload, int npayload);
IMPORT("take") void host_take(char *to);
/* mode is the permissions of the file that was described last. */
IMPORT("mode") int host_mode(void);
IMPORT("chmod") int host_chmod(const char *path, int npath, int mode);
IMPORT("fchmod") int host_fchmod(int fd, int mode);

/* Every loop header that runs out of its allowance calls this. */
EXPORT("sb_tick") void sb_tick(void) {
	if (host_tick())
		PyErr_SetInterrupt();
}

/* sb_interrupted says whether an interrupt waits to be raised: Python does
 * that between two of its instructions, so a call that would wait returns
 * instead. The only way to look takes it away. */
EXPORT("sb_interrupted") int sb_interrupted(void) {
	PyGILState_STATE state = PyGILState_Ensure(); /* sleep and read let go of it */
	int yes = PyOS_InterruptOccurred();
	if (yes)
		PyErr_SetInterrupt();
	PyGILState_Release(state);
	return yes;
}

/* What moves much memory at once, in pieces: after each the host may have a
 * word. build/pack puts these in the place of the instructions, of which only
 * these two functions keep theirs. */
#define PIECE (1 << 20)

EXPORT("sb_copy") void sb_copy(char *to, const char *from, size_t n) {
	if (to <= from || to >= from + n) {
		for (; n > PIECE; n -= PIECE, to += PIECE, from += PIECE)
			__builtin_memmove(to, from, PIECE);
	} else {
		for (; n > PIECE; n -= PIECE)
			__builtin_memmove(to + n - PIECE, from + n - PIECE, PIECE);
	}
	__builtin_memmove(to, from, n);
}

EXPORT("sb_fill") void sb_fill(char *to, int value, size_t n) {
	for (; n > PIECE; n -= PIECE, to += PIECE)
		__builtin_memset(to, value, PIECE);
	__builtin_memset(to, value, n);
}

EXPORT("sb_alloc") void *sb_alloc(int n) { return malloc(n); }
EXPORT("sb_free") void sb_free(void *p) { free(p); }

/* --- the module _spool ---------------------------------------------------- */

static PyObject *spool_call(PyObject *self, PyObject *args) {
	const char *kind, *payload;
	Py_ssize_t nkind, npayload;
	if (!PyArg_ParseTuple(args, "s#s#:call", &kind, &nkind, &payload, &npayload))
		return NULL;
	int n = host_ask(kind, nkind, payload, npayload);
	char *reply = PyMem_Malloc(n > 0 ? n : 1);
	if (reply == NULL)
		return PyErr_NoMemory();
	host_take(reply);
	PyObject *s = PyUnicode_DecodeUTF8(reply, n, "replace");
	PyMem_Free(reply);
	return s;
}

static PyMethodDef spool_methods[] = {
	{"call", spool_call, METH_VARARGS, "call(kind, payload): ask the host program, both and the reply are JSON."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef spool_module = {PyModuleDef_HEAD_INIT, "_spool", NULL, -1, spool_methods};

static PyObject *spool_init(void) { return PyModule_Create(&spool_module); }

/* --- the interpreter ------------------------------------------------------ */

static PyObject *renew_function, *run_function;
static PyObject *last; /* keeps the result of sb_run until the next call */

/* A script that used up all memory may have left it used: what is kept back
 * here lets the next one run, to make room. */
#define RESERVE (512 << 10)
static void *reserve;

static void keep_reserve(const char *result) {
	if (result == NULL || strstr(result, "\"out_of_memory\": true") != NULL) {
		free(reserve);
		reserve = NULL;
	} else if (reserve == NULL) {
		reserve = malloc(RESERVE);
	}
}

EXPORT("sb_init") int sb_init(unsigned long hash_seed) {
	PyPreConfig pre;
	PyPreConfig_InitIsolatedConfig(&pre);
	pre.utf8_mode = 1;
	PyStatus s = Py_PreInitialize(&pre);
	if (PyStatus_Exception(s))
		goto fail;
	if (PyImport_AppendInittab("_spool", spool_init) < 0)
		return 1;
	PyConfig c;
	PyConfig_InitIsolatedConfig(&c);
	c.site_import = 0;
	c.write_bytecode = 0;
	c.use_hash_seed = 1;
	c.hash_seed = hash_seed;
	c.install_signal_handlers = 1; /* for KeyboardInterrupt */
	c.pathconfig_warnings = 0;
	c.buffered_stdio = 1;
	c.module_search_paths_set = 1;
	PyWideStringList_Append(&c.module_search_paths, L"/usr/lib/python313.zip");
	PyConfig_SetString(&c, &c.stdio_encoding, L"utf-8");
	PyConfig_SetString(&c, &c.stdio_errors, L"surrogateescape");
	PyConfig_SetString(&c, &c.executable, L"/usr/bin/python3");
	PyConfig_SetString(&c, &c.program_name, L"python3");
	PyConfig_SetString(&c, &c.prefix, L"/usr");
	PyConfig_SetString(&c, &c.exec_prefix, L"/usr");
	PyConfig_SetString(&c, &c.stdlib_dir, L"/usr/lib");
	s = Py_InitializeFromConfig(&c);
	PyConfig_Clear(&c);
	if (!PyStatus_Exception(s))
		return 0;
fail:
	fprintf(stderr, "init: %s: %s\n", s.func ? s.func : "?", s.err_msg ? s.err_msg : "?");
	return 1;
}

/* sb_module makes a module of its source. */
EXPORT("sb_module") int sb_module(const char *name, const char *source) {
	char file[128];
	snprintf(file, sizeof file, "<%s>", name);
	PyObject *code = Py_CompileString(source, file, Py_file_input);
	PyObject *m = code ? PyImport_ExecCodeModule(name, code) : NULL;
	Py_XDECREF(code);
	if (m == NULL) {
		PyErr_Print();
		return 1;
	}
	Py_DECREF(m);
	return 0;
}

/* What is in the image lives for ever, and no reference to it counts: a count
 * is a write, and a write makes a copy of the page. */
static void immortalize(PyObject *o);

static int visit(PyObject *o, void *arg) {
	immortalize(o);
	return 0;
}

static void immortalize(PyObject *o) {
	if (o == NULL || _Py_IsImmortal(o))
		return;
	o->ob_refcnt = _Py_IMMORTAL_REFCNT;
	if (PyCode_Check(o)) { /* the collector does not know what is in these */
		PyCodeObject *c = (PyCodeObject *)o;
		immortalize(c->co_consts);
		immortalize(c->co_names);
		immortalize(c->co_exceptiontable);
		immortalize(c->co_localsplusnames);
		immortalize(c->co_localspluskinds);
		immortalize(c->co_filename);
		immortalize(c->co_name);
		immortalize(c->co_qualname);
		immortalize(c->co_linetable);
	} else if (PyTuple_Check(o) && !PyObject_GC_IsTracked(o)) {
		for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(o); n++)
			immortalize(PyTuple_GET_ITEM(o, n));
	}
}

static int visit_tracked(PyObject *o, void *arg) {
	o->ob_refcnt = _Py_IMMORTAL_REFCNT;
	traverseproc t = Py_TYPE(o)->tp_traverse;
	if (t != NULL)
		t(o, visit, NULL);
	return 1;
}

EXPORT("sb_immortalize") void sb_immortalize(void) { PyUnstable_GC_VisitObjects(visit_tracked, NULL); }

/* sb_seal ends the preparation: what comes now comes after a copy. */
EXPORT("sb_seal") int sb_seal(const char *module) {
	PyObject *m = PyImport_ImportModule(module);
	if (m != NULL) {
		renew_function = PyObject_GetAttrString(m, "renew");
		run_function = PyObject_GetAttrString(m, "run");
		Py_DECREF(m);
	}
	if (renew_function == NULL || run_function == NULL) {
		PyErr_Print();
		return 1;
	}
	fflush(NULL);
	keep_reserve("");
	return 0;
}

static PyObject *call(PyObject *f, const char *text, int n) {
	Py_CLEAR(last);
	PyObject *arg = PyUnicode_DecodeUTF8(text, n, "surrogateescape");
	if (arg == NULL)
		return NULL;
	PyObject *r = PyObject_CallOneArg(f, arg);
	Py_DECREF(arg);
	return r;
}

EXPORT("sb_renew") int sb_renew(const char *config, int n) {
	PyObject *r = call(renew_function, config, n);
	if (r == NULL) {
		PyErr_Print();
		return 1;
	}
	Py_DECREF(r);
	return 0;
}

/* sb_run executes a script. It returns the result's address and size, or zero
 * if there was not even memory for that. */
EXPORT("sb_run") unsigned long long sb_run(const char *script, int n) {
	last = call(run_function, script, n);
	PyOS_InterruptOccurred(); /* one that came too late is not for the next script */
	Py_ssize_t size = 0;
	const char *text = last ? PyUnicode_AsUTF8AndSize(last, &size) : NULL;
	keep_reserve(text);
	if (text == NULL) {
		PyErr_Clear();
		return 0;
	}
	return (unsigned long long)(size_t)text << 32 | (unsigned int)size;
}

/* --- what the C library lacks: permissions -------------------------------- */

int __real_stat(const char *path, struct stat *st);
int __real_lstat(const char *path, struct stat *st);
int __real_fstat(int fd, struct stat *st);
int __real_fstatat(int dir, const char *path, struct stat *st, int flags);

static int with_mode(int rc, struct stat *st) {
	if (rc == 0)
		st->st_mode |= host_mode();
	return rc;
}

int __wrap_stat(const char *path, struct stat *st) { return with_mode(__real_stat(path, st), st); }
int __wrap_lstat(const char *path, struct stat *st) { return with_mode(__real_lstat(path, st), st); }
int __wrap_fstat(int fd, struct stat *st) { return with_mode(__real_fstat(fd, st), st); }
int __wrap_fstatat(int dir, const char *path, struct stat *st, int flags) {
	return with_mode(__real_fstatat(dir, path, st, flags), st);
}

static int status(int errnum) {
	if (errnum == 0)
		return 0;
	errno = errnum;
	return -1;
}

/* The path is absolute here, or relative to what getcwd says. */
int __wrap_chmod(const char *path, mode_t mode) {
	char full[8192], cwd[4096];
	if (path[0] != '/') {
		if (getcwd(cwd, sizeof cwd) == NULL)
			return -1;
		int n = snprintf(full, sizeof full, "%s/%s", cwd, path);
		if (n < 0 || n >= (int)sizeof full)
			return status(ENAMETOOLONG);
		path = full;
	}
	return status(host_chmod(path, strlen(path), mode));
}
int __wrap_fchmod(int fd, mode_t mode) { return status(host_fchmod(fd, mode)); }

/* bzip2 without stdio leaves it to us what happens if it is broken. */
void bz_internal_error(int code) { abort(); }
