"""The synchronous half, made of the other one by unasync.py."""
