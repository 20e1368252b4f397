"""The cells of a notebook. Each says in a file that it ran; the second waits for the file "go"."""

CELLS = [
    "print('one')\nopen('ran', 'a').write('1')\nx = 40",
    "import os, sys, time\n"
    "print('before')\n"
    "open('ran', 'a').write('2')\n"
    "while not os.path.exists('go'): time.sleep(0.01)\n"
    "for i in range(1000): print('tick', i)\n"
    "print('after', file=sys.stderr)\n"
    "open('ran', 'a').write('-')\n"
    "x + 1",
    "open('ran', 'a').write('3')\nx + 2",
]
