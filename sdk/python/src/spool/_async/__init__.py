"""The asynchronous half. The other one, _sync, is made of it by unasync.py."""
