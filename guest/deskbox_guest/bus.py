"""Firefox's own way to be handed a URL: a call on the message bus, without starting a program for it.

A second Firefox would do the same, and takes a tenth of a second to start; in an emulated machine several.
What is sent is its command line, in the form of Firefox's toolkit/components/remote/RemoteUtils.cpp.
"""

from __future__ import annotations

import os
import re
import struct
import time
from typing import Any

from jeepney import DBusAddress, DBusErrorResponse, Message, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection
from jeepney.wrappers import unwrap_msg

from deskbox_guest.protocol import Fault

_NAME = re.compile(r"org\.mozilla\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")


def hand_to_firefox(arguments: list[str], within: float) -> bool:
    """Let the running Firefox do as if it were started with these arguments; False if there is none.

    Raises Fault "interrupted" if it does not answer within so many seconds.
    """
    deadline = time.monotonic() + within
    try:
        with open_dbus_connection(auth_timeout=within) as bus:

            def call(message: Message) -> Any:
                left = max(0.001, deadline - time.monotonic())
                return unwrap_msg(bus.send_and_get_reply(message, timeout=left))

            [names] = call(message_bus.ListNames())
            found = next((match for name in names if (match := _NAME.fullmatch(name))), None)
            if found is None:
                return False
            program = found[1].replace("-", "_")
            path, interface = f"/org/mozilla/{program}/Remote", f"org.mozilla.{program.split('_')[0]}"
            line = command_line(os.getcwd(), ["firefox", *arguments])
            firefox = DBusAddress(path, bus_name=found[0], interface=interface)
            call(new_method_call(firefox, "OpenURL", "ay", (line,)))
    except (OSError, DBusErrorResponse) as error:  # of the first kind are a lost connection and a timeout
        raise Fault("interrupted", f"Firefox did not take the URL: {error}") from error
    return True


def command_line(directory: str, arguments: list[str]) -> bytes:
    """The number of arguments, the place of each from the beginning, the directory, the arguments."""
    texts = [os.fsencode(text) + b"\0" for text in (directory, *arguments)]
    places, at = [], 4 * (len(arguments) + 1)
    for text in texts:
        places.append(at)
        at += len(text)
    return struct.pack(f"<{len(texts)}I", len(arguments), *places[1:]) + b"".join(texts)
