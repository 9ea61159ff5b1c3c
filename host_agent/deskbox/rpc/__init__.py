"""Calls to the guest over a byte stream: `channel` blocks, `async_channel` awaits, over `wire.Endpoint`."""
