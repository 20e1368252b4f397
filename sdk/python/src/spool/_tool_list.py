"""The tools for models. Generated from tools.json; do not edit."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOOLS: list[dict[str, Any]] = [
  {
    "name": "run_command",
    "description": "Start a command, wait for it, and show its output. Give command (a line for sh -c) or argv. If it takes longer than wait_ms it goes on: read_run shows the rest, stop_run ends it.",
    "parameters": {
      "type": "object",
      "additionalProperties": False,
      "properties": {
        "command": {
          "type": "string",
          "description": "A line for sh -c."
        },
        "argv": {
          "type": "array",
          "items": {
            "type": "string"
          },
          "minItems": 1,
          "description": "Program and arguments; no shell."
        },
        "cwd": {
          "type": "string",
          "description": "Working directory."
        },
        "env": {
          "type": "object",
          "additionalProperties": {
            "type": "string"
          },
          "description": "Variables to add."
        },
        "stdin": {
          "type": "string",
          "description": "All of its standard input; to type later, use tty."
        },
        "tty": {
          "type": "boolean",
          "default": False,
          "description": "Give it a terminal."
        },
        "name": {
          "type": "string",
          "maxLength": 64,
          "description": "Name to find the run by."
        },
        "timeout_ms": {
          "type": "integer",
          "minimum": 1,
          "description": "Stop the command after this long."
        },
        "id": {
          "type": "string",
          "pattern": "^[a-z0-9]{1,128}$",
          "description": "Repeating a call with this id does nothing new."
        },
        "on_cancel": {
          "enum": [
            "leave",
            "stop"
          ],
          "default": "leave",
          "description": "What cancelling this call does to the command."
        },
        "wait_ms": {
          "type": "integer",
          "minimum": 0,
          "maximum": 50000,
          "default": 10000,
          "description": "How long to wait at most."
        },
        "until": {
          "default": "end",
          "enum": [
            "end",
            "output",
            "quiet",
            "match",
            "ask",
            "turn"
          ],
          "description": "What ends the wait early."
        },
        "match": {
          "type": "string",
          "maxLength": 1000,
          "description": "RE2 pattern for until=match."
        },
        "quiet_ms": {
          "type": "integer",
          "minimum": 50,
          "maximum": 30000,
          "default": 300,
          "description": "Silence that until=quiet waits for."
        },
        "budget": {
          "type": "integer",
          "minimum": 100,
          "maximum": 100000,
          "default": 8000,
          "description": "Characters of output to return."
        }
      }
    }
  },
  {
    "name": "read_run",
    "description": "Show output of a run: what came after a cursor, its tail, lines that match, or the screen of a terminal. Waits if asked to.",
    "parameters": {
      "type": "object",
      "additionalProperties": False,
      "required": [
        "run"
      ],
      "properties": {
        "run": {
          "type": "string",
          "minLength": 1,
          "description": "Run id, unique prefix, or name."
        },
        "after": {
          "type": "integer",
          "minimum": 0,
          "description": "The next of an earlier result."
        },
        "view": {
          "enum": [
            "tail",
            "head",
            "head_tail",
            "errors",
            "screen",
            "transcript"
          ],
          "description": "Which part; head_tail with after, else tail."
        },
        "grep": {
          "type": "string",
          "maxLength": 1000,
          "description": "Only lines that match this RE2 pattern."
        },
        "context": {
          "type": "integer",
          "minimum": 0,
          "maximum": 20,
          "default": 2,
          "description": "Lines around a match."
        },
        "wait_ms": {
          "type": "integer",
          "minimum": 0,
          "maximum": 50000,
          "default": 0,
          "description": "How long to wait at most."
        },
        "until": {
          "enum": [
            "end",
            "output",
            "quiet",
            "match",
            "ask",
            "turn"
          ],
          "description": "What ends the wait early."
        },
        "match": {
          "type": "string",
          "maxLength": 1000,
          "description": "RE2 pattern for until=match."
        },
        "quiet_ms": {
          "type": "integer",
          "minimum": 50,
          "maximum": 30000,
          "default": 300,
          "description": "Silence that until=quiet waits for."
        },
        "budget": {
          "type": "integer",
          "minimum": 100,
          "maximum": 100000,
          "default": 8000,
          "description": "Characters of output to return."
        }
      }
    }
  },
  {
    "name": "send_input",
    "description": "Type text or keys to a run, then show what it wrote. Text needs its own newline.",
    "parameters": {
      "type": "object",
      "additionalProperties": False,
      "required": [
        "run"
      ],
      "properties": {
        "run": {
          "type": "string",
          "minLength": 1,
          "description": "Run id, unique prefix, or name."
        },
        "text": {
          "type": "string",
          "description": "What to type."
        },
        "keys": {
          "type": "array",
          "items": {
            "type": "string",
            "pattern": "^(ctrl-[a-z]|alt-.|enter|tab|esc|up|down|left|right|home|end|pgup|pgdn|backspace|delete|f[0-9]{1,2})$"
          },
          "description": "Keys after the text, such as ctrl-c, enter, up."
        },
        "eof": {
          "type": "boolean",
          "description": "Close standard input afterwards."
        },
        "after": {
          "type": "integer",
          "minimum": 0,
          "description": "Show what came after this cursor; by default after the input."
        },
        "id": {
          "type": "string",
          "pattern": "^[a-z0-9]{1,128}$",
          "description": "Repeating a call with this id does nothing new."
        },
        "wait_ms": {
          "type": "integer",
          "minimum": 0,
          "maximum": 50000,
          "default": 2000,
          "description": "How long to wait at most."
        },
        "until": {
          "default": "quiet",
          "enum": [
            "end",
            "output",
            "quiet",
            "match",
            "ask",
            "turn"
          ],
          "description": "What ends the wait early."
        },
        "match": {
          "type": "string",
          "maxLength": 1000,
          "description": "RE2 pattern for until=match."
        },
        "quiet_ms": {
          "type": "integer",
          "minimum": 50,
          "maximum": 30000,
          "default": 300,
          "description": "Silence that until=quiet waits for."
        },
        "budget": {
          "type": "integer",
          "minimum": 100,
          "maximum": 100000,
          "default": 8000,
          "description": "Characters of output to return."
        }
      }
    }
  },
  {
    "name": "stop_run",
    "description": "End a run with all its processes, or interrupt or signal it.",
    "parameters": {
      "type": "object",
      "additionalProperties": False,
      "required": [
        "run"
      ],
      "properties": {
        "run": {
          "type": "string",
          "minLength": 1,
          "description": "Run id, unique prefix, or name."
        },
        "how": {
          "type": "string",
          "pattern": "^(interrupt|stop|kill|SIG[A-Z0-9]+)$",
          "default": "stop",
          "description": "interrupt (as ctrl-c), stop, kill, or a signal."
        },
        "id": {
          "type": "string",
          "pattern": "^[a-z0-9]{1,128}$",
          "description": "Repeating a call with this id does nothing new."
        },
        "wait_ms": {
          "type": "integer",
          "minimum": 0,
          "maximum": 50000,
          "default": 5000,
          "description": "How long to wait at most."
        }
      }
    }
  },
  {
    "name": "list_runs",
    "description": "List runs, newest first, one line each.",
    "parameters": {
      "type": "object",
      "additionalProperties": False,
      "properties": {
        "live": {
          "type": "boolean",
          "description": "Only those that have not ended."
        },
        "waiting": {
          "type": "boolean",
          "description": "Only those that wait for an answer."
        },
        "name": {
          "type": "string",
          "description": "Only those with this name."
        },
        "label": {
          "type": "string",
          "pattern": "^[^:]+:.*$",
          "description": "Only those with this label, KEY:VALUE."
        },
        "limit": {
          "type": "integer",
          "minimum": 1,
          "maximum": 200,
          "default": 20,
          "description": "How many at most."
        }
      }
    }
  },
  {
    "name": "python",
    "description": "Run code in a Python that keeps its variables between calls. Shows what it printed, the value of the last expression, and plots as images.",
    "parameters": {
      "type": "object",
      "additionalProperties": False,
      "required": [
        "code"
      ],
      "properties": {
        "code": {
          "type": "string",
          "description": "Python source."
        },
        "session": {
          "type": "string",
          "minLength": 1,
          "maxLength": 64,
          "default": "default",
          "description": "Which interpreter; each has its own state."
        },
        "isolated": {
          "type": "boolean",
          "default": False,
          "description": "Use a sandbox without files and network."
        },
        "timeout_ms": {
          "type": "integer",
          "minimum": 1,
          "description": "Interrupt the code after this long."
        },
        "images": {
          "type": "integer",
          "minimum": 0,
          "maximum": 4,
          "default": 2,
          "description": "Images to return at most."
        },
        "id": {
          "type": "string",
          "pattern": "^[a-z0-9]{1,128}$",
          "description": "Repeating a call with this id does nothing new."
        },
        "wait_ms": {
          "type": "integer",
          "minimum": 0,
          "maximum": 50000,
          "default": 10000,
          "description": "How long to wait at most."
        },
        "budget": {
          "type": "integer",
          "minimum": 100,
          "maximum": 100000,
          "default": 8000,
          "description": "Characters of output to return."
        }
      }
    }
  },
  {
    "name": "ask_agent",
    "description": "Give a coding agent a prompt and return its answer, or how far it is. Give agent to begin a conversation, run to go on with one.",
    "parameters": {
      "type": "object",
      "additionalProperties": False,
      "required": [
        "prompt"
      ],
      "properties": {
        "agent": {
          "type": "string",
          "description": "codex, claude, opencode or pi; needed unless run is given."
        },
        "prompt": {
          "type": "string",
          "description": "What it should do."
        },
        "images": {
          "type": "array",
          "items": {
            "type": "string"
          },
          "maxItems": 20,
          "description": "Pictures to show it: addresses of forms (spool://) or data: URLs."
        },
        "run": {
          "type": "string",
          "minLength": 1,
          "description": "Conversation to go on with: run id, unique prefix, or name."
        },
        "cwd": {
          "type": "string",
          "description": "Working directory."
        },
        "model": {
          "type": "string",
          "description": "Model of the agent."
        },
        "id": {
          "type": "string",
          "pattern": "^[a-z0-9]{1,128}$",
          "description": "Repeating a call with this id does nothing new."
        },
        "wait_ms": {
          "type": "integer",
          "minimum": 0,
          "maximum": 50000,
          "default": 50000,
          "description": "How long to wait at most."
        },
        "budget": {
          "type": "integer",
          "minimum": 100,
          "maximum": 100000,
          "default": 8000,
          "description": "Characters of output to return."
        }
      }
    }
  }
]
