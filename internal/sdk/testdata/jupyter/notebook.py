"""Executes a notebook with nbclient and prints the outputs of its cells as JSON.

The notebook is three cells. Each says in a file that it ran; the second waits for the file "go".
"""

import json
import sys

import nbformat
from nbclient import NotebookClient

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

notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
NotebookClient(notebook, kernel_name=sys.argv[1], timeout=120).execute()
json.dump([cell.outputs for cell in notebook.cells], sys.stdout)
