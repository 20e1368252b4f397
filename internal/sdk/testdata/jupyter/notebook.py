"""Executes a notebook with nbclient or papermill and prints the outputs of its cells as JSON.

notebook.py PROGRAM KERNEL
"""

import json
import sys

import nbformat
from cells import CELLS

program, kernel = sys.argv[1:]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
if program == "nbclient":
    from nbclient import NotebookClient

    NotebookClient(notebook, kernel_name=kernel, timeout=120).execute()
else:
    import papermill

    nbformat.write(notebook, "in.ipynb")
    papermill.execute_notebook("in.ipynb", "out.ipynb", kernel_name=kernel, progress_bar=False)
    notebook = nbformat.read("out.ipynb", as_version=4)
json.dump([cell.outputs for cell in notebook.cells], sys.stdout)
