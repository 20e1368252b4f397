"""The public suite of Jupyter for kernels, on the kernel of Spool."""

import unittest
from contextlib import contextmanager

import jupyter_kernel_test

KERNEL = "spool-test"


class Suite(jupyter_kernel_test.KernelTests):
    kernel_name = KERNEL
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n", "%time 1", "await f()"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2", "for i in x:"]
    invalid_code_samples = ["import = 7q", "1 +* 2"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))", "mime": "text/latex"},
        {"code": "class P:\n  def _repr_png_(self): return b'\\x89PNG' * 40000\ndisplay(P())", "mime": "image/png"},
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    def execute_helper(self, *args, **kw):
        # The suite waits a tenth of a second for each message, which is little on a
        # machine with other work.
        with patience(self.kc.iopub_channel, 60):
            return super().execute_helper(*args, **{"timeout": 60, **kw})

    def test_input(self):
        self.flush_channels()
        self.kc.allow_stdin = True
        try:
            msg_id = self.kc.execute("input('name? ') + '!'")
            question = self.kc.get_stdin_msg(timeout=60)
            self.assertEqual(question["content"], {"prompt": "name? ", "password": False})
            self.assertEqual(question["parent_header"]["msg_id"], msg_id)
            self.kc.input("Ada")
            self.assertEqual(self.kc.get_shell_msg(timeout=60)["content"]["status"], "ok")
        finally:
            self.kc.allow_stdin = False
        self.flush_channels()
        reply, _ = self.execute_helper("input()")
        self.assertEqual(reply["content"]["ename"], "EOFError")

    def test_interrupt_takes_back_what_waits(self):
        self.flush_channels()
        self.kc.execute("print('on', flush=True)\nwhile True: pass")
        waits = self.kc.execute("1")
        while self.kc.get_iopub_msg(timeout=60)["msg_type"] != "stream":
            pass
        completed = self.kc.complete("zi")  # it does not wait for the cell
        self.assertEqual(self.kc.get_shell_msg(timeout=60)["parent_header"]["msg_id"], completed)
        self.km.interrupt_kernel()
        reply = self.kc.get_shell_msg(timeout=60)
        self.assertEqual((reply["content"]["status"], reply["content"]["ename"]), ("error", "KeyboardInterrupt"))
        reply = self.kc.get_shell_msg(timeout=60)
        self.assertEqual((reply["parent_header"]["msg_id"], reply["content"]["status"]), (waits, "aborted"))

    def test_outputs_shows_a_cell_again(self):
        self.flush_channels()
        self.execute_helper("print('said'); 40 + 2")
        _, shown = self.execute_helper("%outputs")
        kinds = [m["msg_type"] for m in shown]
        self.assertEqual((kinds[-1], set(kinds)), ("execute_result", {"stream", "execute_result"}))
        self.assertEqual("".join(m["content"]["text"] for m in shown[:-1]), "said\n")
        self.assertEqual(shown[-1]["content"]["data"]["text/plain"], "42")

    def test_restart_begins_anew(self):
        self.execute_helper("left = 1")
        self.kc.stop_channels()
        self.km.restart_kernel(now=False)
        type(self).kc = self.km.client()
        self.kc.start_channels()
        self.kc.wait_for_ready(timeout=60)
        reply, _ = self.execute_helper("left")
        self.assertEqual(reply["content"]["ename"], "NameError")


class Welcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = KERNEL
    support_iopub_welcome = True


class Held(unittest.TestCase):
    """Output that comes while nobody is connected waits."""

    def test_output_waits_for_a_front_end(self):
        from jupyter_client.manager import KernelManager

        km = KernelManager(kernel_name=KERNEL)
        km.start_kernel()
        try:
            kc = km.client()
            kc.start_channels(iopub=False, stdin=False, hb=False)  # nobody listens
            msg_id = kc.execute("print('early'); 1")
            self.assertEqual(kc.get_shell_msg(timeout=60)["content"]["status"], "ok")
            kc.shell_channel.stop()  # stop_channels would subscribe for a moment
            kc.control_channel.stop()
            late = km.client()
            late.start_channels()
            kinds = []
            while "idle" not in kinds:
                m = late.get_iopub_msg(timeout=60)
                if m["parent_header"].get("msg_id") == msg_id:
                    kinds.append(m["content"].get("execution_state", m["msg_type"]))
            self.assertEqual(sorted(set(kinds), key=kinds.index), ["busy", "execute_input", "stream", "execute_result", "idle"])
            late.stop_channels()
        finally:
            km.shutdown_kernel()


@contextmanager
def patience(channel, least):
    """Let a channel wait longer than it is told."""
    get = channel.get_msg
    channel.get_msg = lambda timeout=None: get(timeout=max(timeout or 0, least))
    try:
        yield
    finally:
        del channel.get_msg


if __name__ == "__main__":
    unittest.main()
