"""The process that owns one desktop on the host: `python -m deskbox.keeper NAME …`, started by `launcher`.

It starts the guest (`start`), hands out byte streams to it as file descriptors, freezes it and lets it go on,
and when the desktop ends, for whatever reason, leaves nothing of it (`keeping`).
"""
